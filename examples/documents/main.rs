//! The program `documents`; `documents server --help` and `documents frontend --help` list what its parts are told.

fn main() -> std::process::ExitCode {
    centrifuge_examples::programs::run("documents", std::env::args_os())
}
