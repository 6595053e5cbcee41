//! Poisson counts: what an Owner counts of a load whose rate is known.

use crate::world::rng::{Rng, mix};

/// From this mean on a rounded normal deviate stands for the count: its distribution differs by less than reports can show.
const NORMAL_FROM: f64 = 50.0;

/// A number of events whose mean is `mean`.
pub(super) fn poisson(rng: &mut Rng, mean: f64) -> u64 {
    if mean <= 0.0 {
        0
    } else if mean < NORMAL_FROM {
        by_products(rng, mean)
    } else {
        (mean + mean.sqrt() * normal(rng)).round().max(0.0) as u64
    }
}

/// The same for the same seed, place and time, whoever asks: partitioners that look at the same keys see the same counts.
pub(super) fn poisson_at(seed: u64, place: u64, time: u64, mean: f64) -> u64 {
    let mut rng = Rng::new(mix(seed ^ mix(place ^ mix(time))));
    poisson(&mut rng, mean)
}

/// Counts uniform deviates until their product is below e^-mean (Knuth).
fn by_products(rng: &mut Rng, mean: f64) -> u64 {
    let limit = (-mean).exp();
    let (mut product, mut count) = (uniform(rng), 0);
    while product > limit {
        product *= uniform(rng);
        count += 1;
    }
    count
}

/// A standard normal deviate (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * uniform(rng).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}

/// A number above zero and at most one.
fn uniform(rng: &mut Rng) -> f64 {
    ((rng.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_variance_are_those_of_poisson() {
        for mean in [0.3, 5.0, 49.0, 51.0, 4_000.0] {
            let mut rng = Rng::new(3);
            let draws: Vec<f64> = (0..20_000).map(|_| poisson(&mut rng, mean) as f64).collect();
            let average = draws.iter().sum::<f64>() / draws.len() as f64;
            let variance =
                draws.iter().map(|draw| (draw - average).powi(2)).sum::<f64>() / draws.len() as f64;
            assert!((average / mean - 1.0).abs() < 0.03, "{mean}: {average}");
            assert!((variance / mean - 1.0).abs() < 0.06, "{mean}: {variance}");
        }
    }

    #[test]
    fn nothing_is_counted_without_load() {
        assert_eq!(poisson(&mut Rng::new(1), 0.0), 0);
    }

    #[test]
    fn a_count_depends_on_its_place_and_time_alone() {
        assert_eq!(poisson_at(1, 2, 3, 900.0), poisson_at(1, 2, 3, 900.0));
        let others = [poisson_at(2, 2, 3, 900.0), poisson_at(1, 3, 3, 900.0), poisson_at(1, 2, 4, 900.0)];
        assert!(others.iter().any(|other| *other != poisson_at(1, 2, 3, 900.0)));
    }
}
