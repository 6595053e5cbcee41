//! The program `queues`; `queues server --help` and `queues frontend --help` list what its parts are told.

fn main() -> std::process::ExitCode {
    centrifuge_examples::programs::run("queues", std::env::args_os())
}
