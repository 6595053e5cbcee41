//! The program `replicated`; `replicated server --help` and `replicated frontend --help` list what its parts are told.

fn main() -> std::process::ExitCode {
    centrifuge_examples::programs::run("replicated", std::env::args_os())
}
