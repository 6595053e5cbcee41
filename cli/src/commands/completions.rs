//! `centrifuge completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell; its manual says where completions go
    shell: Shell,
}

pub(crate) fn run<C: CommandFactory>(args: &CompletionsArgs) -> Result<(), Failure> {
    clap_complete::generate(args.shell, &mut C::command(), "centrifuge", &mut std::io::stdout());
    Ok(())
}
