//! The control socket of a running peer: each connection gets one line of JSON with the peer's state.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use centrifuge::flease::{CellStatus, Counters, Flease, PeerStatus};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::failure::Failure;
use crate::words::milliseconds;

/// How many may ask at one time; the rest waits.
const ASKING: usize = 8;
/// How long an answer may take to be read.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket, which goes away with this.
pub(super) struct Control {
    path: PathBuf,
    task: AbortHandle,
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
        // Nobody is served there any more.
        let _ = fs::remove_file(&self.path);
    }
}

impl Control {
    /// Makes the socket, for this user alone, and answers for as long as the result lives.
    pub(super) fn serve(path: &Path, flease: &Flease) -> Result<Control, Failure> {
        let failed = |what: String| Failure::failed(format!("control socket {}: {what}", path.display()));
        if UnixStream::connect(path).is_ok() {
            return Err(failed("another peer answers there; choose another path".to_owned()));
        }
        // What a killed peer left behind; a file that is something else stays.
        if fs::symlink_metadata(path)
            .is_ok_and(|known| std::os::unix::fs::FileTypeExt::is_socket(&known.file_type()))
        {
            fs::remove_file(path).map_err(|error| failed(error.to_string()))?;
        }
        let listener = UnixListener::bind(path).map_err(|error| failed(error.to_string()))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(|error| failed(error.to_string()))?;
        let task = tokio::spawn(answer_all(listener, flease.clone())).abort_handle();
        Ok(Control { path: path.to_owned(), task })
    }
}

async fn answer_all(listener: UnixListener, flease: Flease) {
    let asking = Arc::new(Semaphore::new(ASKING));
    loop {
        let Ok(turn) = Arc::clone(&asking).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(cells) = flease.known_cells().await else { return };
        let line = format!("{}\n", object(&flease.status(), &flease.counters(), &cells));
        tokio::task::spawn_blocking(move || {
            // Who asked may be gone.
            let _ = stream.into_std().and_then(|mut stream| {
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.write_all(line.as_bytes())
            });
            drop(turn);
        });
    }
}

/// What the peer behind a socket says.
pub(super) fn ask(path: &Path) -> Result<Value, Failure> {
    let nobody = |why: String| {
        Failure::no_manager(format!(
            "no peer answers at {}: {why}; run one with --control {}",
            path.display(),
            path.display()
        ))
    };
    let mut stream = UnixStream::connect(path).map_err(|error| nobody(error.to_string()))?;
    let mut text = String::new();
    stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.read_to_string(&mut text))
        .map_err(|error| nobody(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| nobody(error.to_string()))
}

fn object(status: &PeerStatus, counters: &Counters, cells: &[CellStatus]) -> Value {
    let (leases, datagrams) = (&counters.leases, &counters.datagrams);
    json!({
        "peer": status.peer,
        "ready": status.ready_in.is_some_and(|rest| rest.is_zero()),
        "ready_in_ms": status.ready_in.map(milliseconds),
        "clock_apart_from": status.apart,
        "busy": status.busy,
        "cells": cells.iter().map(cell).collect::<Vec<_>>(),
        "acquired": leases.acquired,
        "renewed": leases.renewed,
        "lost": leases.lost,
        "rounds": leases.rounds,
        "aborted": leases.aborted,
        "timed_out": leases.timed_out,
        "disagreeing": leases.disagreeing,
        "clocks_refused": leases.apart,
        "sent": datagrams.sent,
        "sent_bytes": datagrams.sent_bytes,
        "unsent": datagrams.unsent,
        "received": datagrams.received,
        "received_bytes": datagrams.received_bytes,
        "wrong_code": datagrams.wrong_code,
        "malformed": datagrams.malformed,
        "strangers": datagrams.strangers,
    })
}

fn cell(status: &CellStatus) -> Value {
    let holder = status.holder.as_ref();
    json!({
        "cell": status.cell,
        "members": status.members,
        "holder": holder.map(|holder| holder.peer),
        "here": holder.is_some_and(|holder| holder.is_this_process),
        "epoch": holder.map(|holder| holder.epoch.to_string()),
        "rest_ms": holder.map(|holder| milliseconds(holder.rest)),
    })
}
