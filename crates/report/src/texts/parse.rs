//! Reads a file of templates.

use super::{
    Language, Notice, TemplateError,
    template::{Line, OF_MESSAGE, OF_RECIPIENT, OF_SUBJECT, Placeholder},
};
use crate::dsn::DsnKind;
use std::collections::BTreeMap;

/// A longer file is a mistake.
const LENGTH_MAX_BYTES: usize = 256 * 1024;

/// A section: its name, the line of its name, and its lines with their numbers.
struct Section<'t> {
    name: &'t str,
    number: usize,
    lines: Vec<(usize, &'t str)>,
}

/// Faults of one file that are told at once.
const FAULTS_MAX: usize = 20;

/// All faults of one file, so that they are reported together.
type Faults = Vec<TemplateError>;

fn error(line: usize, what: impl Into<String>, help: impl Into<String>) -> TemplateError {
    TemplateError { line, column: 1, what: what.into(), help: help.into() }
}

/// Decodes a file, which must be UTF-8. A byte order mark at its front, as some editors write, is not returned.
pub(super) fn text(file: &[u8]) -> Result<&str, TemplateError> {
    let text = std::str::from_utf8(file).map_err(|fault| {
        let before = String::from_utf8_lossy(&file[..fault.valid_up_to()]);
        let line = before.rsplit('\n').next().unwrap_or_default();
        TemplateError {
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
            what: format!("the byte 0x{:02X} is not UTF-8", file[fault.valid_up_to()]),
            help: "save the file as UTF-8".to_owned(),
        }
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Reads the templates of a language; sections that the text does not have are those of `base`.
///
/// # Errors
/// All faults, in the order of the file, but for [`FAULTS_MAX`].
pub(super) fn language(code: &str, text: &str, base: Option<Language>) -> Result<Language, Faults> {
    if text.len() > LENGTH_MAX_BYTES {
        let what = format!("{} bytes", text.len());
        return Err(vec![error(1, what, "a file of templates has at most 256 KiB")]);
    }
    let mut faults = Faults::new();
    let sections = sections(text, &mut faults);
    let is_complete = base.is_some();
    let mut language = base.unwrap_or_else(|| Language {
        code: code.into(),
        kinds: Default::default(),
        recipient: Vec::new(),
        reasons: BTreeMap::new(),
    });
    for section in &sections {
        read(&mut language, section, &mut faults);
    }
    if !is_complete {
        let last = text.lines().count().max(1);
        let required =
            DsnKind::ALL.map(DsnKind::section).into_iter().chain(["recipient", "reason 4", "reason 5"]);
        for name in required {
            if !sections.iter().any(|section| section.name == name) {
                faults.push(error(last, format!("the section [{name}] is missing"), "add it"));
            }
        }
    }
    if faults.is_empty() {
        return Ok(language);
    }
    faults.sort_by_key(|fault| (fault.line, fault.column));
    faults.truncate(FAULTS_MAX);
    Err(faults)
}

fn sections<'t>(text: &'t str, faults: &mut Faults) -> Vec<Section<'t>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    // The lines below a name that cannot be used belong to no section.
    let (mut is_skipped, mut is_above) = (false, true);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        if line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            (is_skipped, is_above) = (true, false);
            let Some(name) = name.strip_suffix(']') else {
                faults.push(error(number, "a section name without ]", "write for example [failed]"));
                continue;
            };
            if let Some(first) = sections.iter().find(|section| section.name == name) {
                let what = format!("[{}] stands in line {}, too", name.escape_debug(), first.number);
                faults.push(error(number, what, "remove one of them"));
                continue;
            }
            is_skipped = false;
            sections.push(Section { name, number, lines: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            if !is_skipped {
                section.lines.push((number, line));
            }
        } else if !line.is_empty() && is_above {
            is_above = false;
            faults.push(error(number, "text above the first section", "begin with for example [failed]"));
        }
    }
    for section in &mut sections {
        let blank = |(_, line): &(usize, &str)| line.is_empty();
        let begin = section.lines.iter().position(|line| !blank(line)).unwrap_or(section.lines.len());
        section.lines.drain(..begin);
        let end = section.lines.iter().rposition(|line| !blank(line)).map_or(0, |at| at + 1);
        section.lines.truncate(end);
    }
    sections
}

/// Compiles one section, and notes its faults.
fn read(language: &mut Language, section: &Section<'_>, faults: &mut Faults) {
    let Section { name, number, lines } = section;
    if lines.is_empty() {
        return faults.push(error(
            *number,
            format!("[{}] is empty", name.escape_debug()),
            "write its text below",
        ));
    }
    if let Some(status) = name.strip_prefix("reason ") {
        if !is_status(status) {
            let what = format!("{} is not a status", status.escape_debug());
            faults.push(error(*number, what, "write for example [reason 5.1.1], [reason 5.1] or [reason 5]"));
        }
        let words: Vec<String> = lines.iter().map(|line| plain(*line, faults)).collect();
        language.reasons.insert(status.into(), words.join(" ").trim().into());
        return;
    }
    let before = faults.len();
    if *name == "recipient" {
        language.recipient = all(lines, &OF_RECIPIENT, faults);
        // The placeholder may be a part of another fault.
        if faults.len() == before && !has(&language.recipient, Placeholder::Address) {
            faults.push(error(*number, "[recipient] does not have {address}", "add it"));
        }
        return;
    }
    let Some(kind) = DsnKind::ALL.into_iter().find(|kind| kind.section() == *name) else {
        let names: Vec<String> = DsnKind::ALL.iter().map(|kind| format!("[{}]", kind.section())).collect();
        let help = format!("write one of {}, [recipient] or [reason STATUS]", names.join(", "));
        return faults.push(error(*number, format!("unknown section [{}]", name.escape_debug()), help));
    };
    language.kinds[kind as usize] = notice(*number, name, lines, faults);
}

/// Reads a subject, an empty line, and a text that shows the recipients.
fn notice(number: usize, name: &str, lines: &[(usize, &str)], faults: &mut Faults) -> Notice {
    let before = faults.len();
    let (first, subject_line) = lines[0];
    let (subject, text) = match subject_line.strip_prefix("Subject:") {
        Some(value) => {
            let start = subject_line.len() - value.trim_start().len();
            let subject = Line::parse(value.trim(), first, &OF_SUBJECT, faults);
            let start = subject_line[..start].chars().count();
            faults[before..].iter_mut().for_each(|fault| fault.column += start);
            if faults.len() == before && subject.is_empty() {
                faults.push(error(first, "the subject is empty", "write it behind \"Subject:\""));
            }
            (subject, &lines[1..])
        }
        None => {
            faults.push(error(first, "no subject", "begin the section with \"Subject: …\""));
            (Line::default(), lines)
        }
    };
    let is_apart = text.first().is_none_or(|(_, line)| line.is_empty());
    if let Some((number, _)) = text.first().filter(|_| !is_apart && text.len() < lines.len()) {
        faults.push(error(*number, "text below the subject", "put an empty line between them"));
    }
    let text = if is_apart { text.get(1..).unwrap_or_default() } else { text };
    let before = faults.len();
    let lines = all(text, &OF_MESSAGE, faults);
    // The placeholder may be a part of another fault.
    if faults.len() == before && !lines.iter().any(|line| line.is(Placeholder::Recipients)) {
        let what = format!("[{name}] does not show the recipients");
        faults.push(error(number, what, "add {recipients} in a line of its own"));
    }
    Notice { subject, lines }
}

fn all(lines: &[(usize, &str)], allowed: &[Placeholder], faults: &mut Faults) -> Vec<Line> {
    let compile = |(number, text): &(usize, &str)| {
        let line = Line::parse(text, *number, allowed, faults);
        if !line.is(Placeholder::Recipients) && line.has(Placeholder::Recipients) {
            let column = text.find("{recipients}").map_or(1, |at| text[..at].chars().count() + 1);
            let what = "{recipients} is not alone".to_owned();
            let help = "put it into a line of its own, without blanks".to_owned();
            faults.push(TemplateError { line: *number, column, what, help });
        }
        line
    };
    lines.iter().map(compile).collect()
}

fn has(lines: &[Line], placeholder: Placeholder) -> bool {
    lines.iter().any(|line| line.has(placeholder))
}

/// Returns the text of a line that may have no placeholders.
fn plain((number, text): (usize, &str), faults: &mut Faults) -> String {
    let line = Line::parse(text.trim(), number, &[], faults);
    line.fill(|_| "".into()).unwrap_or_default()
}

/// `5.1.1`, `5.1` or `5`.
fn is_status(text: &str) -> bool {
    let mut numbers = text.split('.');
    let is_class = matches!(numbers.next(), Some("2" | "4" | "5"));
    let is_number = |number: &str| {
        (1..=3).contains(&number.len())
            && number.bytes().all(|b| b.is_ascii_digit())
            && (number == "0" || !number.starts_with('0'))
    };
    is_class && text.matches('.').count() <= 2 && numbers.all(is_number)
}
