//! The times at which messages are due in an open loop: at a constant rate, at random, or at a rate that grows.

use clap::ValueEnum;
use std::{sync::Mutex, time::Duration};

/// The shape of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// Equal times between messages
    Constant,
    /// Exponentially distributed times between messages, as of many independent senders
    Poisson,
    /// A rate that grows evenly from nothing to the rate, which is reached at the end
    Ramp,
}

/// Due times of messages, by their number.
#[derive(Debug)]
pub(crate) struct Arrivals {
    shape: Shape,
    per_second: f64,
    /// A ramp reaches its rate after so many seconds.
    ramp_seconds: f64,
    /// Random arrivals: the time of the last one, in seconds.
    last_seconds: Mutex<f64>,
}

impl Arrivals {
    /// Messages at `per_second`. A ramp lasts for `duration`, and without one until `count` messages are due.
    pub(crate) fn new(shape: Shape, per_second: f64, count: u64, duration: Option<Duration>) -> Self {
        // The area of the triangle is the number of messages.
        let ramp_seconds = duration.map_or(2.0 * count as f64 / per_second, |time| time.as_secs_f64());
        Self { shape, per_second, ramp_seconds, last_seconds: Mutex::new(0.0) }
    }

    /// Returns the time from the begin to the message of that number; random times are in order of the calls.
    pub(crate) fn due(&self, number: u64) -> Duration {
        Duration::try_from_secs_f64(match self.shape {
            Shape::Constant => number as f64 / self.per_second,
            Shape::Ramp => (2.0 * self.ramp_seconds * number as f64 / self.per_second).sqrt(),
            Shape::Poisson => self.next_random(),
        })
        .unwrap_or(Duration::MAX)
    }

    fn next_random(&self) -> f64 {
        // 1 - u is never zero.
        let gap_seconds = -(1.0 - fastrand::f64()).ln() / self.per_second;
        let mut last = self.last_seconds.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *last += gap_seconds;
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(arrivals: &Arrivals, count: u64) -> Vec<f64> {
        (0..count).map(|number| arrivals.due(number).as_secs_f64()).collect()
    }

    #[test]
    fn a_ramp_has_a_quarter_of_its_messages_in_its_first_half() {
        let ramp = Arrivals::new(Shape::Ramp, 100.0, u64::MAX, Some(Duration::from_secs(10)));
        let due = seconds(&ramp, 500);
        assert_eq!(due.iter().filter(|at| **at < 5.0).count(), 125);
        assert!(due[499] < 10.0 && ramp.due(500) == Duration::from_secs(10), "{}", due[499]);
        // The last messages come at the full rate.
        assert!((due[499] - due[498] - 0.01).abs() < 0.0002, "{}", due[499] - due[498]);
        let counted = Arrivals::new(Shape::Ramp, 100.0, 500, None);
        assert_eq!(counted.due(500), Duration::from_secs(10));
    }

    #[test]
    fn random_gaps_have_the_mean_and_the_spread_of_an_exponential_distribution() {
        let count = 20_000;
        let due = seconds(&Arrivals::new(Shape::Poisson, 1000.0, count, None), count);
        let gaps: Vec<f64> = due.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        // Seven standard errors of the mean and of the deviation.
        assert!((mean * 1000.0 - 1.0).abs() < 0.05, "{mean}");
        assert!((deviation / mean - 1.0).abs() < 0.07, "{deviation}");
    }
}
