//! What the comments below a paragraph say of its numbers, and the expressions that derive figures.

use super::figures::{Source, file_beside, is_made, is_same, last_digit};
use super::prose::{Token, tokens};

/// The tests of which a comment may name one.
const TESTS: &str = include_str!("../published.rs");
/// Operands that convert a unit, and stand in no table.
const CONSTANTS: [f64; 5] = [1.0, 100.0, 1000.0, 1024.0, 1_000_000.0];

/// Numbers that a comment vouches for, and what is wrong in it.
#[derive(Debug, Default)]
pub(super) struct Vouched {
    pub(super) numbers: Vec<String>,
    pub(super) faults: Vec<String>,
}

/// Reads a comment; one that is not about figures says nothing.
pub(super) fn said(page: &str, own: &Source, comment: &str) -> Vouched {
    let body = comment.trim_start_matches("<!--").trim_end_matches("-->").trim();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    if let Some(numbers) = body.strip_prefix("setting:") {
        return Vouched { numbers: words(numbers), faults: Vec::new() };
    }
    if let Some((numbers, test)) = body.strip_prefix("tested:").and_then(|rest| rest.split_once(" by ")) {
        let is_there = TESTS.contains(&format!("fn {}(", test.trim()));
        let faults = if is_there { Vec::new() } else { vec![format!("there is no test `{}`", test.trim())] };
        return Vouched { numbers: words(numbers), faults };
    }
    body.strip_prefix("figures:").map(|parts| derivations(page, own, parts)).unwrap_or_default()
}

/// `0.89 = 7,950/8,916; relay.md: 14 = 13.9`: a page is that of all parts behind its name.
fn derivations(page: &str, own: &Source, parts: &str) -> Vouched {
    let mut said = Vouched::default();
    let mut other = None;
    for part in parts.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (place, derivation) = place_of(part);
        if let Some((name, words)) = place {
            match source(page, name, words) {
                Ok(source) => other = Some(source),
                Err(why) => {
                    said.faults.push(format!("`{part}`: {why}"));
                    break;
                }
            }
        }
        match derived(other.as_ref().unwrap_or(own), derivation) {
            Ok(number) => said.numbers.push(number),
            Err(why) => said.faults.push(format!("`{part}`: {why}")),
        }
    }
    said
}

/// The page that a part names, with the words of its rows, and the derivation: `a.md "these rows": 14 = 13.9`.
fn place_of(part: &str) -> (Option<(&str, Option<&str>)>, &str) {
    if let Some((name, rest)) = part.split_once(" \"")
        && let Some((words, derivation)) = rest.split_once("\": ")
    {
        return (Some((name, Some(words))), derivation);
    }
    part.split_once(": ").map_or((None, part), |(name, derivation)| (Some((name, None)), derivation))
}

fn source(page: &str, name: &str, words: Option<&str>) -> Result<Source, String> {
    let places = [page, "docs/results/page", "docs/page", "docs/seeds/page", "page"];
    let file = places.iter().find_map(|place| file_beside(place, name));
    let file = file.ok_or_else(|| format!("there is no page `{name}`"))?;
    match words {
        Some(words) => Ok(Source::read_rows(&file, words)),
        None if is_made(&file) => Err(format!("`{name}` is too long to look a figure up: name its row")),
        None => Ok(Source::read(&file)),
    }
}

/// The number on the left, if the expression on the right has its value.
fn derived(source: &Source, derivation: &str) -> Result<String, String> {
    let (number, expression) = derivation.split_once('=').ok_or("there is no `=`")?;
    let plain = number.trim_matches(['%', ' ']);
    let said: f64 = plain.replace(',', "").parse().map_err(|_| format!("`{number}` is not a number"))?;
    // `72 % = 72 %` repeats a cell; any other percentage is a share of one.
    let is_share = number.contains('%') && !expression.contains('%');
    let factor = if is_share { 100.0 } else { 1.0 };
    let value = evaluate(source, &expression.replace('%', ""))?.abs() * factor;
    if (value - said).abs() > last_digit(plain) / 2.0 + 1e-9 {
        return Err(format!("it is {value:.4}"));
    }
    Ok(plain.to_owned())
}

fn evaluate(source: &Source, expression: &str) -> Result<f64, String> {
    let mut known = CONSTANTS.to_vec();
    let mut text = expression.to_owned();
    while let Some((before, rest)) = text.split_once("rows(\"") {
        let (words, after) = rest.split_once("\")").ok_or("`rows(\"` has no end")?;
        let count = source.rows_with(words);
        known.push(count as f64);
        text = format!("{before}{count}{after}");
    }
    let text: Vec<char> = text.chars().collect();
    let mut expression = Expression { tokens: tokens(&text), at: 0, source, known };
    let value = expression.sum()?;
    match expression.tokens.get(expression.at) {
        None => Ok(value),
        Some(token) => Err(format!("`{}` is not understood", token.text)),
    }
}

struct Expression<'s> {
    tokens: Vec<Token>,
    at: usize,
    source: &'s Source,
    /// Operands that need not stand in the data.
    known: Vec<f64>,
}

impl Expression<'_> {
    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.product()?;
        while let Some(sign) = self.take(&["+", "-"]) {
            let next = self.product()?;
            value += if sign == "+" { next } else { -next };
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.factor()?;
        while let Some(sign) = self.take(&["*", "/"]) {
            let next = self.factor()?;
            value = if sign == "*" { value * next } else { value / next };
        }
        Ok(value)
    }

    fn factor(&mut self) -> Result<f64, String> {
        if self.take(&["("]).is_some() {
            let value = self.sum()?;
            return self.take(&[")"]).map(|_| value).ok_or_else(|| "`)` is missing".to_owned());
        }
        let token = self.tokens.get(self.at).ok_or("it ends too early")?;
        let value = token.value.ok_or_else(|| format!("`{}` is not a number", token.text))?;
        let is_known = self.known.iter().any(|known| is_same(*known, value));
        if !is_known && !self.source.has(value) {
            return Err(format!("{} is not in the data", token.text));
        }
        self.at += 1;
        Ok(value)
    }

    fn take(&mut self, marks: &[&str]) -> Option<String> {
        let text = self.tokens.get(self.at)?.text.clone();
        let is_mark = marks.contains(&text.as_str());
        self.at += usize::from(is_mark);
        is_mark.then_some(text)
    }
}
