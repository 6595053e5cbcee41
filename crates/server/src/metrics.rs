//! Every metric of the Manager: its name, labels and meaning, in one table that `docs/operations/metrics.md` repeats.

mod kinds;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use kinds::Kind;
pub(crate) use kinds::{CounterBy, GaugeBy, RatioBy};
#[cfg(test)]
use kinds::{Described, described};

macro_rules! metrics {
    ($($field:ident: $kind:ty, $name:literal, [$($label:literal),*], $help:literal;)*) => {
        /// The Manager's metrics. Cheap to count in; read by scrapes.
        #[derive(Debug)]
        pub(crate) struct Metrics {
            registry: Registry,
            $(#[doc = $help] pub(crate) $field: $kind,)*
        }

        impl Metrics {
            /// All metrics at zero.
            #[must_use]
            pub(crate) fn new() -> Metrics {
                let mut registry = Registry::default();
                $(let $field = <$kind as Kind>::registered(&mut registry, $name, &[$($label),*], $help);)*
                Metrics { registry, $($field,)* }
            }

            /// Every metric, in the order of the documentation.
            #[cfg(test)]
            fn described() -> Vec<Described> {
                vec![$(described::<$kind>($name, &[$($label),*], $help)),*]
            }
        }
    };
}

metrics! {
    leading: Gauge, "centrifuge_leading", [], "1 while this Manager leads, else 0";
    term: Gauge, "centrifuge_term", [], "The term this Manager leads or led last";
    terms: Counter, "centrifuge_terms", [], "Times this Manager began to lead";
    namespaces: Gauge, "centrifuge_namespaces", [], "Namespaces that exist";
    owners: GaugeBy<1>, "centrifuge_owners", ["namespace"], "Live Owners: sessions whose leases may still run";
    lookups: GaugeBy<1>, "centrifuge_lookups", ["namespace"], "Lookups that watch the table";
    table_ranges: GaugeBy<1>, "centrifuge_table_ranges", ["namespace"], "Table size: entries of the lease table";
    unowned_ranges: GaugeBy<1>, "centrifuge_unowned_ranges", ["namespace"], "Entries of the lease table without an owner that can be granted";
    quarantined_ranges: GaugeBy<1>, "centrifuge_quarantined_ranges", ["namespace"], "Ranges that are granted to nobody, because Owners that got them died";
    moving_ranges: GaugeBy<1>, "centrifuge_moving_ranges", ["namespace"], "Entries of the lease table that are being recalled";
    frozen: GaugeBy<1>, "centrifuge_frozen", ["namespace"], "1 while an operator has frozen the namespace, else 0";
    affinity: GaugeBy<1>, "centrifuge_affinity", ["namespace"], "1 if the namespace is in affinity mode, 0 if its leases are exclusive";
    rebuilding: GaugeBy<1>, "centrifuge_rebuilding", ["namespace"], "1 while a leader without a store learns the table from the Owners, else 0";
    generation: GaugeBy<1>, "centrifuge_generation", ["namespace"], "The highest lease number granted so far";
    load: GaugeBy<2>, "centrifuge_load", ["namespace", "dimension"], "Load that the Owners last reported, in this dimension per 1,000 seconds";
    change_log_entries: GaugeBy<1>, "centrifuge_change_log_entries", ["namespace"], "Changes that the change log reaches back";
    change_log_span_seconds: GaugeBy<1>, "centrifuge_change_log_span_seconds", ["namespace"], "Change-log span: age of the oldest change that a Lookup can still resume from";
    sessions_started: CounterBy<1>, "centrifuge_sessions_started", ["namespace"], "Owner processes that joined";
    sessions_ended: CounterBy<2>, "centrifuge_sessions_ended", ["namespace", "reason"], "Owner processes that are gone, by why";
    grants: CounterBy<2>, "centrifuge_grants", ["namespace", "reason"], "Leases granted, by why";
    claims: CounterBy<1>, "centrifuge_claims", ["namespace"], "Leases of earlier leaders that their Owners claimed, where there is no store";
    claims_refused: CounterBy<2>, "centrifuge_claims_refused", ["namespace", "why"], "Claims that were refused, by why";
    lease_losses: CounterBy<2>, "centrifuge_lease_losses", ["namespace", "reason"], "Lease losses: ranges whose state was lost because their lease ended without a move, by why";
    recalls: CounterBy<2>, "centrifuge_recalls", ["namespace", "reason"], "Ranges asked back from their owners, by why";
    clean_moves: CounterBy<1>, "centrifuge_clean_moves", ["namespace"], "Ranges that moved with their state";
    quarantines: CounterBy<1>, "centrifuge_quarantines", ["namespace"], "Ranges put into quarantine, because Owners that got them died";
    messages_skipped: CounterBy<1>, "centrifuge_messages_skipped", ["why"], "Messages that changed nothing, by why; race: dropped because it crossed one of the Manager's";
    decisions_waiting: CounterBy<2>, "centrifuge_decisions_waiting", ["namespace", "why"], "Decisions that were put off, by why";
    trim_moves: CounterBy<2>, "centrifuge_trim_moves", ["namespace", "reason"], "Ranges that Trim decided to move, by why";
    trim_skips: CounterBy<2>, "centrifuge_trim_skips", ["namespace", "why"], "Decisions of Trim that left load where it was, by why";
    trim_ratio: RatioBy<2>, "centrifuge_trim_ratio", ["namespace", "of"], "Load of the fullest Owner: peak, to its even share by weight; floor, the lowest that this can be; goal, to the least that it can have; predicted, the same once all moves have ended";
    trim_budget: RatioBy<3>, "centrifuge_trim_budget", ["namespace", "bucket", "of"], "What Trim may move now, as a part of all load or of all keys, by bucket: calm, relief, or the credit of a new namespace";
    trim_ranges_per_owner: RatioBy<2>, "centrifuge_trim_ranges_per_owner", ["namespace", "of"], "Ranges of an Owner: mean, most, and the limit of the mean";
    trim_hot_keys: GaugeBy<1>, "centrifuge_trim_hot_keys", ["namespace"], "Keys that are larger than an Owner's share: read replicas would help";
    commits: Counter, "centrifuge_commits", [], "Batches committed to the store";
    commit_seconds: Histogram, "centrifuge_commit_seconds", [], "Time from sending a batch to the store until it was durable";
    store_failures: CounterBy<1>, "centrifuge_store_failures", ["kind"], "Answers of the store other than success, by kind";
    store_healthy: Gauge, "centrifuge_store_healthy", [], "0 after the store failed, 1 from its next success on";
    compactions: Counter, "centrifuge_compactions", [], "Compactions of the store that were asked for";
    connections: Gauge, "centrifuge_connections", [], "Open gRPC connections";
    streams: GaugeBy<1>, "centrifuge_streams", ["kind"], "Open streams, by kind: owner or lookup";
    messages_received: CounterBy<1>, "centrifuge_messages_received", ["kind"], "Messages received, by kind: hello, report, watch or admin";
    messages_sent: CounterBy<1>, "centrifuge_messages_sent", ["kind"], "Messages sent, by kind: owner or lookup";
    bytes_received: CounterBy<1>, "centrifuge_bytes_received", ["kind"], "Bytes of messages received, before framing, by kind: hello, report or watch";
    bytes_sent: CounterBy<1>, "centrifuge_bytes_sent", ["kind"], "Bytes of messages sent, before framing, by kind: owner or lookup";
    owner_messages_dropped: Counter, "centrifuge_owner_messages_dropped", [], "Messages to Owners that were dropped because their queue was full";
    slow_lookups: Counter, "centrifuge_slow_lookups", [], "Streams of Lookups that were ended because they read too slowly";
    admin_requests: CounterBy<2>, "centrifuge_admin_requests", ["request", "result"], "Requests of operators, by request and result";
    rejected_input: CounterBy<1>, "centrifuge_rejected_input", ["kind"], "Input that was refused, by kind";
    denied: CounterBy<1>, "centrifuge_denied", ["permission"], "Requests and streams that were denied, by the permission that was missing";
    reloads_refused: CounterBy<1>, "centrifuge_reloads_refused", ["file"], "Changed files that could not be used, by kind: tls, policy, token_keys or peer_key; what they had before stays in force";
    tls_days_to_expiry: Gauge, "centrifuge_tls_days_to_expiry", [], "Days until the Manager's certificate runs out; 0 without TLS";
    leaderships_lost: Counter, "centrifuge_leaderships_lost", [], "Times this Manager stopped leading without being asked to";
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// The text that a scrape gets.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => format!("# {error}\n# EOF\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the table: name, type, labels and meaning; the alert column is for people.
    fn documented() -> Vec<[String; 4]> {
        let text = include_str!("../../../docs/operations/metrics.md");
        let rows = text.lines().filter(|line| line.starts_with("| `centrifuge_"));
        rows.map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            assert_eq!(cells.len(), 5, "a row has five cells: {row}");
            assert!(!cells[4].is_empty(), "say which alert to build, or that none is needed: {row}");
            [0, 1, 2, 3].map(|cell| cells[cell].replace('`', ""))
        })
        .collect()
    }

    #[test]
    fn the_documentation_lists_exactly_the_metrics_there_are() {
        let code: Vec<_> = Metrics::described()
            .into_iter()
            .map(|metric| {
                [metric.name, metric.kind.to_owned(), metric.labels.join(", "), metric.help.to_owned()]
            })
            .collect();
        assert_eq!(documented(), code);
    }

    #[test]
    fn a_scrape_shows_what_was_counted_under_the_documented_names() {
        let metrics = Metrics::new();
        metrics.grants.with(["presence", "joined"]).inc();
        metrics.commits.inc();
        let text = metrics.text();
        assert!(
            text.contains("centrifuge_grants_total{namespace=\"presence\",reason=\"joined\"} 1"),
            "{text}"
        );
        assert!(text.contains("centrifuge_commits_total 1"), "{text}");
    }
}
