//! The program `presence`; `presence server --help` and `presence frontend --help` list what its parts are told.

fn main() -> std::process::ExitCode {
    centrifuge_examples::programs::run("presence", std::env::args_os())
}
