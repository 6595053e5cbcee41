//! The program `feeds`; `feeds server --help` and `feeds frontend --help` list what its parts are told.

fn main() -> std::process::ExitCode {
    centrifuge_examples::programs::run("feeds", std::env::args_os())
}
