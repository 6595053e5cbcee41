//! The figures of each partitioner, side by side.

use serde_json::{Value, json};

use super::metrics::{Tally, average, percentile};

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) partitioner: String,
    pub(super) peak_average: f64,
    pub(super) peak_p95: f64,
    pub(super) peak_max: f64,
    pub(super) even_percent: f64,
    pub(super) disturbances: usize,
    pub(super) recovery_median: f64,
    pub(super) recovery_p95: f64,
    pub(super) load_moved_percent: f64,
    pub(super) space_moved_percent: f64,
    pub(super) leases_moved: f64,
    pub(super) ranges_average: f64,
    pub(super) ranges_peak: f64,
    pub(super) most_ranges: usize,
    pub(super) moved_again_percent: f64,
}

impl Row {
    pub(super) fn new(partitioner: String, tally: &Tally) -> Row {
        let hours = (tally.seconds / 3_600.0).max(f64::MIN_POSITIVE);
        let even = tally.peaks.iter().filter(|peak| **peak < 1.1).count();
        let again = if tally.load_moved > 0.0 { tally.load_moved_again / tally.load_moved } else { 0.0 };
        Row {
            partitioner,
            peak_average: average(&tally.peaks),
            peak_p95: percentile(&tally.peaks, 0.95),
            peak_max: percentile(&tally.peaks, 1.0),
            even_percent: 100.0 * even as f64 / tally.peaks.len().max(1) as f64,
            disturbances: tally.recoveries.len(),
            recovery_median: percentile(&tally.recoveries, 0.5),
            recovery_p95: percentile(&tally.recoveries, 0.95),
            load_moved_percent: 100.0 * tally.load_moved / hours,
            space_moved_percent: 100.0 * tally.space_moved / hours,
            leases_moved: tally.leases_moved as f64 / hours,
            ranges_average: average(&tally.ranges),
            ranges_peak: percentile(&tally.ranges, 1.0),
            most_ranges: tally.most_ranges,
            moved_again_percent: 100.0 * again,
        }
    }

    /// A time to recover, if there was anything to recover from.
    fn recovery(&self, seconds: f64) -> String {
        if self.disturbances == 0 { "-".into() } else { format!("{seconds:.0}") }
    }

    fn json(&self) -> Value {
        json!({
            "partitioner": self.partitioner,
            "peak_over_floor_average": rounded(self.peak_average),
            "peak_over_floor_p95": rounded(self.peak_p95),
            "peak_over_floor_max": rounded(self.peak_max),
            "time_under_1_1_percent": rounded(self.even_percent),
            "disturbances": self.disturbances,
            "recovery_seconds_median": rounded(self.recovery_median),
            "recovery_seconds_p95": rounded(self.recovery_p95),
            "load_moved_percent_per_hour": rounded(self.load_moved_percent),
            "key_space_moved_percent_per_hour": rounded(self.space_moved_percent),
            "leases_moved_per_hour": rounded(self.leases_moved),
            "ranges_per_owner_average": rounded(self.ranges_average),
            "ranges_per_owner_max": rounded(self.ranges_peak),
            "most_ranges_of_one_owner": self.most_ranges,
            "load_moved_again_within_10_minutes_percent": rounded(self.moved_again_percent),
        })
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// Prints the rows, as a table or as one line of JSON.
pub(super) fn print(world: &Value, rows: &[Row], json: bool) {
    if json {
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        println!("{}", json!({ "world": "load", "input": world, "rows": rows }));
        return;
    }
    println!("{world}");
    println!(
        "                          peak/floor   time  recover s   moved %/h     leases  ranges/Owner  again"
    );
    println!(
        "partitioner               avg    p95  < 1.1  med    p95  load  space  moved/h     avg    max      %"
    );
    for row in rows {
        println!(
            "{:<22} {:>6.3} {:>6.3} {:>5.1}% {:>4} {:>6} {:>5.1} {:>6.1} {:>8.0} {:>7.1} {:>6.1} {:>6.1}",
            row.partitioner,
            row.peak_average,
            row.peak_p95,
            row.even_percent,
            row.recovery(row.recovery_median),
            row.recovery(row.recovery_p95),
            row.load_moved_percent,
            row.space_moved_percent,
            row.leases_moved,
            row.ranges_average,
            row.ranges_peak,
            row.moved_again_percent,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_per_hour_and_in_percent() {
        let tally = Tally {
            peaks: vec![1.0, 1.05, 1.2, 1.3],
            recoveries: vec![10.0, 20.0, 30.0],
            seconds: 1_800.0,
            load_moved: 0.2,
            space_moved: 0.1,
            leases_moved: 7,
            load_moved_again: 0.05,
            ranges: vec![10.0, 20.0],
            most_ranges: 33,
        };
        let row = Row::new("some".into(), &tally);
        assert_eq!((row.even_percent, row.recovery_median, row.recovery_p95), (50.0, 20.0, 30.0));
        assert_eq!((row.leases_moved, row.ranges_average, row.ranges_peak), (14.0, 15.0, 20.0));
        assert!(
            (row.load_moved_percent - 40.0).abs() < 1e-9 && (row.space_moved_percent - 20.0).abs() < 1e-9
        );
        assert!((row.moved_again_percent - 25.0).abs() < 1e-9);
        assert_eq!((row.peak_p95, row.peak_max), (1.3, 1.3));
        assert_eq!(row.recovery(row.recovery_p95), "30");
        assert_eq!(Row::new("none".into(), &Tally::default()).recovery(0.0), "-");
        assert_eq!(row.json()["most_ranges_of_one_owner"], 33);
    }
}
