//! `sendmail.mc`: calls of macros of m4.

/// A call, such as ``define(`confDOMAIN_NAME', `mx.test')``.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Macro {
    /// The name.
    pub name: String,
    /// The arguments, without quotes.
    pub arguments: Vec<String>,
    /// The number of the line, counted from 1.
    pub line: usize,
}

impl Macro {
    /// Returns an argument; nothing if it is not there.
    pub fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).map_or("", String::as_str)
    }
}

/// Reads the calls of a file. Words between `divert(-1)` and the next `divert`, and what stands behind `dnl`, are comments.
pub fn macros(file: &[u8]) -> Vec<Macro> {
    let text = String::from_utf8_lossy(file);
    let (mut calls, mut rest, mut line) = (Vec::new(), &*text, 1);
    let mut is_diverted = false;
    while let Some(at) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '#' || c == '_' || c == '\n') {
        rest = &rest[at..];
        if let Some(behind) = rest.strip_prefix('\n') {
            line += 1;
            rest = behind;
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        if name.is_empty() || name == "dnl" {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        }
        rest = behind;
        let Some(inner) = behind.strip_prefix('(') else {
            if !is_diverted && name.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
                calls.push(Macro { name: name.to_owned(), arguments: Vec::new(), line });
            }
            continue;
        };
        let (arguments, used) = arguments(inner);
        if name == "divert" {
            is_diverted = arguments.first().is_some_and(|number| number == "-1");
        } else {
            // Only the output is diverted: what is called has its effect.
            calls.push(Macro { name: name.to_owned(), arguments, line });
        }
        line += inner[..used].matches('\n').count();
        rest = &inner[used..];
    }
    calls
}

/// Reads arguments up to the closing parenthesis. Returns them, and the length of what was read.
fn arguments(text: &str) -> (Vec<String>, usize) {
    let (mut arguments, mut argument, mut quotes, mut depth) = (Vec::new(), String::new(), 0usize, 0usize);
    for (at, c) in text.char_indices() {
        match c {
            '`' => {
                quotes += 1;
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
            '(' if quotes == 0 => depth += 1,
            ')' if quotes == 0 && depth == 0 => {
                arguments.push(plain(&argument));
                return (arguments, at + 1);
            }
            ')' if quotes == 0 => depth -= 1,
            ',' if quotes == 0 && depth == 0 => {
                arguments.push(plain(&argument));
                argument.clear();
                continue;
            }
            _ => {}
        }
        argument.push(c);
    }
    arguments.push(plain(&argument));
    (arguments, text.len())
}

/// `dnl` and what follows on its line is a comment, in arguments, too.
fn plain(argument: &str) -> String {
    let lines = argument.lines().map(str::trim).filter(|line| *line != "dnl");
    lines.collect::<Vec<_>>().join(" ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_arguments_and_comments_are_left_out() {
        let calls = macros(
            b"divert(-1)\ndefine(`no', `x')\ndivert(0)dnl\ndnl define(`no', `y')\ndefine(`confX',dnl\n`a,b')dnl\n\
              FEATURE(`access_db', , `skip')dnl x\n# MAILER(`no')\nMASQUERADE_AS(a.test)\nMAILER_DEFINITIONS\nbroken(`",
        );
        let found: Vec<_> =
            calls.iter().map(|call| (&*call.name, call.line, call.arguments.join("|"))).collect();
        assert_eq!(
            found,
            [
                ("define", 2, "no|x".to_owned()),
                ("define", 5, "confX|a,b".to_owned()),
                ("FEATURE", 7, "access_db||skip".to_owned()),
                ("MASQUERADE_AS", 9, "a.test".to_owned()),
                ("MAILER_DEFINITIONS", 10, String::new()),
                ("broken", 11, String::new()),
            ]
        );
    }
}
