//! Tests that ask less of the samples than Student's: Welch's takes unequal variances, Mann and Whitney's
//! any distribution, and the bootstrap none at all.

use super::sample::Sample;
use statrs::distribution::{ContinuousCDF as _, Normal, StudentsT};

/// Welch's t: is it the same mean, where the spreads differ?
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Welch {
    pub t: f64,
    pub degrees: f64,
    /// Two-sided p-value.
    pub p: f64,
}

/// None where neither sample has any spread: then t means nothing.
pub(super) fn welch(sample: &Sample, reference: &Sample) -> Option<Welch> {
    let (a, b) = (sample.variance() / sample.n(), reference.variance() / reference.n());
    let error = (a + b).sqrt();
    let t = (sample.mean() - reference.mean()) / error;
    // Welch and Satterthwaite's.
    let degrees = (a + b).powi(2) / (a * a / (sample.n() - 1.0) + b * b / (reference.n() - 1.0));
    let student = StudentsT::new(0.0, 1.0, degrees).ok().filter(|_| t.is_finite())?;
    Some(Welch { t, degrees, p: 2.0 * student.sf(t.abs()) })
}

/// Mann and Whitney's U: does one of the two tend to be larger?
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MannWhitney {
    /// Pairs in which the sample is larger; a tie is half a pair.
    pub u: f64,
    /// Two-sided p-value.
    pub p: f64,
    /// Counted out, not approximated.
    pub is_exact: bool,
}

/// Small samples without ties are counted out; others take the normal approximation, corrected for ties
/// and for steps.
pub fn mann_whitney(sample: &Sample, reference: &Sample) -> MannWhitney {
    let (n, m) = (sample.count(), reference.count());
    let (u, ties) = u_and_ties(sample, reference);
    if ties == 0.0 && n * m <= EXACT_PAIRS {
        return MannWhitney { u, p: exact_p(u as usize, n, m), is_exact: true };
    }
    let (nf, mf) = (n as f64, m as f64);
    let all = nf + mf;
    let variance = nf * mf / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    let distance = ((u - nf * mf / 2.0).abs() - 0.5).max(0.0);
    let p = if variance > 0.0 { 2.0 * Normal::standard().sf(distance / variance.sqrt()) } else { 1.0 };
    MannWhitney { u, p: p.min(1.0), is_exact: false }
}

const EXACT_PAIRS: usize = 2500;

/// U, and the sum of t³ − t over the groups of ties, in one walk over both sorted samples.
fn u_and_ties(sample: &Sample, reference: &Sample) -> (f64, f64) {
    let (a, b) = (sample.points(), reference.points());
    let (mut i, mut j, mut u, mut ties) = (0, 0, 0.0, 0.0);
    while i < a.len() || j < b.len() {
        let value = match (a.get(i), b.get(j)) {
            (Some(x), Some(y)) => x.min(*y),
            (Some(x), None) => *x,
            (None, y) => y.copied().unwrap_or_default(),
        };
        let equal = |points: &[f64], from: usize| points[from..].iter().take_while(|p| **p == value).count();
        let (in_a, in_b) = (equal(a, i), equal(b, j));
        u += in_a as f64 * (j as f64 + in_b as f64 / 2.0);
        let group = (in_a + in_b) as f64;
        ties += group.powi(3) - group;
        (i, j) = (i + in_a, j + in_b);
    }
    (u, ties)
}

/// The share of all orders of n and m numbers whose U is as far from the middle.
fn exact_p(u: usize, n: usize, m: usize) -> f64 {
    // ways[k][x]: orders of k numbers of the sample among those of the reference seen so far with U = x.
    let mut ways = vec![vec![0.0f64; n * m + 1]; n + 1];
    ways[0][0] = 1.0;
    for below in 0..=m {
        // One more of the sample may stand above `below` of the reference, any number of times.
        for k in 1..=n {
            for x in below..=n * m {
                ways[k][x] += ways[k - 1][x - below];
            }
        }
    }
    let total: f64 = ways[n].iter().sum();
    let far = u.min(n * m - u);
    let tail: f64 = ways[n][..=far].iter().sum();
    (2.0 * tail / total).min(1.0)
}

/// An interval for the difference of two medians or means, from drawing again out of the samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// Zero is not in it.
    pub(super) fn is_difference(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Draws; enough that the interval's ends do not move in the third digit.
const DRAWS: usize = 10_000;
/// A fixed seed, so that equal samples have equal intervals.
const SEED: u64 = 42;

/// The interval that leaves `alpha` out, for the difference of means.
pub(super) fn bootstrap(sample: &Sample, reference: &Sample, alpha: f64) -> Interval {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut mean = |s: &Sample| {
        let points = s.points();
        (0..points.len()).map(|_| points[random.usize(..points.len())]).sum::<f64>() / s.n()
    };
    let mut differences: Vec<f64> = (0..DRAWS).map(|_| mean(sample) - mean(reference)).collect();
    differences.sort_by(f64::total_cmp);
    let at = |share: f64| differences[((DRAWS - 1) as f64 * share).round() as usize];
    Interval { low: at(alpha / 2.0), high: at(1.0 - alpha / 2.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(points: &[f64]) -> Sample {
        Sample::new("x", points.to_vec()).unwrap()
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-4 * b.abs().max(1.0)
    }

    #[test]
    fn welch_agrees_with_the_formula_integrated_by_another_program() {
        let w = welch(&sample(&[2.1, 3.4, 1.9, 5.5, 4.1]), &sample(&[6.2, 5.9, 7.7, 8.1])).unwrap();
        assert!(near(w.t, -4.16254) && near(w.degrees, 6.97799), "{w:?}");
        assert!(near(w.p * 1000.0, 4.2577), "{w:?}");
        assert_eq!(welch(&sample(&[1.0; 3]), &sample(&[2.0; 3])), None);
    }

    #[test]
    fn counting_out_three_and_three_gives_twentieths() {
        // There are 20 orders; U of 0 is one of them at either end.
        let u = mann_whitney(&sample(&[4.0, 5.0, 6.0]), &sample(&[1.0, 2.0, 3.0]));
        assert_eq!((u.u, u.is_exact), (9.0, true));
        assert!(near(u.p, 0.1));
        let middle = mann_whitney(&sample(&[1.0, 4.0, 5.0]), &sample(&[2.0, 3.0, 6.0]));
        assert!((middle.u - 4.0).abs() < 1e-9 && near(middle.p, 1.0), "{middle:?}");
    }

    #[test]
    fn the_approximation_meets_the_count_where_both_are_possible() {
        let a: Vec<f64> = (0..20).map(|i| f64::from(i) * 1.01).collect();
        let b: Vec<f64> = (0..20).map(|i| f64::from(i) * 1.01 + 4.3).collect();
        let exact = mann_whitney(&sample(&a), &sample(&b));
        let mut tied = b.clone();
        tied[0] = a[5];
        let approximate = mann_whitney(&sample(&a), &sample(&tied));
        assert!(exact.is_exact && !approximate.is_exact);
        assert!((exact.p - approximate.p).abs() < 0.02, "{exact:?} {approximate:?}");
    }

    #[test]
    fn equal_samples_are_no_difference_for_anyone() {
        let s = sample(&[5.0, 5.0, 5.0]);
        assert!(near(mann_whitney(&s, &s).p, 1.0));
        assert!(!bootstrap(&s, &s, 0.05).is_difference());
        let far = sample(&[9.0, 9.1, 9.2]);
        assert!(bootstrap(&far, &s, 0.05).is_difference());
        assert_eq!(bootstrap(&far, &s, 0.05), bootstrap(&far, &s, 0.05));
    }
}
