//! Stacks of `perf script`, equal ones counted together.

use std::{collections::BTreeMap, fmt::Write as _};

/// Counts of stacks, from the program's name to the innermost function.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Folded(BTreeMap<Vec<String>, u64>);

impl Folded {
    /// Reads samples: a line with the program's name, a line for each function from the innermost on, and an empty line.
    pub(super) fn read(text: &str) -> Self {
        let mut folded = Self::default();
        let mut stack: Vec<String> = Vec::new();
        for line in text.lines().chain([""]) {
            if line.trim().is_empty() {
                if stack.len() > 1 {
                    stack[1..].reverse();
                    *folded.0.entry(std::mem::take(&mut stack)).or_default() += 1;
                }
                stack.clear();
            } else if line.starts_with(char::is_whitespace) {
                if !stack.is_empty() {
                    stack.push(function(line));
                }
            } else {
                stack = vec![line.trim().to_owned()];
            }
        }
        folded
    }

    /// Returns the number of samples.
    pub(super) fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns the stacks with their counts, in order, so that equal beginnings lie together.
    pub(super) fn stacks(&self) -> impl Iterator<Item = (&[String], u64)> {
        self.0.iter().map(|(stack, count)| (stack.as_slice(), *count))
    }

    /// `program;outer;inner 12`
    pub(super) fn text(&self) -> String {
        let line = |(stack, count): (&[String], u64)| format!("{} {count}\n", stack.join(";"));
        self.stacks().map(line).collect()
    }

    /// The innermost functions with the most samples.
    pub(super) fn summary(&self) -> String {
        let mut inner: BTreeMap<&str, u64> = BTreeMap::new();
        for (stack, count) in self.stacks() {
            *inner.entry(stack.last().map_or("", String::as_str)).or_default() += count;
        }
        let mut rows: Vec<_> = inner.into_iter().collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let all = self.count();
        let mut out = format!("{all} samples; functions with the most of their own:\n");
        for (name, count) in rows.into_iter().take(10) {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{:>6.1} % {name}", count as f64 / all.max(1) as f64 * 100.0);
        }
        out
    }
}

/// The name in `7f12ab34 name`, without the hash of a Rust symbol and without what would part a folded line.
fn function(line: &str) -> String {
    let line = line.trim();
    let name = line.split_once(char::is_whitespace).map_or("[unknown]", |(_, name)| name.trim());
    let is_hash = |tail: &str| tail.len() == 16 && tail.bytes().all(|b| b.is_ascii_hexdigit());
    let name = name.rsplit_once("::h").filter(|(_, tail)| is_hash(tail)).map_or(name, |(name, _)| name);
    name.replace(';', ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "postrider \n\t    ffff81 fsync_impl\n\t    7f01 spool::commit::h0123456789abcdef\n\t 55 main\n\n\
                        postrider \n\t    ffff81 fsync_impl\n\t    7f09 spool::commit::h0123456789abcdef\n\t 55 main\n\n\
                        sh \n\t 77 [unknown]\n\nempty \n\n";

    #[test]
    fn equal_stacks_are_counted_together() {
        let folded = Folded::read(TEXT);
        assert_eq!(folded.text(), "postrider;main;spool::commit;fsync_impl 2\nsh;[unknown] 1\n");
        assert_eq!(folded.count(), 3);
        assert!(folded.summary().contains("  66.7 % fsync_impl\n"), "{}", folded.summary());
        assert_eq!(Folded::read("").count(), 0);
    }
}
