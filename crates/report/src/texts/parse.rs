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
pub(super) fn language(code: &str, text: &str, base: Option<Language>) -> Result<Language, TemplateError> {
    if text.len() > LENGTH_MAX_BYTES {
        return Err(error(1, format!("{} bytes", text.len()), "a file of templates has at most 256 KiB"));
    }
    let sections = sections(text)?;
    let is_complete = base.is_some();
    let mut language = base.unwrap_or_else(|| Language {
        code: code.into(),
        kinds: Default::default(),
        recipient: Vec::new(),
        reasons: BTreeMap::new(),
    });
    for section in &sections {
        read(&mut language, section)?;
    }
    if !is_complete {
        let last = text.lines().count().max(1);
        let required =
            DsnKind::ALL.map(DsnKind::section).into_iter().chain(["recipient", "reason 4", "reason 5"]);
        for name in required {
            if !sections.iter().any(|section| section.name == name) {
                return Err(error(last, format!("the section [{name}] is missing"), "add it"));
            }
        }
    }
    Ok(language)
}

fn sections(text: &str) -> Result<Vec<Section<'_>>, TemplateError> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        if line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let Some(name) = name.strip_suffix(']') else {
                return Err(error(number, "a section name without ]", "write for example [failed]"));
            };
            if let Some(first) = sections.iter().find(|section| section.name == name) {
                let what = format!("[{}] stands in line {}, too", name.escape_debug(), first.number);
                return Err(error(number, what, "remove one of them"));
            }
            sections.push(Section { name, number, lines: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            section.lines.push((number, line));
        } else if !line.is_empty() {
            return Err(error(number, "text above the first section", "begin with for example [failed]"));
        }
    }
    for section in &mut sections {
        let blank = |(_, line): &(usize, &str)| line.is_empty();
        let begin = section.lines.iter().position(|line| !blank(line)).unwrap_or(section.lines.len());
        section.lines.drain(..begin);
        let end = section.lines.iter().rposition(|line| !blank(line)).map_or(0, |at| at + 1);
        section.lines.truncate(end);
    }
    Ok(sections)
}

fn read(language: &mut Language, section: &Section<'_>) -> Result<(), TemplateError> {
    let Section { name, number, lines } = section;
    if lines.is_empty() {
        return Err(error(*number, format!("[{}] is empty", name.escape_debug()), "write its text below"));
    }
    if let Some(status) = name.strip_prefix("reason ") {
        let is_status = is_status(status);
        if !is_status {
            let what = format!("{} is no status", status.escape_debug());
            return Err(error(*number, what, "write for example [reason 5.1.1], [reason 5.1] or [reason 5]"));
        }
        let words: Result<Vec<String>, _> = lines.iter().map(|line| plain(*line)).collect();
        language.reasons.insert(status.into(), words?.join(" ").trim().into());
        return Ok(());
    }
    if *name == "recipient" {
        language.recipient = all(lines, &OF_RECIPIENT)?;
        if !has(&language.recipient, Placeholder::Address) {
            return Err(error(*number, "[recipient] does not have {address}", "add it"));
        }
        return Ok(());
    }
    let Some(kind) = DsnKind::ALL.into_iter().find(|kind| kind.section() == *name) else {
        let names: Vec<String> = DsnKind::ALL.iter().map(|kind| format!("[{}]", kind.section())).collect();
        let help = format!("write one of {}, [recipient] or [reason STATUS]", names.join(", "));
        return Err(error(*number, format!("unknown section [{}]", name.escape_debug()), help));
    };
    language.kinds[kind as usize] = notice(*number, name, lines)?;
    Ok(())
}

/// Reads a subject, an empty line, and a text that shows the recipients.
fn notice(number: usize, name: &str, lines: &[(usize, &str)]) -> Result<Notice, TemplateError> {
    let (first, subject) = lines[0];
    let Some(value) = subject.strip_prefix("Subject:") else {
        return Err(error(first, "no subject", "begin the section with \"Subject: …\""));
    };
    let start = subject.len() - value.trim_start().len();
    let compiled = Line::parse(value.trim(), first, &OF_SUBJECT);
    let subject = compiled.map_err(|error| TemplateError {
        column: error.column + subject[..start].chars().count(),
        ..error
    })?;
    if subject.is_empty() {
        return Err(error(first, "the subject is empty", "write it behind \"Subject:\""));
    }
    if let Some((number, _)) = lines.get(1).filter(|(_, line)| !line.is_empty()) {
        return Err(error(*number, "text below the subject", "put an empty line between them"));
    }
    let lines = all(lines.get(2..).unwrap_or_default(), &OF_MESSAGE)?;
    if !lines.iter().any(|line| line.is(Placeholder::Recipients)) {
        let what = format!("[{name}] does not show the recipients");
        return Err(error(number, what, "add {recipients} in a line of its own"));
    }
    Ok(Notice { subject, lines })
}

fn all(lines: &[(usize, &str)], allowed: &[Placeholder]) -> Result<Vec<Line>, TemplateError> {
    let mut compiled = Vec::with_capacity(lines.len());
    for (number, text) in lines {
        let line = Line::parse(text, *number, allowed)?;
        if !line.is(Placeholder::Recipients) && line.has(Placeholder::Recipients) {
            let at = text.find("{recipients}").map_or(1, |at| text[..at].chars().count() + 1);
            let what = "{recipients} is not alone".to_owned();
            let help = "put it into a line of its own, without blanks".to_owned();
            return Err(TemplateError { line: *number, column: at, what, help });
        }
        compiled.push(line);
    }
    Ok(compiled)
}

fn has(lines: &[Line], placeholder: Placeholder) -> bool {
    lines.iter().any(|line| line.has(placeholder))
}

/// A line without placeholders.
fn plain((number, text): (usize, &str)) -> Result<String, TemplateError> {
    let line = Line::parse(text.trim(), number, &[])?;
    Ok(line.fill(|_| "".into()).unwrap_or_default())
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
