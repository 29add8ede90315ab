//! `sendmail.mc`: calls of macros of m4.

use std::collections::HashMap;

/// A call, such as ``define(`confDOMAIN_NAME', `mx.test')``.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Macro {
    /// Such as `FEATURE`.
    pub name: String,
    /// Without their quotes.
    pub arguments: Vec<String>,
    /// Counted from 1.
    pub line: usize,
}

impl Macro {
    /// Returns an argument; nothing if it is not there.
    pub fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).map_or("", String::as_str)
    }
}

/// Reads the calls of a file. `define` counts in text that `divert(-1)` throws away, too: m4 throws away what is printed, and
/// no macro prints anything that matters here. What stands behind `dnl` or `#`, or in quotes, is no call. `include` returns
/// the text of a file that the text includes.
pub fn macros(file: &[u8], include: &dyn Fn(&str) -> Option<String>) -> Vec<Macro> {
    let mut reader = Reader { include, names: HashMap::new(), calls: Vec::new() };
    reader.read(&String::from_utf8_lossy(file), 1, 0);
    reader.calls
}

/// Files that include one another end at this depth, and so do names that stand for one another.
const DEPTH_MAX: usize = 10;

struct Reader<'a> {
    include: &'a dyn Fn(&str) -> Option<String>,
    /// Names that the text defines for itself.
    names: HashMap<String, String>,
    calls: Vec<Macro>,
}

impl Reader<'_> {
    fn read(&mut self, text: &str, first_line: usize, depth: usize) {
        let (mut rest, mut line) = (text, first_line);
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        while let Some(at) = rest.find(|c: char| is_word(c) || matches!(c, '#' | '\n' | '`')) {
            rest = &rest[at..];
            if let Some(behind) = rest.strip_prefix('\n') {
                line += 1;
                rest = behind;
                continue;
            }
            if rest.starts_with('`') {
                let end = quoted_len(rest);
                line += rest[..end].matches('\n').count();
                rest = &rest[end..];
                continue;
            }
            let (name, behind) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
            if name.is_empty() || name == "dnl" {
                rest = rest.find('\n').map_or("", |end| &rest[end..]);
                continue;
            }
            rest = behind;
            let Some(inner) = behind.strip_prefix('(') else {
                if BARE.contains(&name) {
                    self.calls.push(Macro { name: name.to_owned(), arguments: Vec::new(), line });
                }
                continue;
            };
            let (arguments, used) = arguments(inner);
            self.call(name, &arguments, line, depth);
            line += inner[..used].matches('\n').count();
            rest = &inner[used..];
        }
    }

    fn call(&mut self, name: &str, arguments: &[Argument], line: usize, depth: usize) {
        let values: Vec<String> = arguments.iter().map(|one| self.expanded(one, 0)).collect();
        let of = |index: usize| values.get(index).map_or("", String::as_str);
        match name {
            "divert" | "changecom" => {}
            "include" | "sinclude" if depth < DEPTH_MAX => match (self.include)(of(0)) {
                Some(text) => self.read(&text, line, depth + 1),
                None => self.calls.push(Macro { name: name.to_owned(), arguments: values, line }),
            },
            // The second argument is what follows from the name, the third what follows without it.
            "ifdef" => {
                let is_defined = self.names.contains_key(of(0))
                    || self.calls.iter().any(|call| call.name == "define" && call.argument(0) == of(0));
                if let Some(chosen) = arguments.get(if is_defined { 1 } else { 2 }) {
                    self.read(&chosen.text, line, depth + 1);
                }
            }
            "undefine" => {
                self.names.remove(of(0));
                self.calls.retain(|call| call.name != "define" || call.argument(0) != of(0));
                self.calls.push(Macro { name: name.to_owned(), arguments: values, line });
            }
            _ => {
                if name == "define" {
                    self.names.insert(of(0).to_owned(), of(1).to_owned());
                }
                self.calls.push(Macro { name: name.to_owned(), arguments: values, line });
            }
        }
    }

    /// Returns an argument with what the names in it stand for: a word without quotes may be a name.
    fn expanded(&self, argument: &Argument, depth: usize) -> String {
        let text = plain(&argument.text);
        match self.names.get(&text) {
            Some(value) if !argument.is_quoted && depth < DEPTH_MAX => {
                self.expanded(&Argument { text: value.clone(), is_quoted: false }, depth + 1)
            }
            _ => text,
        }
    }
}

/// Macros that stand without arguments.
const BARE: [&str; 6] = [
    "MAILER_DEFINITIONS",
    "LOCAL_CONFIG",
    "LOCAL_RULE_0",
    "LOCAL_RULE_1",
    "LOCAL_RULESETS",
    "LOCAL_NET_CONFIG",
];

struct Argument {
    text: String,
    is_quoted: bool,
}

/// Returns how long a quoted text is, quotes included; they may be nested.
fn quoted_len(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '`' => depth += 1,
            '\'' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// Reads arguments up to the closing parenthesis. Returns them, and the length of what was read.
fn arguments(text: &str) -> (Vec<Argument>, usize) {
    let (mut arguments, mut argument, mut quotes, mut depth) = (Vec::new(), String::new(), 0usize, 0usize);
    let (mut is_quoted, mut comment_end) = (false, 0);
    for (at, c) in text.char_indices() {
        if at < comment_end {
            continue;
        }
        match c {
            '`' => {
                quotes += 1;
                is_quoted = true;
                if quotes > 1 {
                    argument.push(c);
                }
                continue;
            }
            '\'' if quotes > 0 => {
                quotes -= 1;
                if quotes > 0 {
                    argument.push(c);
                }
                continue;
            }
            'd' if quotes == 0 && is_comment(&text[at..], &argument) => {
                comment_end = text[at..].find('\n').map_or(text.len(), |end| at + end + 1);
                continue;
            }
            '(' if quotes == 0 => depth += 1,
            ')' if quotes == 0 && depth == 0 => {
                arguments.push(Argument { text: argument.clone(), is_quoted });
                return (arguments, at + 1);
            }
            ')' if quotes == 0 => depth -= 1,
            ',' if quotes == 0 && depth == 0 => {
                arguments.push(Argument { text: argument.clone(), is_quoted });
                argument.clear();
                is_quoted = false;
                continue;
            }
            _ => {}
        }
        argument.push(c);
    }
    arguments.push(Argument { text: argument.clone(), is_quoted });
    (arguments, text.len())
}

/// Returns whether `dnl` begins here: a word of its own.
fn is_comment(text: &str, before: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let ends = text.strip_prefix("dnl").is_some_and(|rest| !rest.starts_with(is_word));
    ends && !before.ends_with(is_word)
}

fn plain(argument: &str) -> String {
    argument.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, usize, String)> {
        let include = |name: &str| (name == "/m4/site.m4").then(|| "define(`confX', `site')\n".to_owned());
        let calls = macros(text.as_bytes(), &include);
        calls.into_iter().map(|call| (call.name, call.line, call.arguments.join("|"))).collect()
    }

    #[test]
    fn calls_have_arguments_and_comments_are_left_out() {
        let found = read(
            "divert(0)dnl\ndnl define(`no', `y')\ndefine(`confX',dnl\n`a,b')dnl\n\
             FEATURE(`access_db', , `skip')dnl x\n# MAILER(`no')\n`define(no, z)'\nMASQUERADE_AS(a.test)\nMAILER_DEFINITIONS\nbroken(`",
        );
        let expected = [
            ("define", 3, "confX|a,b"),
            ("FEATURE", 5, "access_db||skip"),
            ("MASQUERADE_AS", 8, "a.test"),
            ("MAILER_DEFINITIONS", 9, ""),
            ("broken", 10, ""),
        ];
        assert_eq!(found, expected.map(|(name, line, text)| (name.to_owned(), line, text.to_owned())));
    }

    #[test]
    fn calls_count_where_output_is_thrown_away() {
        let found = read("divert(-1)dnl\nSmart hosts (see below)\ndefine(`SMART_HOST', `hub.test')dnl\n");
        assert_eq!(found, [("define".to_owned(), 3, "SMART_HOST|hub.test".to_owned())]);
    }

    #[test]
    fn names_stand_for_values_and_files_are_included() {
        let found = read(
            "define(`HUB', `hub.test')\ndefine(`SMART_HOST', HUB)\nifdef(`HUB', `MASQUERADE_AS(`a.test')', `MASQUERADE_AS(`b.test')')\n\
             sinclude(`/m4/site.m4')\nsinclude(`/m4/none.m4')\nundefine(`SMART_HOST')\n",
        );
        let expected = [
            ("define", 1, "HUB|hub.test"),
            ("MASQUERADE_AS", 3, "a.test"),
            ("define", 4, "confX|site"),
            ("sinclude", 5, "/m4/none.m4"),
            ("undefine", 6, "SMART_HOST"),
        ];
        assert_eq!(found, expected.map(|(name, line, text)| (name.to_owned(), line, text.to_owned())));
        assert_eq!(read("define(`HUB', `hub.test')\ndefine(`SMART_HOST', HUB)")[1].2, "SMART_HOST|hub.test");
    }
}
