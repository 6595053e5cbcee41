//! Becomes a command that does not outlive the process that started it: were that killed, nobody would stop the command when
//! the lease ends.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::failure::Failure;

/// The command is there and cannot be run.
const CANNOT_RUN: u8 = 126;
/// There is no such command.
const NO_COMMAND: u8 = 127;

#[derive(Args)]
pub(crate) struct TiedArgs {
    /// The process that started this one
    #[arg(long)]
    parent: u32,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Returns only if it fails.
pub(crate) fn run(args: &TiedArgs) -> Failure {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Failure::with_code(CANNOT_RUN, format!("cannot tie the command to its lease: {error}"));
    }
    // It may have ended before the kernel was told.
    let lives = getppid().is_some_and(|now| now.as_raw_nonzero().get().cast_unsigned() == args.parent);
    if !lives {
        return Failure::with_code(CANNOT_RUN, "the process that holds the lease is gone");
    }
    let [program, arguments @ ..] = &args.command[..] else { return Failure::usage("there is no command") };
    let error = Command::new(program).args(arguments).exec();
    let code = if error.kind() == ErrorKind::NotFound { NO_COMMAND } else { CANNOT_RUN };
    Failure::with_code(code, format!("cannot run {}: {error}", program.to_string_lossy()))
}
