//! The program `tasks`; `tasks server --help` and `tasks sink --help` list what its parts are told.

fn main() -> std::process::ExitCode {
    centrifuge_examples::programs::run("tasks", std::env::args_os())
}
