//! Differences among queue directories and senders, as S0 compared them.

use super::{
    create::{Cell, POINT, Run},
    daemon::Backend,
};
use crate::stat::{Confidence, Sample, Verdict};

/// Confidence level of S0 in percent.
const SURE: &str = "99.5";

/// S0's comparisons: more senders to one, more directories to one and to the step before, directories to log. Empty where
/// there are no two cells to compare.
pub(super) fn text(cells: &[Cell], runs: &[Run]) -> Result<String, String> {
    let confidence = Confidence::parse(SURE)?;
    let sample = |cell: &Cell| {
        let points = runs.iter().filter(|run| run.cell == *cell).flat_map(|run| run.points_us.clone());
        Sample::new(&cell.text(), points.collect()).ok()
    };
    let mut out = String::new();
    for (i, cell) in cells.iter().enumerate() {
        let Some(mine) = sample(cell) else { continue };
        for reference in references(cells, i) {
            let Some(theirs) = sample(reference) else { continue };
            let verdict = Verdict::new(&mine, &theirs, confidence);
            let (n, of) = (mine.count(), theirs.count());
            let said = if verdict.is_proven() {
                let share = 100.0 / verdict.base;
                format!("{:+.2} % ± {:.2} %", verdict.difference * share, verdict.margin * share)
            } else {
                "no difference proven".to_owned()
            };
            out += &format!("{:<36} to {:<36} {said} (N={n}, {of})\n", mine.name, theirs.name);
        }
    }
    let has_pairs = (0..cells.len()).any(|i| references(cells, i).next().is_some());
    Ok(match (has_pairs, out.is_empty()) {
        (_, false) => {
            format!("\nA sender's time for a message, by points of {POINT}; Student's t at {SURE} %:\n{out}")
        }
        (true, true) => format!(
            "\nA sender's time for a message is not compared: each case needs three points of {POINT} messages, all rounds \
             together; use more of -m or --rounds\n"
        ),
        (false, true) => out,
    })
}

/// Returns the cells that this one is compared with, as S0 does.
fn references(cells: &[Cell], i: usize) -> impl Iterator<Item = &Cell> {
    let cell = cells[i];
    let before = cells[..i]
        .iter()
        .filter(move |c| c.spool.backend == cell.spool.backend && c.senders == cell.senders)
        .map(|c| c.spool.directories)
        .max();
    cells.iter().enumerate().filter(move |(j, _)| *j != i).map(|(_, other)| other).filter(move |other| {
        let same = other.spool == cell.spool;
        let fewer_senders = same && other.senders == 1;
        let fewer_directories = other.spool.backend == cell.spool.backend
            && other.senders == cell.senders
            && (before == Some(other.spool.directories) || before.is_some() && other.spool.directories == 1);
        let log = other.spool.backend == Backend::Log
            && cell.spool.backend == Backend::QueueDirs
            && other.senders == cell.senders
            && cell.spool.directories == 1;
        fewer_senders || fewer_directories || log
    })
}

impl Cell {
    /// Returns the name of the cell for people.
    pub(super) fn text(self) -> String {
        match self.spool.backend {
            Backend::Log => format!("log, {} senders", self.senders),
            Backend::QueueDirs => {
                format!("{} directories, {} senders", self.spool.directories, self.senders)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::daemon::Spool, *};

    #[test]
    fn without_points_there_is_a_reason_and_no_heading() {
        let cells = [1, 10]
            .map(|senders| Cell { spool: Spool { backend: Backend::QueueDirs, directories: 1 }, senders });
        let runs = |points: &[f64]| {
            let run = |cell: &Cell| {
                let mut run = serde_json::json!({ "round": 1, "messages": 300, "rate": 1.0, "latency_us": 1.0,
                    "p99_us": 1.0, "commits_per_message": 1.0, "flushes_per_message": null, "cpu_us_per_message": 1.0,
                    "points_us": points });
                let cell = serde_json::to_value(cell).unwrap();
                run.as_object_mut().unwrap().extend(cell.as_object().unwrap().clone());
                serde_json::from_value(run).unwrap()
            };
            cells.iter().map(run).collect::<Vec<Run>>()
        };
        let told = text(&cells, &runs(&[])).unwrap();
        assert!(told.contains("is not compared: each case needs three points of 500 messages"), "{told}");
        assert!(!told.contains("Student's t"), "{told}");
        let told = text(&cells, &runs(&[1.0, 2.0, 3.0])).unwrap();
        assert!(told.contains("Student's t at 99.5 %:\n1 directories, 10 senders "), "{told}");
        assert_eq!(text(&cells[..1], &runs(&[])[..1]).unwrap(), "");
    }

    #[test]
    fn comparisons_are_those_of_the_seed() {
        let spool = |directories| Spool { backend: Backend::QueueDirs, directories };
        let mut cells = vec![Cell { spool: Spool { backend: Backend::Log, directories: 1 }, senders: 10 }];
        for directories in [1, 5, 10] {
            cells.extend([1, 10].map(|senders| Cell { spool: spool(directories), senders }));
        }
        let to = |i: usize| references(&cells, i).map(|c| c.text()).collect::<Vec<_>>();
        assert_eq!(to(2), ["log, 10 senders", "1 directories, 1 senders"]);
        assert_eq!(to(1), [""; 0]);
        assert_eq!(
            to(6),
            ["1 directories, 10 senders", "5 directories, 10 senders", "10 directories, 1 senders"]
        );
    }
}
