//! `centrifuge flease peer`.

use centrifuge::flease::Change;
use centrifuge_server::stop::told_to_stop;
use clap::Args;
use serde_json::json;

use super::{PeerArgs, tell};
use crate::failure::Failure;
use crate::output::{Output, line};

#[derive(Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    peer: PeerArgs,
}

/// Runs until it is told to stop.
pub(crate) async fn run(args: RunArgs) -> Result<(), Failure> {
    let (flease, _control) = args.peer.start().await?;
    let output = args.peer.format.output();
    let mut changes = flease.changes();
    let say = |json: serde_json::Value, words: String| match output {
        Output::Json => line(&json.to_string()),
        Output::Table => line(&words),
    };
    let address = flease.address();
    say(
        json!({ "event": "started", "peer": args.peer.peer_id, "address": address.to_string() }),
        format!("peer {} at {address}; it takes part after its recovery", args.peer.peer_id),
    );
    let stopped = told_to_stop();
    tokio::pin!(stopped);
    // Whether it is known that the peer takes part, or that it cannot until its clock agrees.
    let mut is_known = false;
    loop {
        tokio::select! {
            () = &mut stopped => break,
            ready = flease.ready(), if !is_known => {
                is_known = true;
                if ready.is_ok() {
                    say(json!({ "event": "ready" }), "it takes part".to_owned());
                }
            }
            change = changes.next() => {
                let Some(change) = change else { break };
                let (json, words) = tell(&change);
                say(json, words);
                is_known &= change != Change::ClockAgrees;
            }
        }
    }
    flease.stop().await;
    Ok(())
}
