//! The kinds of metric: plain ones, and families by labels whose names are given once.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

type Labels = Vec<(&'static str, String)>;

/// A metric as the documentation lists it.
#[cfg(test)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    /// The name that a scrape shows.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The names of its labels.
    pub labels: Vec<&'static str>,
    /// What it means.
    pub help: &'static str,
}

/// Counters by the values of `N` labels.
pub(crate) type CounterBy<const N: usize> = By<Counter, N>;
/// Gauges by the values of `N` labels.
pub(crate) type GaugeBy<const N: usize> = By<Gauge, N>;

/// Gauges of parts and ratios by the values of `N` labels.
pub(crate) type RatioBy<const N: usize> = By<Gauge<f64, AtomicU64>, N>;

/// A metric by the values of `N` labels.
#[derive(Clone, Debug)]
pub(crate) struct By<M, const N: usize> {
    family: Family<Labels, M>,
    labels: [&'static str; N],
}

impl<M: Clone + Default, const N: usize> By<M, N> {
    /// The metric of these values, in the order of the labels. Keep it where it is needed often.
    #[must_use]
    pub(crate) fn with(&self, values: [&str; N]) -> M {
        let labels: Labels = self.labels.into_iter().zip(values.map(str::to_owned)).collect();
        self.family.get_or_create_owned(&labels)
    }

    /// Forgets all values before new ones are set.
    pub(crate) fn clear(&self) {
        self.family.clear();
    }
}

/// How a kind of metric is made and named.
#[cfg_attr(not(test), allow(dead_code, reason = "only a test compares the documentation"))]
pub(super) trait Kind: Sized {
    const NAME: &'static str;
    const SUFFIX: &'static str = "";

    fn registered(
        registry: &mut Registry,
        name: &'static str,
        labels: &[&'static str],
        help: &'static str,
    ) -> Self;
}

#[cfg(test)]
pub(super) fn described<K: Kind>(name: &str, labels: &[&'static str], help: &'static str) -> Described {
    let name = format!("{name}{}", K::SUFFIX);
    Described { name, kind: K::NAME, labels: labels.to_vec(), help }
}

impl Kind for Counter {
    const NAME: &'static str = "counter";
    const SUFFIX: &'static str = "_total";

    fn registered(
        registry: &mut Registry,
        name: &'static str,
        _: &[&'static str],
        help: &'static str,
    ) -> Self {
        let counter = Counter::default();
        registry.register(name, help, counter.clone());
        counter
    }
}

impl Kind for Gauge {
    const NAME: &'static str = "gauge";

    fn registered(
        registry: &mut Registry,
        name: &'static str,
        _: &[&'static str],
        help: &'static str,
    ) -> Self {
        let gauge = Gauge::default();
        registry.register(name, help, gauge.clone());
        gauge
    }
}

impl Kind for Histogram {
    const NAME: &'static str = "histogram";

    fn registered(
        registry: &mut Registry,
        name: &'static str,
        _: &[&'static str],
        help: &'static str,
    ) -> Self {
        // From 0.1 ms to 13 s: a good disk commits below a millisecond, a leader lease is 10 s.
        let histogram = Histogram::new(exponential_buckets(0.000_1, 2.0, 18));
        registry.register(name, help, histogram.clone());
        histogram
    }
}

impl<const N: usize> Kind for CounterBy<N> {
    const NAME: &'static str = Counter::NAME;
    const SUFFIX: &'static str = Counter::SUFFIX;

    fn registered(
        registry: &mut Registry,
        name: &'static str,
        labels: &[&'static str],
        help: &'static str,
    ) -> Self {
        by(registry, name, labels, help)
    }
}

impl<const N: usize> Kind for GaugeBy<N> {
    const NAME: &'static str = Gauge::NAME;

    fn registered(
        registry: &mut Registry,
        name: &'static str,
        labels: &[&'static str],
        help: &'static str,
    ) -> Self {
        by(registry, name, labels, help)
    }
}

impl<const N: usize> Kind for RatioBy<N> {
    const NAME: &'static str = Gauge::NAME;

    fn registered(
        registry: &mut Registry,
        name: &'static str,
        labels: &[&'static str],
        help: &'static str,
    ) -> Self {
        by(registry, name, labels, help)
    }
}

fn by<M, const N: usize>(
    registry: &mut Registry,
    name: &'static str,
    labels: &[&'static str],
    help: &'static str,
) -> By<M, N>
where
    M: Clone + Default + Send + Sync + std::fmt::Debug + 'static,
    Family<Labels, M>: prometheus_client::registry::Metric,
{
    let family = Family::<Labels, M>::default();
    registry.register(name, help, family.clone());
    let labels = labels.try_into().expect("as many labels as the metric's type says");
    By { family, labels }
}
