//! `centrifuge completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

use crate::failure::Failure;
use crate::output::Format;

#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell; its manual says where completions go
    shell: Shell,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run<C: CommandFactory>(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut C::command(), "centrifuge", &mut script);
    let script = String::from_utf8_lossy(&script);
    let json = json!({ "shell": args.shell.to_string(), "script": script });
    args.format.output().print(&json, || script.clone().into_owned());
    Ok(())
}
