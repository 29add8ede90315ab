//! The tables of the five texts as printed, and expressions over them such as `S4.fsseq1[*].C=1 / S4.fsseq1[*].C=100`.

use serde::Deserialize;

/// The tables of the five texts, as they are in the repository.
const TEXTS: [&str; 5] = [
    include_str!("../../../../docs/seeds/S0.toml"),
    include_str!("../../../../docs/seeds/S1.toml"),
    include_str!("../../../../docs/seeds/S2.toml"),
    include_str!("../../../../docs/seeds/S3.toml"),
    include_str!("../../../../docs/seeds/S4.toml"),
];

/// The tables that the texts have printed.
#[derive(Debug)]
pub(super) struct Seeds(Vec<Text>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Text {
    document: String,
    pub(super) title: String,
    table: Vec<Table>,
}

/// A table as the text has printed it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    title: String,
    /// Section, slide or page of the text.
    #[serde(rename = "where")]
    place: String,
    unit: String,
    /// Set if the text does not have the figures, and they follow from others.
    #[serde(default)]
    inferred: bool,
    columns: Vec<String>,
    rows: Vec<Vec<toml::Value>>,
}

/// What an expression over the tables has found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figures {
    /// Each with the name of its row.
    pub(super) values: Vec<(String, f64)>,
    /// What the text says where it has no figure: `dearer`.
    pub(super) words: Option<String>,
    /// Section, slide or page.
    pub(super) place: String,
    pub(super) inferred: bool,
}

/// A part of an expression: cells of a column.
#[derive(Debug)]
struct Term<'t> {
    factor: f64,
    table: &'t Table,
    document: &'t str,
    keys: Vec<String>,
    column: usize,
}

/// A row that fits a term.
struct Found {
    /// The cells where the term has a `*`.
    key: Vec<(usize, String)>,
    readings: Vec<f64>,
}

impl Seeds {
    /// Parses the texts that are built into the program.
    pub(super) fn new() -> Result<Self, String> {
        let parse = |text: &&str| -> Result<Text, String> {
            let text: Text = toml::from_str(text).map_err(|e| format!("read the seeds: {e}"))?;
            text.check()?;
            Ok(text)
        };
        TEXTS.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn text(&self, document: &str) -> Option<&Text> {
        self.0.iter().find(|text| text.document == document)
    }

    /// Evaluates `[NUMBER *] TERM [/ TERM | / NUMBER]`, or `NUMBER / TERM`, or several with ` and ` between them; a term is
    /// `S4.table[key;*].column`, and `key*` stands for all cells that begin so. Rows of two terms belong together if they agree in the cells at
    /// `*`. A cell with several readings gives each of them. `"dearer" S2.table` has words instead of a figure.
    pub(super) fn evaluate(&self, expression: &str) -> Result<Figures, String> {
        if expression.starts_with('"') {
            return self.evaluate_one(expression);
        }
        let all: Vec<Figures> = split_outside(expression, " and ")
            .into_iter()
            .map(|one| self.evaluate_one(one))
            .collect::<Result<_, _>>()?;
        let mut places: Vec<String> = Vec::new();
        for figures in &all {
            if !places.contains(&figures.place) {
                places.push(figures.place.clone());
            }
        }
        Ok(Figures {
            place: places.join("; "),
            inferred: all.iter().any(|figures| figures.inferred),
            values: all.into_iter().flat_map(|figures| figures.values).collect(),
            words: None,
        })
    }

    fn evaluate_one(&self, expression: &str) -> Result<Figures, String> {
        let wrong = |why: String| format!("`{expression}`: {why}");
        if let Some((words, table)) = expression.strip_prefix('"').and_then(|rest| rest.split_once("\" ")) {
            let (document, name) = table.split_once('.').ok_or_else(|| wrong("no table".into()))?;
            let place = format!("{document}, {}", self.table(document, name).map_err(wrong)?.place);
            return Ok(Figures { values: Vec::new(), words: Some(words.to_owned()), place, inferred: false });
        }
        let (above, below) = match split_outside(expression, " / ").as_slice() {
            [above] => (*above, None),
            [above, below] => (*above, Some(*below)),
            _ => return Err(wrong("more than one quotient".into())),
        };
        if let (Ok(number), Some(below)) = (above.trim().parse::<f64>(), below) {
            let below = self.term(below).map_err(wrong)?;
            return Ok(
                below.figures(below.values(1.0).into_iter().map(|(name, v)| (name, number / v)).collect())
            );
        }
        let above = self.term(above).map_err(wrong)?;
        let divisor = below.and_then(|below| below.trim().parse::<f64>().ok());
        let mut figures = match (below, divisor) {
            (None, _) => above.figures(above.values(1.0)),
            (Some(_), Some(divisor)) => above.figures(above.values(divisor)),
            (Some(below), None) => {
                let below = self.term(below).map_err(wrong)?;
                let figures = above.figures(quotients(&above, &below));
                Figures { inferred: figures.inferred || below.table.inferred, ..figures }
            }
        };
        figures.values.retain(|(_, value)| value.is_finite());
        if figures.values.is_empty() {
            return Err(wrong("no row has a figure".into()));
        }
        Ok(figures)
    }

    fn term<'t>(&'t self, text: &'t str) -> Result<Term<'t>, String> {
        let (factor, path) = match text.split_once(" * ") {
            Some((factor, path)) => {
                (factor.trim().parse().map_err(|_| format!("`{factor}` is not a number"))?, path.trim())
            }
            None => (1.0, text.trim()),
        };
        let (document, rest) = path.split_once('.').ok_or("a term is S4.table[key].column")?;
        let (name, keys, column) = match rest.split_once('[') {
            Some((name, rest)) => {
                let (keys, column) = rest.split_once("].").ok_or("`]` and a column are missing")?;
                (name, keys.split(';').map(|key| key.trim().to_owned()).collect(), column)
            }
            None => {
                let (name, column) = rest.split_once('.').ok_or("a column is missing")?;
                (name, vec!["*".to_owned()], column)
            }
        };
        let table = self.table(document, name)?;
        let column = table.columns.iter().position(|c| c == column);
        let column = column.ok_or(format!("{name} has no such column: {}", table.columns.join(", ")))?;
        Ok(Term { factor, table, document, keys, column })
    }

    fn table(&self, document: &str, name: &str) -> Result<&Table, String> {
        let text = self.text(document).ok_or(format!("there is no text {document}"))?;
        let table = text.table.iter().find(|table| table.name == name);
        table.ok_or(format!("{document} has no table {name}"))
    }
}

impl Text {
    fn check(&self) -> Result<(), String> {
        for table in &self.table {
            let say = |why: &str| format!("{}.{} {why}", self.document, table.name);
            if table.rows.is_empty() || table.rows.iter().any(|row| row.len() != table.columns.len()) {
                return Err(say("has a row of another length than its columns"));
            }
            if [&table.title, &table.place, &table.unit].iter().any(|text| text.is_empty()) {
                return Err(say("lacks a title, a place or a unit"));
            }
        }
        Ok(())
    }
}

impl Term<'_> {
    fn rows(&self) -> Vec<Found> {
        let is_cell = |(key, cell): (&String, &toml::Value)| match key.strip_suffix('*') {
            Some(begin) => shown(cell).starts_with(begin),
            None => *key == shown(cell),
        };
        let matches = |row: &&Vec<toml::Value>| self.keys.iter().zip(*row).all(is_cell);
        let stars = |row: &Vec<toml::Value>| {
            let keys = self.keys.iter().enumerate().filter(|(_, key)| key.ends_with('*'));
            keys.map(|(i, _)| (i, shown(&row[i]))).collect()
        };
        let found = self.table.rows.iter().filter(matches);
        found.map(|row| Found { key: stars(row), readings: readings(&row[self.column]) }).collect()
    }

    fn figures(&self, values: Vec<(String, f64)>) -> Figures {
        let place = format!("{}, {}", self.document, self.table.place);
        Figures { values, words: None, place, inferred: self.table.inferred }
    }

    fn values(&self, divisor: f64) -> Vec<(String, f64)> {
        let all = self.rows().into_iter().flat_map(|row| {
            let name = name(&row.key);
            row.readings.into_iter().map(move |value| (name.clone(), value))
        });
        all.map(|(name, value)| (name, self.factor * value / divisor)).collect()
    }
}

/// Splits at a separator that stands in no key, which may have the same characters.
fn split_outside<'e>(expression: &'e str, separator: &str) -> Vec<&'e str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    for (at, _) in expression.match_indices(separator) {
        let before = &expression[..at];
        if before.matches('[').count() == before.matches(']').count() {
            parts.push(&expression[begin..at]);
            begin = at + separator.len();
        }
    }
    parts.push(&expression[begin..]);
    parts
}

fn quotients(above: &Term<'_>, below: &Term<'_>) -> Vec<(String, f64)> {
    let below_rows = below.rows();
    let mut out = Vec::new();
    for row in above.rows() {
        for other in below_rows.iter().filter(|other| other.key == row.key) {
            for value in &row.readings {
                // A zero is a time below the resolution of the clock: there is no quotient.
                for divisor in other.readings.iter().filter(|divisor| **divisor > 0.0) {
                    let quotient = above.factor * value / (below.factor * divisor);
                    if quotient > 0.0 {
                        out.push((name(&row.key), quotient));
                    }
                }
            }
        }
    }
    out
}

fn name(key: &[(usize, String)]) -> String {
    key.iter().map(|(_, cell)| cell.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns a cell as it is shown.
fn shown(cell: &toml::Value) -> String {
    match cell {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The numbers of a cell: one, or several readings as in `17, 18` and `20 - 24`; `> 999` and `fails` are none.
fn readings(cell: &toml::Value) -> Vec<f64> {
    match cell {
        toml::Value::Integer(number) => vec![*number as f64],
        toml::Value::Float(number) => vec![*number],
        toml::Value::String(text) => {
            let words = text.split([',', ' ', '-', '/']).filter(|word| !word.is_empty());
            words.map(str::parse).collect::<Result<_, _>>().unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

impl Figures {
    /// Smallest and largest.
    pub(super) fn range(&self) -> (f64, f64) {
        let values = self.values.iter().map(|(_, value)| *value);
        (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::NEG_INFINITY, f64::max))
    }

    /// `9.00 to 103`; the number of machines and readings stands with it elsewhere.
    pub(super) fn text(&self) -> String {
        if let Some(words) = &self.words {
            return words.clone();
        }
        let (low, high) = self.range();
        let (low, high) = (super::finding::shown(low), super::finding::shown(high));
        if low == high { low } else { format!("{low} to {high}") }
    }

    /// The extremes with their machines: `9.00 (2a) to 103 (7)`.
    pub(super) fn named(&self) -> String {
        let by = |a: &&(String, f64), b: &&(String, f64)| a.1.total_cmp(&b.1);
        let (Some(low), Some(high)) = (self.values.iter().min_by(by), self.values.iter().max_by(by)) else {
            return self.text();
        };
        let one = |(name, value): &(String, f64)| {
            let value = super::finding::shown(*value);
            if name.is_empty() { value } else { format!("{value} ({name})") }
        };
        if low.1 == high.1 { one(low) } else { format!("{} to {}", one(low), one(high)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(expression: &str) -> Figures {
        Seeds::new().unwrap().evaluate(expression).unwrap()
    }

    /// Low and high with two decimals.
    fn range(expression: &str) -> (f64, f64) {
        let (low, high) = figures(expression).range();
        ((low * 100.0).round() / 100.0, (high * 100.0).round() / 100.0)
    }

    #[test]
    fn group_commit_gained_9_to_103_times_on_nine_machines() {
        let fsseq1 = figures("S4.fsseq1[*].C=1 / S4.fsseq1[*].C=100");
        // Machine 2b has 0 s with 100 lines a sync.
        assert_eq!(fsseq1.values.len(), 8);
        assert_eq!(fsseq1.named(), "9.00 (2a) to 102 (7)");
        assert_eq!(range("S4.fsseq3[*;1;512].time / S4.fsseq3[*;100;512].time"), (11.82, 78.6));
    }

    #[test]
    fn ranges_over_machines_are_those_of_the_tables() {
        assert_eq!(range("1000 / S4.readwrite[*].10"), (27.03, 384.62));
        assert_eq!(range("S1.sum[priority].mean / 30000"), (15.37, 15.37));
        assert_eq!(range("S4.readwrite[*].1 / S4.readwrite[*].10"), (1.0, 2.0));
        assert_eq!(range("S4.sinks[*;1 KB].smtp-sink / S4.sinks[*;1 KB].thrperconn"), (0.26, 0.49));
        assert_eq!(range("S4.sinks[*;1 KB].smtp-sink / S4.sinks[*;1 KB].thrpool"), (0.61, 1.23));
        assert_eq!(range("S4.sinks[*;1 KB].smtp-sink / S4.sinks[*;1 KB].smtps"), (0.64, 1.36));
        assert_eq!(range("S4.net[*;32].INET / S4.net[*;32].LOCAL"), (1.11, 1.5));
        assert_eq!(range("S0.creation[test 5].mean / S0.creation[test 1].mean"), (49.42, 49.42));
        assert_eq!(range("S1.sum[host].mean / S1.sum[priority].mean"), (1.06, 1.06));
        assert_eq!(range("S3.postfix[*].best / S3.direct[*].best"), (0.27, 0.39));
        assert_eq!(
            range(
                "S4.logging[same disk].smioerr (line buffered) / S4.logging[same disk].smioout (block buffered)"
            ),
            (1.32, 1.36)
        );
    }

    #[test]
    fn several_tables_and_all_cells_that_begin_so_are_read_together() {
        assert_eq!(range("S3.syslog[sendmail*].without / S3.syslog[sendmail*].with"), (0.96, 1.12));
        let two = "S4.relay[cilantro].sendmail 8 / S4.relay[cilantro].sendmail X and S4.drained[sm8.12.11].source / S4.drained[smX*].source";
        assert!(Seeds::new().unwrap().evaluate(two).is_err(), "a `*` on one side only");
        let two = two.replace("smX*", "smX.0.0.12");
        assert_eq!(range(&two), (0.97, 12.33));
        assert!(figures(&two).place.contains("; S4, "), "{}", figures(&two).place);
    }

    #[test]
    fn a_rate_of_ten_writers_is_27_to_385_files_a_second_and_ones_26_to_192() {
        assert_eq!(figures("1000 / S4.readwrite[*].10").text(), "27.0 to 385");
        assert_eq!(figures("1000 / S4.readwrite[*].1").text(), "25.6 to 192");
    }

    #[test]
    fn inferred_figures_are_marked() {
        assert!(figures("S2.average[10].fdsync / S2.average[1].fdsync").inferred);
        assert!(figures("S0.rate[test 5].rate / S0.rate[test 1].rate").inferred);
        assert!(!figures("S2.fdsync[10].times / S2.fdsync[1].times").inferred);
    }

    #[test]
    fn a_wrong_expression_says_why() {
        let seeds = Seeds::new().unwrap();
        let error = |text: &str| seeds.evaluate(text).unwrap_err();
        assert!(error("S9.x.y").contains("there is no text S9"));
        assert!(error("S4.fsseq1.C=7").contains("no such column: machine, none, C=100"));
        assert!(error("S4.sinks[v-aix;1 KB].thrperconn").contains("no row has a figure"));
        assert!(error("x * S4.fsseq1.C=1").contains("`x` is not a number"));
    }

    #[test]
    fn several_readings_of_a_cell_are_all_read() {
        let read = |text: &str| readings(&toml::Value::String(text.into()));
        assert_eq!(read("16, 17, 19"), [16.0, 17.0, 19.0]);
        assert_eq!(read("20 - 24"), [20.0, 24.0]);
        assert!(read(">999").is_empty() && read("877+966").is_empty() && read("fails").is_empty());
    }
}
