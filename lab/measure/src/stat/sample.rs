//! One set of numbers, and what describes it.

use std::io::{BufRead, BufReader, Read};

/// Characters of what is not a number that an error shows.
const SHOWN_MAX: usize = 40;

/// Numbers in rising order, at least three of them: fewer say nothing of their spread.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The name of the file, or of the measurement.
    pub name: String,
    points: Vec<f64>,
    /// Added up in the order they came, which decides the last digit.
    sum: f64,
}

/// The column of a file that holds the numbers, and the delimiters.
#[derive(Debug, Clone)]
pub struct Columns {
    /// From 1.
    pub column: usize,
    pub delimiters: String,
}

impl Sample {
    /// From numbers in any order.
    ///
    /// # Errors
    /// Fewer than three, or one that is none.
    pub fn new(name: &str, mut points: Vec<f64>) -> Result<Self, String> {
        if points.len() < 3 {
            return Err(format!("{name} must contain at least 3 data points"));
        }
        if points.iter().any(|p| !p.is_finite()) {
            return Err(format!("{name} contains a number that is not finite"));
        }
        let sum = points.iter().sum();
        points.sort_by(f64::total_cmp);
        Ok(Self { name: name.to_owned(), points, sum })
    }

    /// Reads a column; `#` begins a comment, lines without the column are passed over.
    ///
    /// # Errors
    /// The file cannot be read, holds something else, or too little.
    pub fn read(name: &str, file: impl Read, columns: &Columns) -> Result<Self, String> {
        let mut points = Vec::new();
        for (i, line) in BufReader::new(file).lines().enumerate() {
            let line = line.map_err(|e| format!("read {name}: {e}"))?;
            let text = line.split('#').next().unwrap_or_default();
            let words = text.split(|c| columns.delimiters.contains(c)).filter(|w| !w.is_empty());
            let Some(word) = words.map(str::trim).nth(columns.column - 1).filter(|w| !w.is_empty()) else {
                continue;
            };
            // A file of another kind may have a single line.
            let shown = || word.chars().take(SHOWN_MAX).collect::<String>();
            let point =
                word.parse().map_err(|_| format!("not a number on line {} in {name}: {}", i + 1, shown()))?;
            points.push(point);
        }
        Self::new(name, points)
    }

    /// In rising order.
    pub fn points(&self) -> &[f64] {
        &self.points
    }

    /// Returns the number of points.
    pub fn count(&self) -> usize {
        self.points.len()
    }

    /// Returns the number of points, for reckoning.
    pub fn n(&self) -> f64 {
        self.points.len() as f64
    }

    /// Returns the smallest value.
    pub fn min(&self) -> f64 {
        self.points[0]
    }

    /// Returns the largest value.
    pub fn max(&self) -> f64 {
        self.points[self.points.len() - 1]
    }

    /// The one in the middle; of an even number the upper of the two, as ministat has it.
    pub fn median(&self) -> f64 {
        self.points[self.points.len() / 2]
    }

    /// Returns the arithmetic mean.
    pub fn mean(&self) -> f64 {
        self.sum / self.n()
    }

    /// The variance of the population they were drawn from.
    pub fn variance(&self) -> f64 {
        let mean = self.mean();
        self.points.iter().map(|p| (p - mean).powi(2)).sum::<f64>() / (self.n() - 1.0)
    }

    /// Returns the standard deviation of the sample (n - 1).
    pub fn deviation(&self) -> f64 {
        self.variance().sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, column: usize, delimiters: &str) -> Result<Vec<f64>, String> {
        let columns = Columns { column, delimiters: delimiters.into() };
        Sample::read("x", text.as_bytes(), &columns).map(|s| s.points)
    }

    #[test]
    fn a_column_is_read_and_comments_are_not() {
        assert_eq!(read("# c\n3 x\n1\t7 # 9\n\n2\n", 1, " \t").unwrap(), [1.0, 2.0, 3.0]);
        assert_eq!(read("a,3\nb,2\nc,1e2\nd\n", 2, ",").unwrap(), [2.0, 3.0, 100.0]);
    }

    #[test]
    fn what_is_no_number_is_told_with_its_line() {
        assert_eq!(read("1\ntwo\n3", 1, " ").unwrap_err(), "not a number on line 2 in x: two");
        let long = read(&"x".repeat(1000), 1, " ").unwrap_err();
        assert_eq!(long, format!("not a number on line 1 in x: {}", "x".repeat(SHOWN_MAX)));
        assert_eq!(read("1\n2\n", 1, " ").unwrap_err(), "x must contain at least 3 data points");
        assert_eq!(read("1\n2\nNaN\n", 1, " ").unwrap_err(), "x contains a number that is not finite");
    }

    #[test]
    fn the_description_is_that_of_the_textbook() {
        let s = Sample::new("x", vec![4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((s.min(), s.max(), s.mean(), s.median()), (1.0, 4.0, 2.5, 3.0));
        assert!((s.variance() - 5.0 / 3.0).abs() < 1e-12);
    }
}
