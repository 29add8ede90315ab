//! Statistics of the repeats of one measurement.

/// Median, smallest and largest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median; the mean of the middle two of an even number.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// Of some values; none of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), min, max })
    }

    /// `1234 (1100–1300)`.
    pub fn text(&self) -> String {
        format!("{} ({}–{})", shown(self.median), shown(self.min), shown(self.max))
    }

    /// `1234 (1100–1300, N=3)`.
    pub fn text_of(&self, count: usize) -> String {
        format!("{} ({}–{}, N={count})", shown(self.median), shown(self.min), shown(self.max))
    }
}

/// Three digits are more than such figures bear.
pub fn shown(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        let spread = Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([]), None);
    }
}
