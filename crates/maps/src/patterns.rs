//! Lines `/pattern/flags value`, as regexp_table(5) has them: the first pattern that matches decides.

use crate::{fault::FileFault, lines::logical_lines};
use regex::{Captures, Regex, RegexBuilder};
use std::{fmt, ops::Range};

/// Memory of one compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;
/// Patterns in a file: each is tried for each key.
const PATTERNS_MAX: usize = 10_000;

/// Patterns with their values, in the order of the file. Matching takes time linear in the length of the key.
#[derive(Debug, Clone, Default)]
pub struct Patterns(Vec<(Regex, Template)>);

/// A value in which groups of the pattern are put.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Group(usize),
}

impl Patterns {
    /// Reads and compiles a file. Letter case is ignored, unless the flag `i` stands behind the pattern; the other flags
    /// are `m` (`^` and `$` match at line ends), `s` (`.` matches a newline) and `x` (blanks and comments).
    ///
    /// # Errors
    /// The first fault with its place. Look-around and back-references are faults: no linear matcher has them.
    pub fn parse(file: &str) -> Result<Self, FileFault> {
        let mut patterns = Vec::new();
        for line in logical_lines(file) {
            let fault =
                |at: usize, what: String, help: &str| FileFault::at(file, line.offset(at), what, help);
            if patterns.len() == PATTERNS_MAX {
                return Err(fault(0, format!("more than {PATTERNS_MAX} patterns"), "use a text or cidr map"));
            }
            let parts = split(&line.text).map_err(|(at, what, help)| fault(at, what.to_owned(), help))?;
            // The parser says where a fault is; the compiler does not.
            if let Err(error) = regex_syntax::Parser::new().parse(parts.pattern) {
                let (at, what) = place(&error);
                return Err(fault(
                    parts.pattern_at + at,
                    what,
                    "write \\ before a character that stands for itself; patterns are those of Perl without look-around and back references",
                ));
            }
            let regex =
                compile(&parts).map_err(|what| fault(parts.pattern_at, what, "write a simpler pattern"))?;
            let template = Template::parse(parts.value, regex.captures_len()).map_err(|(at, what)| {
                fault(parts.value_at + at, what, "write $1, ${1} or, for a dollar, $$")
            })?;
            patterns.push((regex, template));
        }
        Ok(Self(patterns))
    }

    /// As [`Self::parse`], for aliases. Their keys are local parts without quotes, with any characters, and their values can name
    /// programs and files: a value with a group is a fault, as in Postfix.
    ///
    /// # Errors
    /// Those of [`Self::parse`], and groups, with their line.
    pub fn parse_for_aliases(file: &str) -> Result<Self, FileFault> {
        let patterns = Self::parse(file)?;
        let has_group = |(_, template): &(Regex, Template)| template.has_group();
        let Some(number) = patterns.0.iter().position(has_group) else { return Ok(patterns) };
        let line = logical_lines(file).nth(number);
        let at = line.map_or(0, |line| line.offset(line.text.find('$').unwrap_or(0)));
        let help = "write the targets, or use `addresses.virtual`";
        Err(FileFault::at(file, at, "values of aliases cannot have text of the address", help))
    }

    /// The value of the first pattern that matches.
    ///
    /// # Errors
    /// A group has text that could be more than a part of an address or of a name.
    pub fn get(&self, key: &str) -> Result<Option<String>, UnsafeGroup> {
        let found = |(regex, template): &(Regex, Template)| Some(template.fill(key, &regex.captures(key)?));
        self.0.iter().find_map(found).transpose()
    }

    /// Number of patterns.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the file has no pattern.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

struct Parts<'a> {
    pattern: &'a str,
    pattern_at: usize,
    flags: &'a str,
    value: &'a str,
    value_at: usize,
}

type SplitError = (usize, &'static str, &'static str);

/// Cuts `/pattern/flags value`.
fn split(text: &str) -> Result<Parts<'_>, SplitError> {
    const FORM: &str = "write /pattern/ value";
    let delimiter = text.chars().next().unwrap_or(' ');
    if delimiter == '!' || text.starts_with("if ") || text.starts_with("if/") || text.starts_with("endif") {
        return Err((0, "`!`, `if` and `endif` are not supported", "write each pattern in full"));
    }
    if !delimiter.is_ascii_punctuation() || delimiter == '\\' {
        return Err((0, "a line that does not begin with a pattern", FORM));
    }
    let (mut end, mut is_escaped) = (None, false);
    for (at, c) in text.char_indices().skip(1) {
        if c == delimiter && !is_escaped {
            end = Some(at);
            break;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    let end = end.ok_or((0, "the pattern does not end", FORM))?;
    let behind = &text[end + 1..];
    let flags_end = behind.find([' ', '\t']).unwrap_or(behind.len());
    let value = behind[flags_end..].trim();
    if value.is_empty() {
        return Err((text.len(), "the value is missing", FORM));
    }
    let value_at = text.len() - behind[flags_end..].trim_start().len();
    let flags = &behind[..flags_end];
    if let Some(at) = flags.find(|c| !"imsx".contains(c)) {
        return Err((end + 1 + at, "an unknown flag", "the flags are i, m, s and x"));
    }
    Ok(Parts { pattern: &text[1..end], pattern_at: 1, flags, value, value_at })
}

fn compile(parts: &Parts<'_>) -> Result<Regex, String> {
    // In a table of Postfix, `i` switches from ignoring case to heeding it.
    let has = |flag| parts.flags.matches(flag).count() % 2 == 1;
    let mut builder = RegexBuilder::new(parts.pattern);
    builder.case_insensitive(!has('i')).multi_line(has('m')).dot_matches_new_line(has('s'));
    builder.ignore_whitespace(has('x')).size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => format!("the compiled pattern is larger than {limit} bytes"),
        error => error.to_string().lines().last().unwrap_or_default().trim().to_owned(),
    })
}

/// Returns the place and the text of a fault in a pattern.
fn place(error: &regex_syntax::Error) -> (usize, String) {
    match error {
        regex_syntax::Error::Parse(error) => (error.span().start.offset, error.kind().to_string()),
        regex_syntax::Error::Translate(error) => (error.span().start.offset, error.kind().to_string()),
        error => (0, error.to_string()),
    }
}

impl Template {
    fn parse(value: &str, group_count: usize) -> Result<Self, (usize, String)> {
        let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), value);
        while let Some(at) = rest.find('$') {
            text.push_str(&rest[..at]);
            let position = value.len() - rest.len() + at;
            let behind = &rest[at + 1..];
            if let Some(more) = behind.strip_prefix('$') {
                text.push('$');
                rest = more;
                continue;
            }
            let (number, more) = group(behind).ok_or((position, "a `$` without a number".to_owned()))?;
            if number >= group_count {
                return Err((position, format!("the pattern has no group {number}")));
            }
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text).into()));
            }
            pieces.push(Piece::Group(number));
            rest = more;
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text.into()));
        }
        Ok(Self(pieces))
    }

    fn has_group(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Group(_)))
    }

    fn fill(&self, key: &str, found: &Captures<'_>) -> Result<String, UnsafeGroup> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Group(number) => {
                    let Some(group) = found.get(*number) else { continue };
                    if !is_harmless(key, group.range()) {
                        return Err(UnsafeGroup(group.as_str().into()));
                    }
                    filled.push_str(group.as_str());
                }
            }
        }
        Ok(filled)
    }
}

/// Text of a key that a value cannot have: a client writes the keys, and the comma of a quoted local part would be that of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsafeGroup(Box<str>);

impl fmt::Display for UnsafeGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value cannot have the text {:?} of the key", self.0)
    }
}

impl std::error::Error for UnsafeGroup {}

/// Returns whether a part of a key is also a part of an address or a name in a value. A local part in quotes is one as a whole; of
/// other local parts any part is, as long as it does not begin as a program, a file or an option does. The `@` in it is that of
/// the key.
fn is_harmless(key: &str, part: Range<usize>) -> bool {
    let at = key.rfind('@').unwrap_or(key.len());
    let (local, behind) =
        (&key[part.start.min(at)..part.end.min(at)], &key[part.start.max(at)..part.end.max(at)]);
    let is_of_name = |c: char| c.is_alphanumeric() || "-._:[]".contains(c);
    let is_quoted = part.start == 0
        && part.end >= at
        && local.len() > 1
        && local.starts_with('"')
        && local.ends_with('"');
    let is_of_atom = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`|~.".contains(c);
    // Addresses of clients are keys, too.
    let has_no_domain = at == key.len();
    let is_plain = || {
        let is_usual = |c| is_of_atom(c) || has_no_domain && ":[]".contains(c);
        !local.starts_with(['|', '/', '-', ':']) && !local.contains("..") && local.chars().all(is_usual)
    };
    (is_quoted || is_plain()) && behind.strip_prefix('@').unwrap_or(behind).chars().all(is_of_name)
}

/// Reads `1`, `{1}` or `(1)`, and returns the rest.
fn group(text: &str) -> Option<(usize, &str)> {
    let (inner, close) = match text.as_bytes().first()? {
        b'{' => (&text[1..], Some('}')),
        b'(' => (&text[1..], Some(')')),
        _ => (text, None),
    };
    let end = inner.find(|c: char| !c.is_ascii_digit()).unwrap_or(inner.len());
    let number = inner[..end].parse().ok()?;
    let rest = &inner[end..];
    match close {
        Some(close) => Some((number, rest.strip_prefix(close)?)),
        None => Some((number, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pattern_that_matches_decides_and_groups_are_filled_in() {
        let file = "# x\n/^(\\w+)\\.(\\w+)@old\\.test$/  ${2}.$1@new.test\n|^a/b$| slash $$5\n/^Case$/i exact\n\
                    /^joe/ first\n/joe/ second\n/x y/x blanks\n";
        let patterns = Patterns::parse(file).unwrap();
        for (key, value) in [
            ("Joe.Smith@OLD.test", Some("Smith.Joe@new.test")),
            ("a/b", Some("slash $5")),
            ("Case", Some("exact")),
            ("case", None),
            ("joe@b.test", Some("first")),
            ("a.joe@b.test", Some("second")),
            ("xy", Some("blanks")),
            ("", None),
        ] {
            assert_eq!(patterns.get(key).unwrap().as_deref(), value, "{key}");
        }
        assert_eq!(patterns.len(), 6);
    }

    #[test]
    fn text_of_a_client_stays_a_part_of_one_address() {
        let get = |file: &str, key: &str| Patterns::parse(file).unwrap().get(key).ok().flatten();
        let (user, inner) = ("/^(.*)@old\\.test$/ $1@new.test\n", "/list-(.*)-request/ $1@new.test\n");
        for (file, key, value) in [
            (user, "joe+x@old.test", "joe+x@new.test"),
            (user, "a/b=c@old.test", "a/b=c@new.test"),
            (user, "jürgen@old.test", "jürgen@new.test"),
            (user, "\"a, b@c.test\"@old.test", "\"a, b@c.test\"@new.test"),
            (inner, "list-joe-request@old.test", "joe@new.test"),
            (inner, "\"list-joe-request\"@old.test", "joe@new.test"),
            ("/^(.*)$/ $1, archive@new.test\n", "joe@old.test", "joe@old.test, archive@new.test"),
            ("/@(.*)$/ joe@$1\n", "x@[IPv6:2001:db8::1]", "joe@[IPv6:2001:db8::1]"),
            ("/^(.*)$/ is $1\n", "2001:db8::1", "is 2001:db8::1"),
        ] {
            assert_eq!(get(file, key).as_deref(), Some(value), "{key}");
        }
        for (file, key) in [
            (inner, "\"list-victim@far.test,joe-request\"@old.test"),
            (inner, "\"list-victim@far.test-request\"@old.test"),
            (inner, "\"list-a b-request\"@old.test"),
            (inner, "\"list-\\\"-request\"@old.test"),
            (inner, "\"list-../x-request\"@old.test"),
            (user, "|prog@old.test"),
            (user, "/etc/x@old.test"),
            (user, "-rf@old.test"),
            ("/^\"(.*)\"@/ $1\n", "\"victim@far.test\"@old.test"),
            ("/^(.*)$/ $1\n", "a, b"),
            ("/^(.*)$/ $1\n", ":include:/x"),
        ] {
            assert_eq!(Patterns::parse(file).unwrap().get(key).ok(), None, "{key}");
        }
        let fault = Patterns::parse_for_aliases("/a/ x\n/^(b)/ $1\n").unwrap_err();
        assert_eq!((fault.line, fault.column), (2, 8));
        Patterns::parse_for_aliases("/^(b)/ |/bin/x $$HOME\n").unwrap();
    }

    #[test]
    fn look_around_and_other_faults_are_told_with_line_and_column() {
        for (file, line, column) in [
            ("/a/ x\n/^(?!b)a/ x\n", 2, 3),
            ("/(?<=a)b/ x\n", 1, 2),
            ("/(a)\\1/ x\n", 1, 5),
            ("/a(/ x\n", 1, 3),
            ("/a/ $2\n", 1, 5),
            ("/a/ cost $x\n", 1, 10),
            ("/a/\n", 1, 4),
            ("/a/q x\n", 1, 4),
            ("/a x\n", 1, 1),
            ("joe x\n", 1, 1),
            ("if /a/\n", 1, 1),
            ("!/a/ x\n", 1, 1),
            ("/a{1000}{1000}/ x\n", 1, 2),
        ] {
            let fault = Patterns::parse(file).unwrap_err();
            assert_eq!((fault.line, fault.column), (line, column), "{file:?}: {fault}");
        }
        let fault = Patterns::parse("/^(?!b)a/ x\n").unwrap_err();
        assert!(fault.what.contains("look-around"), "{fault}");
    }

    #[test]
    fn a_pattern_that_others_take_for_ever_on_is_matched_in_linear_time() {
        let patterns = Patterns::parse("/^(a+)+$/ x\n").unwrap();
        let key = format!("{}b", "a".repeat(50_000));
        assert_eq!(patterns.get(&key), Ok(None));
    }
}
