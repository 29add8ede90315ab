//! Figures out of what postlab's tools print.

/// Medians of a row: each number with its spread in brackets behind it. The row is the first that begins with
/// these words.
pub(super) fn medians(text: &str, words: &[&str]) -> Vec<f64> {
    let begins = |line: &&str| {
        let mut row = line.split_whitespace();
        words.iter().all(|word| row.next() == Some(word))
    };
    let Some(line) = text.lines().find(begins) else { return Vec::new() };
    let tokens: Vec<&str> = line.split_whitespace().collect();
    let figure = |pair: &[&str]| if pair[1].starts_with('(') { pair[0].parse().ok() } else { None };
    tokens.windows(2).filter_map(figure).collect()
}

/// One of them.
pub(super) fn median(text: &str, words: &[&str], column: usize) -> Option<f64> {
    medians(text, words).get(column).copied()
}

/// One row's median by another's.
pub(super) fn ratio(text: &str, above: &[&str], below: &[&str], column: usize) -> Option<f64> {
    let below = median(text, below, column).filter(|n| *n > 0.0)?;
    Some(median(text, above, column)? / below)
}

/// A column of the CSV line that begins so.
pub(super) fn csv(text: &str, begin: &str, column: usize) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(begin))?;
    line.split(',').nth(column)?.parse().ok()
}

/// The number that stands before these words.
pub(super) fn before(text: &str, words: &str) -> Option<f64> {
    let (left, _) = text.split_once(words)?;
    left.split_whitespace().last()?.trim_start_matches('(').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_where_the_tools_put_them() {
        let text = "senders dirs\n      1     1   300   80.0 (61.2–98.9, N=2)  12 (1–2, N=2)\n     10     1   300   8.0 (6–9, N=2)  24 (1–2, N=2)\n";
        assert_eq!(medians(text, &["1", "1"]), [80.0, 12.0]);
        assert_eq!(ratio(text, &["10", "1"], &["1", "1"], 1), Some(2.0));
        assert_eq!(median(text, &["9"], 0), None);
        assert_eq!(csv("a,b\ncommand,fsync,3,9,3.5,0\n", "command,fsync,", 4), Some(3.5));
        assert_eq!(before("24 octets: C=100 is 48.8 times C=1\n", " times C=1"), Some(48.8));
    }
}
