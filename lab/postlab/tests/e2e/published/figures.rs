//! The rule for figures in prose. A number is a setting, or a measured figure.
//!
//! - A figure stands in the data of its page: in a table, a block of code, a file of data that the page links to, or
//!   the tables of a page of results that its paragraph links to. A figure of at least three digits may be rounded.
//!   If it has a unit, the row or the title of the column names the unit. A ratio and a percentage stand there as such.
//! - Or a comment below the paragraph derives it: `figures: 0.89 = 7,950/8,916; 21 % = 1 - 7,087/8,916`. Operands stand
//!   in the data as they are, or are powers of ten and of two that convert a unit; `relay.md: 14 = 13.9` takes them from
//!   another page, and `reproduce.md "fsseq1": 5 = 5` from its rows with these words. `rows("| yes |")` counts rows of
//!   tables.
//! - `setting: 2,500` names a number that is no result and that the lists below do not tell from one;
//!   `tested: 59 by NAME` names the test that has another rule for it.
//!
//! A derived figure is sure. One that is only looked up could stand in the data by chance.

use super::derive;
use super::prose::{Page, Paragraph, Token, links, tokens};
use std::path::Path;

/// What a number says.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Percent,
    /// A ratio: `3 times`, `× 3`, `a factor of 3`.
    Times,
    /// A ratio written as `1/3`.
    Fraction,
}

/// What is set: after a number.
const SET: &[&str] = &[
    "session",
    "sessions",
    "connection",
    "connections",
    "sender",
    "senders",
    "core",
    "cores",
    "processor",
    "processors",
    "round",
    "rounds",
    "run",
    "runs",
    "worker",
    "workers",
    "thread",
    "threads",
    "recipient",
    "recipients",
    "directory",
    "directories",
    "GiB",
    "GB",
    "KiB",
];
/// Words after which a number is no figure that was measured.
const LABELS: &[&str] = &[
    "RFC", "RFCs", "port", "ports", "target", "targets", "section", "code", "codes", "commit", "commits",
    "seed", "seeds", "issue",
];
/// Programs, whose version follows.
const PRODUCTS: &[&str] =
    &["Debian", "Linux", "Rust", "Postfix", "Sendmail", "Exim", "OpenSMTPD", "Postal", "TLS", "kernel"];
const REPLIES: &[&str] =
    &["220", "250", "354", "421", "450", "451", "452", "455", "550", "552", "553", "554"];
const MONTHS: &[&str] = &[
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
    "Nov",
];
/// Between a number and a word of `SET` they make another sentence of it.
const PREPOSITIONS: &[&str] =
    &["of", "in", "with", "to", "and", "a", "for", "by", "each", "more", "fewer", "as"];

/// A number in data, with the line and the title in which its unit can stand.
#[derive(Debug)]
struct Datum {
    value: f64,
    kind: Kind,
    context: String,
}

/// The data of a page or of a file.
#[derive(Debug, Default)]
pub(super) struct Source {
    data: Vec<Datum>,
    rows: Vec<String>,
}

impl Source {
    /// The data of a file of the repository.
    pub(super) fn read(name: &str) -> Self {
        Self::new(name, &super::read(name))
    }

    /// The rows of a page that have these words.
    pub(super) fn read_rows(name: &str, words: &str) -> Self {
        let mut source = Self::default();
        let text = super::read(name);
        let rows = text.lines().filter(|line| line.starts_with('|') && line.contains(words));
        source.add(rows.map(|row| (row, <&[String]>::default())));
        source
    }

    pub(super) fn new(name: &str, text: &str) -> Self {
        let mut source = Self::default();
        if !has_extension(name, &["md"]) {
            source.add(text.lines().map(|line| (line, <&[String]>::default())));
            return source;
        }
        let page = Page::parse(text);
        source.add(page.data.iter().map(|line| (line.text.as_str(), line.titles.as_slice())));
        source.rows.extend(text.lines().filter(|line| line.starts_with('|')).map(str::to_owned));
        for file in
            links(text).filter(|target| has_extension(target, &["json", "jsonl", "toml", "tsv", "csv"]))
        {
            if let Some(file) = file_beside(name, file) {
                source.add(super::read(&file).lines().map(|line| (line, <&[String]>::default())));
            }
        }
        source
    }

    fn add<'l>(&mut self, lines: impl Iterator<Item = (&'l str, &'l [String])>) {
        for (line, titles) in lines {
            let text: Vec<char> = line.chars().collect();
            let tokens = tokens(&text);
            for (at, token) in tokens.iter().enumerate() {
                let Some(value) = token.value else { continue };
                let column = text[..token.begin].iter().filter(|c| **c == '|').count();
                let title = titles.get(column).map_or("", String::as_str);
                let kind = Place::new(&tokens, at).kind();
                self.data.push(Datum { value, kind, context: format!("{line} {title}") });
            }
        }
    }

    /// Returns true if this number stands in the data, not rounded.
    pub(super) fn has(&self, value: f64) -> bool {
        self.data.iter().any(|datum| is_same(datum.value, value))
    }

    /// The number of rows of tables that have these words.
    pub(super) fn rows_with(&self, words: &str) -> usize {
        self.rows.iter().filter(|row| row.contains(words)).count()
    }

    fn grounds(&self, said: &str, kind: Kind, unit: Option<&str>) -> bool {
        let is_kind = |datum: &&Datum| kind == Kind::Plain || datum.kind == kind;
        let has_unit = |datum: &&Datum| unit.is_none_or(|unit| names(&datum.context, unit));
        let mut found = self.data.iter().filter(is_kind).filter(|datum| is_said(datum.value, said));
        found.any(|datum| has_unit(&datum))
    }
}

/// A number among its neighbours.
struct Place<'t> {
    tokens: &'t [Token],
    at: usize,
    /// The list that it is in, as `1, 10 and 100` or `9–12`: the first number, and the token behind the last.
    begin: usize,
    end: usize,
}

impl<'t> Place<'t> {
    fn new(tokens: &'t [Token], at: usize) -> Self {
        let joins = |token: &&Token| {
            let is_mark = token.text.chars().all(|c| ",–/−+±".contains(c));
            token.value.is_none() && (is_mark || ["and", "or", "to", "then"].contains(&token.text.as_str()))
        };
        let is_number = |place: usize| tokens.get(place).is_some_and(|token| token.value.is_some());
        let (mut begin, mut end) = (at, at + 1);
        loop {
            let joints = tokens[end..].iter().take_while(joins).count();
            if joints == 0 || !is_number(end + joints) {
                break;
            }
            end += joints + 1;
        }
        loop {
            let joints = tokens[..begin].iter().rev().take_while(joins).count();
            if joints == 0 || begin <= joints || !is_number(begin - joints - 1) {
                break;
            }
            begin -= joints + 1;
        }
        Self { tokens, at, begin, end }
    }

    fn text(&self, place: Option<usize>) -> &'t str {
        place.and_then(|place| self.tokens.get(place)).map_or("", |token| token.text.as_str())
    }

    /// The `n`th token behind the list, from 0.
    fn after(&self, n: usize) -> &'t str {
        self.text(Some(self.end + n))
    }

    /// The `n`th token before the list, from 1.
    fn before(&self, n: usize) -> &'t str {
        self.text(self.begin.checked_sub(n))
    }

    fn next(&self, n: usize) -> &'t str {
        self.text(Some(self.at + n))
    }

    /// The `1` of `1/23`, or its 23.
    fn is_ratio(&self, one: Option<usize>) -> bool {
        let Some([first, mark, second]) = one.and_then(|one| self.tokens.get(one..one + 3)) else {
            return false;
        };
        let is_close = first.end == mark.begin && mark.end == second.begin;
        first.text == "1" && mark.text == "/" && second.value.is_some() && is_close
    }

    fn kind(&self) -> Kind {
        if self.is_ratio(self.at.checked_sub(2)) {
            return Kind::Fraction;
        }
        match (self.before(2), self.before(1), self.after(0)) {
            (_, _, "%" | "percent") => Kind::Percent,
            (_, _, "times" | "×") | (_, "×", _) | ("factor", "of", _) => Kind::Times,
            _ => Kind::Plain,
        }
    }

    fn unit(&self) -> Option<&'t str> {
        match [self.after(0), self.after(1), self.after(2)] {
            ["messages", "a", "second"] | ["a", "second", _] | ["/", "s", _] => Some("/s"),
            [unit @ ("ms" | "µs" | "s" | "seconds" | "MiB" | "bytes"), _, _] => Some(unit),
            _ => None,
        }
    }

    /// Returns true if the number was set, counts what was set, or names something.
    fn is_setting(&self) -> bool {
        let token = &self.tokens[self.at];
        let value = token.value.unwrap_or_default();
        let is_year = token.decimals == 0 && token.text.len() == 4 && (1990.0..2040.0).contains(&value);
        let is_measured = ["messages", "ms", "µs", "s", "%", "times"].contains(&self.next(1));
        let is_reply = REPLIES.contains(&token.text.as_str()) && !is_measured;
        let is_bound = self.next(1) == "/" && self.next(2) == "N";
        if self.is_ratio(Some(self.at)) || is_year || is_reply || is_bound {
            return true;
        }
        let (before, after) = (self.before(1), self.after(0));
        if MONTHS.contains(&before) || MONTHS.contains(&after) || before == "=" {
            return true;
        }
        if self.kind() == Kind::Plain && !["messages", "ms", "µs"].contains(&after) {
            let is_version = PRODUCTS.contains(&before) && value < 100.0;
            let is_label = LABELS.contains(&before) || (before == "from" && LABELS.contains(&self.before(2)));
            if is_version || is_label {
                return true;
            }
        }
        if before == "of" && ["target", "limit"].contains(&self.before(2)) {
            return true;
        }
        // Nothing that one counts has decimals.
        token.decimals == 0 && self.counts_settings()
    }

    /// `50 sessions`, `100-session`, `50 kept connections`.
    fn counts_settings(&self) -> bool {
        let (after, second) = (self.after(0), self.after(1));
        let is_adjective =
            self.tokens.get(self.end).is_some_and(Token::is_word) && !PREPOSITIONS.contains(&after);
        SET.contains(&after) || (SET.contains(&second) && (after == "-" || is_adjective))
    }
}

/// Each figure of a page that is neither in its data nor derived from it.
pub(super) fn faults(name: &str, text: &str) -> Vec<String> {
    let own = Source::new(name, text);
    let page = Page::parse(text);
    page.paragraphs.iter().flat_map(|paragraph| faults_in(name, &own, paragraph)).collect()
}

fn faults_in(name: &str, own: &Source, paragraph: &Paragraph) -> Vec<String> {
    let mut faults = Vec::new();
    let mut said: Vec<(String, bool)> = Vec::new();
    for comment in &paragraph.comments {
        let heard = derive::said(name, own, comment);
        said.extend(heard.numbers.into_iter().map(|number| (number, false)));
        let line = paragraph.first_line();
        faults.extend(heard.faults.iter().map(|fault| format!("{name}:{line}: {fault}")));
    }
    let text = paragraph.text(" ");
    let linked: Vec<Source> = links(&text).filter_map(|target| results_page(name, target)).collect();
    let prose = paragraph.prose();
    let tokens = tokens(&prose);
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.value.is_some()) {
        let mut is_derived = false;
        for (_, is_used) in said.iter_mut().filter(|(number, _)| is_number(number, &token.text)) {
            (is_derived, *is_used) = (true, true);
        }
        let place = Place::new(&tokens, at);
        let begins_item = at == 0 && place.next(1) == ".";
        if is_derived || begins_item || place.is_setting() {
            continue;
        }
        let (kind, unit) = (place.kind(), place.unit());
        let mut sources = std::iter::once(own).chain(&linked);
        if !sources.any(|source| source.grounds(&token.text, kind, unit)) {
            let line = paragraph.line_at(token.begin);
            let rest: String = prose[token.begin..].iter().take(30).collect();
            let rest = rest.replace('\n', " ");
            faults.push(format!("{name}:{line}: {} of `{rest}` is not in the data: {kind:?}", token.text));
        }
    }
    for (number, _) in said.iter().filter(|(_, is_used)| !is_used) {
        let line = paragraph.first_line();
        faults.push(format!("{name}:{line}: a comment names {number}, which the paragraph does not say"));
    }
    faults
}

/// A page of results that a paragraph links to, unless a program makes it.
fn results_page(name: &str, target: &str) -> Option<Source> {
    if !has_extension(target, &["md"]) {
        return None;
    }
    let file = file_beside(name, target).filter(|file| file.starts_with("docs/results/"))?;
    (file != name && !is_made(&file)).then(|| Source::read(&file))
}

/// Returns true for a page whose prose is not read. It has so many figures that any can be found there by chance.
pub(super) fn is_made(file: &str) -> bool {
    super::NOT_READ.iter().any(|name| file.ends_with(name))
}

/// The path in the repository of a file that a page names.
pub(super) fn file_beside(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    let file = parts.join("/");
    super::root().join(&file).is_file().then_some(file)
}

fn has_extension(name: &str, extensions: &[&str]) -> bool {
    Path::new(name).extension().and_then(|e| e.to_str()).is_some_and(|e| extensions.contains(&e))
}

/// Returns true if the line of a figure or the title of its column names the unit.
fn names(context: &str, unit: &str) -> bool {
    let words: &[&str] = match unit {
        "ms" => &["ms", "millisecond", "milliseconds"],
        "µs" => &["µs", "us", "microseconds"],
        "s" | "seconds" => &["s", "seconds"],
        "MiB" => &["MiB", "mib"],
        "bytes" => &["bytes", "byte", "octets"],
        _ if context.contains("/s") || context.contains("per_s") => return true,
        _ => &["second", "rate"],
    };
    context.split(|c: char| !c.is_alphanumeric()).any(|word| words.contains(&word))
}

fn is_number(one: &str, other: &str) -> bool {
    one.replace(',', "") == other.replace(',', "")
}

pub(super) fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}

/// The size of the last digit that a number shows: 0.01 of `0.89`, 100 of `9,600`.
pub(super) fn last_digit(number: &str) -> f64 {
    let number = number.replace(',', "");
    match number.split_once('.') {
        Some((_, decimals)) => 10_f64.powi(-i32::try_from(decimals.len()).unwrap_or(0)),
        None => {
            let zeros = number.len() - number.trim_end_matches('0').len();
            10_f64.powi(i32::try_from(zeros).unwrap_or(0))
        }
    }
}

/// Returns true if a number says this value, rounded if it shows three digits or more: fewer are found by chance.
fn is_said(value: f64, number: &str) -> bool {
    let plain = number.replace(',', "");
    let digits = match plain.split_once('.') {
        Some(_) => plain.replace('.', "").trim_start_matches('0').len(),
        None => plain.trim_matches('0').len(),
    };
    let said: f64 = plain.parse().unwrap_or(f64::NAN);
    is_same(value, said) || (digits >= 3 && (value - said).abs() <= last_digit(number) / 2.0 + 1e-9)
}
