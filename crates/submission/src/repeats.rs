//! Lines of the log that users can cause as often as they like.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Lines about one user in an interval; those beyond them are counted.
const LINES_MAX: u64 = 10;
const INTERVAL: Duration = Duration::from_secs(600);
/// Users whose lines are counted apart.
const USERS_MAX: usize = 4096;

/// Counts the lines about each user.
#[derive(Default)]
pub(crate) struct Repeats(HashMap<u32, Lines>);

struct Lines {
    since: Instant,
    count: u64,
}

impl Repeats {
    /// Returns whether a line about a user is to be written now.
    pub(crate) fn may_say(&mut self, uid: u32, now: Instant) -> bool {
        if self.0.len() >= USERS_MAX && !self.0.contains_key(&uid) {
            return false;
        }
        let lines = self.0.entry(uid).or_insert(Lines { since: now, count: 0 });
        lines.count += 1;
        lines.count <= LINES_MAX
    }

    /// Ends the intervals that are over. Returns the users about whom lines were left out, and how many.
    pub(crate) fn left_out(&mut self, now: Instant) -> Vec<(u32, u64)> {
        let mut left_out = Vec::new();
        self.0.retain(|uid, lines| {
            let is_over = now.duration_since(lines.since) >= INTERVAL;
            if is_over && lines.count > LINES_MAX {
                left_out.push((*uid, lines.count - LINES_MAX));
            }
            !is_over
        });
        left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_about_a_user_are_written_and_the_others_are_counted() {
        let (mut repeats, begun) = (Repeats::default(), Instant::now());
        let mut lines =
            |count: u64, uid, now| (0..count).filter(|_| repeats.may_say(uid, now)).count() as u64;
        assert_eq!(lines(1000, 7, begun), LINES_MAX);
        assert_eq!(lines(3, 8, begun), 3);
        assert_eq!(repeats.left_out(begun + INTERVAL / 2), []);
        assert_eq!(repeats.left_out(begun + INTERVAL), [(7, 1000 - LINES_MAX)]);
        assert!(repeats.may_say(7, begun + INTERVAL));
    }
}
