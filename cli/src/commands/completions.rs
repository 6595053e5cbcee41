//! `centrifuge completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::line;

#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell; its manual says where completions go
    shell: Shell,
}

pub(crate) fn run<C: CommandFactory>(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut C::command(), "centrifuge", &mut script);
    line(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}
