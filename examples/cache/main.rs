//! The program `cache`; `cache server --help` and `cache frontend --help` list what its parts are told.

fn main() -> std::process::ExitCode {
    centrifuge_examples::programs::run("cache", std::env::args_os())
}
