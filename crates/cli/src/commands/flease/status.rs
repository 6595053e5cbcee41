//! `centrifuge flease status` and `centrifuge flease watch`: what a running peer says.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::control::ask;
use crate::failure::Failure;
use crate::output::{Format, Output, closed, line, table_or};
use crate::words::{duration, show_ms};

#[derive(Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    at: AtPeer,
}

#[derive(Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    at: AtPeer,
    /// How often to poll
    #[arg(long, default_value = "200ms", value_parser = duration)]
    every: Duration,
    /// The cells to follow [default: all]
    cells: Vec<String>,
}

/// Whom to ask and how to answer.
#[derive(Args)]
struct AtPeer {
    /// The control socket of a peer that runs on this machine
    #[arg(long, env = "CENTRIFUGE_CONTROL")]
    control: PathBuf,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let status = ask(&args.at.control)?;
    args.at.format.output().print(&status, || in_words(&status));
    Ok(())
}

fn in_words(status: &Value) -> String {
    let apart = status["clock_apart_from"].as_array().is_some_and(|from| !from.is_empty());
    let takes_part = match (status["ready"].as_bool(), status["ready_in_ms"].as_u64()) {
        (Some(true), _) => "takes part".to_owned(),
        _ if apart => {
            format!("has stepped down: its clock is apart from that of {}", status["clock_apart_from"])
        }
        (_, Some(rest)) => format!("takes part in {}", show_ms(rest.div_ceil(1_000) * 1_000)),
        _ => "takes no part".to_owned(),
    };
    let refused: u64 = ["wrong_code", "malformed", "strangers", "disagreeing", "clocks_refused"]
        .iter()
        .filter_map(|count| status[count].as_u64())
        .sum();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |cell: &Value| {
        let here = if cell["here"] == true { " (here)" } else { "" };
        let rest = cell["rest_ms"].as_u64().map(show_ms).unwrap_or_default();
        vec![text(&cell["cell"]), format!("{}{here}", cell["holder"]), text(&cell["epoch"]), rest]
    };
    let cells = status["cells"].as_array().map(Vec::as_slice).unwrap_or_default();
    let table =
        table_or("no cell is known to be held", &["cell", "holder", "epoch", "rest"], cells.iter().map(row));
    format!(
        "peer {} {takes_part}; it acquired {}, renewed {}, lost {}; refused {refused}\n\n{table}",
        status["peer"], status["acquired"], status["renewed"], status["lost"]
    )
}

/// Who holds a cell, and under which epoch.
type Holding = (u64, String);

/// Says who holds what, then every change of that, until it is told to stop.
pub(crate) async fn watch(args: &WatchArgs) -> Result<(), Failure> {
    let mut known: BTreeMap<String, Holding> = BTreeMap::new();
    let mut closed = pin!(closed());
    loop {
        let now = holdings(&ask(&args.at.control)?, &args.cells);
        for (cell, holding) in now.iter().filter(|(cell, holding)| known.get(*cell) != Some(*holding)) {
            tell(args.at.format.output(), cell, Some(holding));
        }
        for cell in known.keys().filter(|cell| !now.contains_key(*cell)) {
            tell(args.at.format.output(), cell, None);
        }
        known = now;
        tokio::select! {
            () = tokio::time::sleep(args.every) => {}
            () = &mut closed => return Ok(()),
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

fn holdings(status: &Value, wanted: &[String]) -> BTreeMap<String, Holding> {
    let cells = status["cells"].as_array().map(Vec::as_slice).unwrap_or_default();
    let holding = |cell: &Value| {
        let name = cell["cell"].as_str()?;
        let is_wanted = wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
        let members = cell["members"].as_array().filter(|members| !members.is_empty());
        // Another set of members makes another cell.
        let name = members.map_or_else(|| name.to_owned(), |_| format!("{name}{}", cell["members"]));
        let holding = (cell["holder"].as_u64()?, cell["epoch"].as_str()?.to_owned());
        is_wanted.then_some((name, holding))
    };
    cells.iter().filter_map(holding).collect()
}

fn tell(output: Output, cell: &str, holding: Option<&Holding>) {
    let (peer, epoch) = (holding.map(|(peer, _)| peer), holding.map(|(_, epoch)| epoch));
    line(&match (output, holding) {
        (Output::Json, _) => json!({ "cell": cell, "holder": peer, "epoch": epoch }).to_string(),
        (Output::Table, Some((peer, epoch))) => format!("{cell} is held by peer {peer} under epoch {epoch}"),
        (Output::Table, None) => format!("{cell} is free, or this peer does not know who holds it"),
    });
}
