//! The program `pubsub`; `pubsub server --help` and `pubsub frontend --help` list what its parts are told.

fn main() -> std::process::ExitCode {
    centrifuge_examples::programs::run("pubsub", std::env::args_os())
}
