//! Figures out of what postlab's tools print.

use serde::Deserialize;
use serde_json::Value;

/// A figure in the output of a command: a row of a table and a column, a line of CSV, the number before some words, or a case
/// of JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Series {
    /// Index of the command in its step.
    pub(super) command: usize,
    /// Beginning of the row in the output.
    pub(super) row: Option<String>,
    /// Of the row, or of the CSV line: medians are counted, or fields.
    column: usize,
    /// A word of the row, instead of a median; without a row, of the whole output.
    word: Option<usize>,
    /// Beginning of the CSV line.
    csv: Option<String>,
    /// What stands behind the number.
    before: Option<String>,
    /// The server of `postlab relay --json`; its figure and its sessions.
    server: Option<String>,
    /// None: whatever the command has.
    sessions: Option<u64>,
    figure: String,
}

impl Series {
    /// Reads the figure from the output; `None` if it is not there.
    pub(super) fn read(&self, text: &str) -> Option<f64> {
        if let Some(server) = &self.server {
            let case = self.case(text, server)?;
            return match self.figure.as_str() {
                "count" => case.pointer("/phases_us/message/count")?.as_f64(),
                figure => case.pointer(&format!("/figures/{figure}/median"))?.as_f64(),
            };
        }
        if let Some(begin) = &self.csv {
            return csv(text, begin, self.column);
        }
        if let Some(words) = &self.before {
            return before(text, words);
        }
        let words: Vec<&str> = self.row.iter().flat_map(|row| row.split_whitespace()).collect();
        match self.word {
            Some(word) => row(text, &words)?.split_whitespace().nth(word)?.parse().ok(),
            None => medians(row(text, &words)?).get(self.column).copied(),
        }
    }

    /// Remarks that came with the figure: artefacts which the tool itself named.
    pub(super) fn remarks(&self, text: &str) -> Vec<String> {
        if let Some(server) = &self.server {
            let case = self.case(text, server);
            let remarks = case.as_ref().and_then(|case| case.get("remarks")?.as_array());
            let text = |remark: &Value| remark.as_str().map(str::to_owned);
            return remarks.into_iter().flatten().filter_map(text).collect();
        }
        let row: Vec<&str> = self.row.iter().flat_map(|row| row.split_whitespace()).collect();
        let mut last = "";
        let mut remarks = Vec::new();
        for line in text.lines() {
            // That stands below its row, and is no reason to doubt another.
            let is_below = OF_A_ROW.iter().any(|mark| line.starts_with(mark));
            let is_anothers = is_below && !begins_with(last, &row);
            if !is_anothers && MARKS.iter().any(|mark| line.contains(mark)) {
                remarks.push(line.trim().to_owned());
            }
            if !is_below {
                last = line;
            }
        }
        remarks
    }

    fn case(&self, text: &str, server: &str) -> Option<Value> {
        let all: Value = serde_json::from_str(text.get(text.find('{')?..)?).ok()?;
        let is_it = |case: &&Value| {
            case["server"] == server && self.sessions.is_none_or(|sessions| case["sessions"] == sessions)
        };
        all["cases"].as_array()?.iter().find(is_it).cloned()
    }
}

/// Words of the tools that take trust from a figure. `BUSY MACHINE` is not among them: in text it tells of the load average, which
/// earlier rounds raise; `reproduce` looks itself before each round.
const MARKS: [&str; 12] = [
    "too short",
    "TOO SMALL",
    "CACHED",
    "CLIENT-BOUND",
    "SINK-BOUND",
    "DELAYED ACK",
    "PAUSE: ",
    "CLOCK-LIMITED",
    "INCOMPLETE",
    "REPEATS DISAGREE",
    "HUNG SESSIONS",
    "messages failed",
];

/// Begins of remarks on the row above them.
const OF_A_ROW: [&str; 3] = ["too short: the shortest round", "too short to trust", "REPEATS DISAGREE"];

/// Does a line begin with these words? All lines begin with none.
fn begins_with(line: &str, words: &[&str]) -> bool {
    let mut row = line.split_whitespace();
    words.iter().all(|word| row.next() == Some(word))
}

/// The first line that begins with these words.
fn row<'t>(text: &'t str, words: &[&str]) -> Option<&'t str> {
    text.lines().find(|line| begins_with(line, words))
}

/// Medians of a row: each number with its spread in brackets behind it.
fn medians(line: &str) -> Vec<f64> {
    let tokens: Vec<&str> = line.split_whitespace().collect();
    let figure = |pair: &[&str]| if pair[1].starts_with('(') { pair[0].parse().ok() } else { None };
    tokens.windows(2).filter_map(figure).collect()
}

/// The sum of a column of the CSV lines that begin so: Postal prints a line each minute.
fn csv(text: &str, begin: &str, column: usize) -> Option<f64> {
    let lines = text.lines().filter(|line| line.starts_with(begin));
    // A head has words in its columns.
    let numbers = lines.filter_map(|line| line.split(',').nth(column)?.parse::<f64>().ok());
    numbers.reduce(|sum, number| sum + number)
}

/// Returns the number in front of these words.
fn before(text: &str, words: &str) -> Option<f64> {
    let (left, _) = text.split_once(words)?;
    left.split_whitespace().last()?.trim_start_matches('(').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: &str, text: &str) -> Option<f64> {
        toml::from_str::<Series>(spec).unwrap().read(text)
    }

    #[test]
    fn figures_are_found_where_the_tools_put_them() {
        let text = "senders dirs\n      1     1   300   80.0 (61.2–98.9, N=2)  12 (1–2, N=2)\n";
        assert_eq!(read("row = \"1 1\"\ncolumn = 1", text), Some(12.0));
        assert_eq!(read("row = \"1 1\"\nword = 2", text), Some(300.0));
        assert_eq!(read("row = \"9\"", text), None);
        assert_eq!(read("csv = \"command,fsync,\"\ncolumn = 4", "a,b\ncommand,fsync,3,9,3.5,0\n"), Some(3.5));
        assert_eq!(read("csv = \"\"\ncolumn = 1", "time,messages\n13:28,4826,0\n"), Some(4826.0));
        assert_eq!(read("csv = \"\"\ncolumn = 1", "time,messages\n13:28,4826,0\n13:29,4,0\n"), Some(4830.0));
        assert_eq!(read("before = \" times C=1\"", "24 octets: C=100 is 48.8 times C=1\n"), Some(48.8));
        assert_eq!(read("word = 2", "1 2 3380.5 7\n"), Some(3380.5));
    }

    #[test]
    fn a_case_of_json_has_its_figures_and_remarks() {
        let text = "4 runs\n{\"cases\": [{\"server\": \"ceiling\", \"sessions\": 10, \"figures\": {\"drained\": {\"median\": 7.5}},\
                    \"phases_us\": {\"message\": {\"count\": 9}}, \"remarks\": [\"too short to trust\"]}]}";
        let spec = |figure: &str| format!("server = \"ceiling\"\nsessions = 10\nfigure = \"{figure}\"");
        assert_eq!(read(&spec("drained"), text), Some(7.5));
        assert_eq!(read(&spec("count"), text), Some(9.0));
        let series: Series = toml::from_str(&spec("drained")).unwrap();
        assert_eq!(series.remarks(text), ["too short to trust"]);
    }

    #[test]
    fn remarks_of_text_are_found_by_their_words() {
        let series = Series::default();
        assert_eq!(series.remarks("a\n TOO SMALL, CACHED: x\nb\n"), ["TOO SMALL, CACHED: x"]);
        let series: Series = toml::from_str("row = \"100 20\"").unwrap();
        let short = "too short: the shortest round took 0.004 s";
        assert!(series.remarks(&format!(" 100 16 9\n{short}\n")).is_empty());
        assert_eq!(series.remarks(&format!(" 100 20 9\n{short}\n")), [short]);
        // Two remarks on one row, and then that of another one.
        let two = format!(" 100 20 9\ntoo short to trust\n{short}\n 100 16 9\nREPEATS DISAGREE: 1 to 9\n");
        assert_eq!(series.remarks(&two), ["too short to trust", short]);
    }
}
