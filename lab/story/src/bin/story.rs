//! The story of Live Mesh as one command: `story --seed 1`.

use std::process::ExitCode;

use centrifuge_examples::Result;
use centrifuge_examples::shared::program::{conclude, log_to_stderr};
use centrifuge_story::role::{self, RoleArgs};
use centrifuge_story::story::{self, StoryArgs};
use clap::{Parser, Subcommand};

/// Tells the story of home PCs that get new addresses and work PCs that must learn them, while servers,
/// frontends and whole pools come and go. All parts are processes of this program on loopback; nothing is left
/// behind.
///
/// The last line says how many checks passed and how many failed; the program fails if any did.
#[derive(Parser)]
#[command(name = "story", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    story: StoryArgs,
}

#[derive(Subcommand)]
enum Part {
    /// Plays one part of the story, as a process of its own
    #[command(hide = true)]
    Serve(RoleArgs),
}

fn main() -> ExitCode {
    let Arguments { part, story } = Arguments::parse();
    match part {
        Some(Part::Serve(role)) => role::play(role),
        None => match tell(&story) {
            Ok(all_passed) => ExitCode::from(u8::from(!all_passed)),
            Err(error) => conclude(Err(error)),
        },
    }
}

/// Tells the story, and whether every check passed.
fn tell(args: &StoryArgs) -> Result<bool> {
    log_to_stderr();
    let summary = tokio::runtime::Runtime::new()?.block_on(story::run(args))?;
    if args.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        println!("\n{} passed, {} failed", summary.passed, summary.failed);
    }
    Ok(summary.failed == 0)
}
