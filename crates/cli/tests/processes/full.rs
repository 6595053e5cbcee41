//! A Manager whose disk is full: it says so, is not ready, and goes on when there is room.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{binary, exit_code, free_address, refusal, start, until};

/// Whether this test may mount a small disk that nobody else sees.
fn may_mount() -> bool {
    let script = "mount -t tmpfs none /mnt";
    let tried = Command::new("unshare").args(["--mount", "sh", "-c", script]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// A page of the Manager: its first line, and the rest.
fn page(at: &str, path: &str) -> (String, String) {
    let mut answer = String::new();
    let mut stream = TcpStream::connect(at).expect("connected");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: manager\r\nConnection: close\r\n\r\n").expect("asked");
    stream.read_to_string(&mut answer).expect("answered");
    let (first, rest) = answer.split_once("\r\n").expect("a line");
    (first.to_owned(), rest.to_owned())
}

#[test]
fn a_full_disk_is_named_and_the_manager_is_not_ready_until_there_is_room() {
    if !may_mount() {
        eprintln!("skipped: this process may not mount a disk of its own");
        return;
    }
    let (grpc, http) = (free_address(), free_address());
    let directory = tempfile::tempdir().expect("a directory");
    let disk = directory.path().to_str().expect("a plain path");
    let manager = binary().get_program().to_str().expect("a plain path").to_owned();
    let script = format!(
        "mount -t tmpfs -o size=16m none {disk} && exec {manager} manager --store {disk}/centrifuge.db \
         --grpc-listen {grpc} --http-listen {http}"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let manager = start(command);
    until("the Manager leads", || exit_code(&["status", "--managers", &grpc]) == 0);
    assert!(page(&http, "/ready").0.contains("200"));

    // Only the Manager sees its disk: what fills it goes in by its door.
    let inside = PathBuf::from(format!("/proc/{}/root{disk}/ballast", manager.id()));
    let mut ballast = OpenOptions::new().create(true).append(true).open(&inside).expect("a file");
    for size in [1 << 20, 4 << 10] {
        while ballast.write_all(&vec![1; size]).is_ok() {}
    }
    let mut refused = None;
    for number in 0..2_000 {
        let name = format!("pool-{number}");
        let (code, message) = refusal(binary().args(["namespace", "create", &name, "--managers", &grpc]));
        if code != 0 {
            refused = Some((name, message));
            break;
        }
    }
    let (name, message) = refused.expect("the disk is full some time");
    assert!(message.contains("no room is left on the disk"), "{message}");
    let (first, rest) = page(&http, "/ready");
    assert!(first.contains("503") && rest.contains("no room is left on the disk"), "{first} {rest}");
    assert!(page(&http, "/status").1.contains("no room is left on the disk"));
    assert!(page(&http, "/health").0.contains("200"), "a restart would make no room");

    drop(ballast);
    fs::remove_file(&inside).expect("removed");
    until("the Manager is ready again", || page(&http, "/ready").0.contains("200"));
    let (code, message) = refusal(binary().args(["namespace", "create", &name, "--managers", &grpc]));
    assert!(code == 0 || message.contains("already"), "{message}");
}
