//! `centrifuge-bench manager --tls`: what TLS costs a Manager beside plain text, and what it is like when all clients come back at
//! once after its restart.

use std::time::{Duration, Instant};

use centrifuge_net::proto::v1;
use serde_json::{Value, json};

use super::{ManagerBenchArgs, all_together, shares};
use crate::isolation::HonestOwner;
use crate::output::{hundredths, micros};
use crate::testbed::{Cost, Kind, NAMESPACE, Order, Secured, Testbed};
use crate::{Failure, Result};

/// The most that a renewal inside TLS may cost, as a multiple of one in the clear.
const MAX_RATIO: f64 = 1.3;
/// How long an Owner beside the storm of clients renews.
const STORM_SECONDS: u64 = 10;

pub(super) async fn measure(args: &ManagerBenchArgs) -> Result<Value> {
    Ok(json!({ "renewals": renewals(args).await?, "reconnect": reconnect(args).await? }))
}

pub(super) fn words(report: &Value) -> String {
    let (renewals, storm) = (&report["renewals"], &report["reconnect"]);
    let within = if renewals["within_1_3"] == true { "within" } else { "more than" };
    format!(
        "a lease message costs the Manager {} us in the clear and {} us inside TLS: {} times, {within} {MAX_RATIO}\n\
         with {} clients it has {} bytes in memory in the clear, and {} inside TLS\n\
         after a restart {} clients were back in {} s, which took {} s of the Manager's processor time\n\
         meanwhile an Owner joined in {} s, and its renewals took {} us; {} leases were lost",
        renewals["plain_us"],
        renewals["tls_us"],
        renewals["ratio"],
        renewals["clients"],
        renewals["plain_resident_bytes"],
        renewals["tls_resident_bytes"],
        storm["clients"],
        storm["seconds"],
        storm["cpu_seconds"],
        storm["join_seconds"],
        storm["renewal_us"],
        storm["lost_leases"],
    )
}

/// Two pools at the same time, one in the clear and one inside TLS, whose Owners renew again and again.
async fn renewals(args: &ManagerBenchArgs) -> Result<Value> {
    let settings = v1::Settings {
        lease_ms: Some(6_000),
        hold_ms: Some(6_600),
        renewal_ms: Some(100),
        answer_allowance_ms: Some(1_000),
        ..all_together(args.owners)
    };
    args.format.say("renewals: a pool in the clear and one inside TLS");
    let mut plain = Testbed::start(&shares(args), settings).await?;
    let mut tls = Testbed::start_inside(Some(Secured::new()?), &shares(args), settings).await?;
    for testbed in [&mut plain, &mut tls] {
        testbed.order(&Order::Start { kind: Kind::Owners }).await?;
        testbed.order(&Order::Start { kind: Kind::Lookups }).await?;
        testbed.await_rest().await?;
    }
    let before = (plain.manager.read_meter().await?, tls.manager.read_meter().await?);
    tokio::time::sleep(Duration::from_secs(args.phase_seconds)).await;
    let after = (plain.manager.read_meter().await?, tls.manager.read_meter().await?);
    let (in_the_clear, inside) = (before.0.cost_until(&after.0), before.1.cost_until(&after.1));
    let each = |cost: &Cost| cost.cpu_seconds * 1e6 / cost.counts.messages_in.max(1) as f64;
    let ratio = each(&inside) / each(&in_the_clear);
    Ok(json!({
        "clients": args.owners + args.lookups,
        "plain_messages": in_the_clear.counts.messages_in,
        "tls_messages": inside.counts.messages_in,
        "plain_us": hundredths(each(&in_the_clear)),
        "tls_us": hundredths(each(&inside)),
        "ratio": hundredths(ratio),
        "within_1_3": ratio <= MAX_RATIO,
        "plain_cpu_seconds": hundredths(in_the_clear.cpu_seconds),
        "tls_cpu_seconds": hundredths(inside.cpu_seconds),
        "plain_resident_bytes": in_the_clear.resident_bytes,
        "tls_resident_bytes": inside.resident_bytes,
    }))
}

/// Kills a Manager that has many clients, starts it again, and watches them come back.
async fn reconnect(args: &ManagerBenchArgs) -> Result<Value> {
    let many = ManagerBenchArgs { lookups: args.reconnecting, ..args.clone() };
    // Few ranges: what is measured is connections, not tables.
    let settings = v1::Settings { virtual_nodes: Some(8), ..all_together(args.owners) };
    args.format.say(&format!("reconnect: {} clients connect", args.owners + args.reconnecting));
    let mut testbed = Testbed::start_inside(Some(Secured::new()?), &shares(&many), settings).await?;
    HonestOwner::prepare(&testbed.manager).await?;
    testbed.order(&Order::Start { kind: Kind::Owners }).await?;
    testbed.order(&Order::Start { kind: Kind::Lookups }).await?;
    testbed.await_rest().await?;

    args.format.say("reconnect: the Manager restarts");
    let restarted = Instant::now();
    testbed.manager.restart().await?;
    let before = testbed.manager.read_meter().await?;
    let mut honest = HonestOwner::join(&testbed.manager).await?;
    let join_seconds = restarted.elapsed().as_secs_f64();
    let all_are_back = async {
        testbed.await_rest().await?;
        let cost = before.cost_until(&testbed.manager.read_meter().await?);
        Ok::<_, Failure>((cost, restarted.elapsed().as_secs_f64()))
    };
    let (waits, back) = tokio::join!(honest.renew(STORM_SECONDS), all_are_back);
    let (cost, seconds) = back?;
    let metrics = testbed.manager.metrics().await?;
    let of_the_pool = format!("centrifuge_lease_losses_total{{namespace=\"{NAMESPACE}\"");
    let losses = metrics.lines().filter(|line| line.starts_with(&of_the_pool));
    let lost: u64 = losses.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum();
    Ok(json!({
        "clients": args.owners + args.reconnecting,
        "seconds": hundredths(seconds),
        "cpu_seconds": hundredths(cost.cpu_seconds),
        "resident_bytes": cost.resident_bytes,
        "join_seconds": hundredths(join_seconds),
        "renewal_us": micros(&waits?),
        "lost_leases": lost,
    }))
}
