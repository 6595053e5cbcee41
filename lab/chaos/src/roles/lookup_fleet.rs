//! Many Lookups in one process, as they are by default, that watch the pool and do nothing else.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use centrifuge::Lookup;
use centrifuge::lookup::LossReason;
use centrifuge_server::descriptors::raise_limit;
use centrifuge_server::stop::told_to_stop;
use tokio::task::JoinSet;

use super::Part;
use crate::lines::{CallerLine, Journal, true_now};
use crate::plan::NAMESPACE;

/// How long all Lookups may take to get their tables.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Watches until it is told to stop, and writes down what it is told of losses.
pub(super) async fn run(part: &Part, lookups: u32) -> Result<(), Box<dyn Error>> {
    // While it looks for a leader a Lookup may have a connection to every Manager.
    raise_limit(lookups as usize * part.managers.len());
    let journal = Arc::new(Journal::open(&part.journal)?);
    let mut connecting = JoinSet::new();
    for _ in 0..lookups {
        let builder = Lookup::builder(part.managers()?, NAMESPACE);
        let journal = Arc::clone(&journal);
        let builder = builder.connect_timeout(CONNECT_TIMEOUT).on_loss(move |loss| {
            let journal = Arc::clone(&journal);
            async move { note(&journal, loss.why) }
        });
        connecting.spawn(builder.connect());
    }
    let mut connected_lookups = Vec::new();
    while let Some(connected) = connecting.join_next().await {
        connected_lookups.push(connected??);
    }
    told_to_stop().await;
    drop(connected_lookups);
    Ok(())
}

fn note(journal: &Journal, why: LossReason) {
    // No keys: nothing is looked up.
    let line = CallerLine::Lost { why: why.into(), keys: Vec::new(), at: true_now() };
    if let Err(error) = journal.write(&[line]) {
        tracing::error!(%error, "what a Lookup was told cannot be written down");
    }
}
