//! `main.cf`: parameters, and the expansion of `$name` in their values.

use std::collections::HashMap;

/// A parameter as `main.cf` sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// In front of the equals sign.
    pub name: String,
    /// On one line; `$name` is not expanded.
    pub value: String,
    /// Counted from 1.
    pub line: usize,
}

/// A file `main.cf`. Of a parameter that is set twice, the last one counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MainCf {
    /// The parameters that count, in the order of the file.
    pub parameters: Vec<Parameter>,
    /// Lines that are no parameters, with their numbers.
    pub faults: Vec<(usize, String)>,
    defaults: HashMap<String, String>,
}

/// Deeper expansions are loops.
const DEPTH_MAX: usize = 20;
/// Octets that a value may have after expansion.
const VALUE_MAX: usize = 1 << 20;

/// Cuts a file into logical lines: a line that begins with blanks continues the one before; lines with comments do not
/// end it.
pub(crate) fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        match lines.last_mut() {
            Some((_, last)) if line.starts_with([' ', '\t']) => {
                last.push(' ');
                last.push_str(trimmed);
            }
            _ => lines.push((number, trimmed.to_owned())),
        }
    }
    lines
}

impl MainCf {
    /// Reads a file. Bytes that are not UTF-8 are replaced.
    pub fn parse(file: &[u8]) -> Self {
        let text = String::from_utf8_lossy(file);
        let mut main = Self::default();
        for (line, text) in logical_lines(&text) {
            let Some((name, value)) = text.split_once('=') else {
                main.faults.push((line, text));
                continue;
            };
            let name = name.trim();
            if name.is_empty() || name.contains(char::is_whitespace) {
                main.faults.push((line, text.clone()));
                continue;
            }
            main.parameters.retain(|other| other.name != name);
            main.parameters.push(Parameter { name: name.to_owned(), value: value.trim().to_owned(), line });
        }
        main
    }

    /// Sets the value of a parameter that the file does not have.
    pub fn set_default(&mut self, name: &str, value: impl Into<String>) {
        self.defaults.insert(name.to_owned(), value.into());
    }

    /// Returns this file with the overrides of a service (`-o name=value`).
    #[must_use]
    pub fn with_overrides(&self, overrides: &[(String, String)]) -> Self {
        let mut main = self.clone();
        for (name, value) in overrides {
            main.parameters.retain(|other| other.name != *name);
            main.parameters.push(Parameter { name: name.clone(), value: value.clone(), line: 0 });
        }
        main
    }

    /// Returns the parameter if the file sets it; defaults are not asked.
    pub fn explicit(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// Returns the value that counts, expanded: that of the file, else the default, else nothing.
    pub fn value(&self, name: &str) -> String {
        self.expand(self.raw(name).unwrap_or_default())
    }

    /// Returns the value that counts, as it is written.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        let explicit = self.explicit(name).map(|parameter| &*parameter.value);
        explicit.or_else(|| self.defaults.get(name).map(String::as_str))
    }

    /// Expands `$name`, `${name}`, `$(name)`, `${name?text}`, `${name:text}` and `${name?{text}:{text}}`. `$$` is a
    /// dollar.
    pub fn expand(&self, text: &str) -> String {
        let mut out = String::new();
        self.expand_into(text, 0, &mut out);
        out.trim().to_owned()
    }

    fn expand_into(&self, text: &str, depth: usize, out: &mut String) {
        if depth > DEPTH_MAX {
            return;
        }
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            if out.len() > VALUE_MAX {
                return;
            }
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            let close = match rest.chars().next() {
                Some('$') => {
                    out.push('$');
                    rest = &rest[1..];
                    continue;
                }
                Some('{') => '}',
                Some('(') => ')',
                _ => {
                    let end =
                        rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                    let (name, behind) = rest.split_at(end);
                    self.expand_into(self.raw(name).unwrap_or_default(), depth + 1, out);
                    rest = behind;
                    continue;
                }
            };
            let Some(end) = closing(rest, close) else {
                out.push('$');
                continue;
            };
            self.conditional(&rest[1..end], depth, out);
            rest = &rest[end + 1..];
        }
        out.push_str(rest);
    }

    /// Expands the inner part of `${…}`.
    fn conditional(&self, inner: &str, depth: usize, out: &mut String) {
        let Some(at) = inner.find(['?', ':']) else {
            return self.expand_into(self.raw(inner.trim()).unwrap_or_default(), depth + 1, out);
        };
        let (name, operator, rest) = (inner[..at].trim(), inner.as_bytes()[at], &inner[at + 1..]);
        let is_set = !self.value(name).is_empty();
        let (first, second) = match rest.trim().strip_prefix('{').and_then(|_| closing(rest.trim(), '}')) {
            Some(end) => {
                let rest = rest.trim();
                let behind = rest[end + 1..].trim().strip_prefix(':').unwrap_or_default().trim();
                let other =
                    behind.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(behind);
                (&rest[1..end], other)
            }
            None => (rest, ""),
        };
        let chosen = match (operator, is_set) {
            (b'?', true) | (b':', false) => first,
            _ => second,
        };
        self.expand_into(chosen.trim(), depth + 1, out);
    }
}

/// Returns the index of the bracket that closes the one at the beginning of `text`.
pub(super) fn closing(text: &str, close: char) -> Option<usize> {
    let open = text.chars().next()?;
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// Cuts a value at commas and blanks; what stands in braces stays together.
pub(crate) fn items(value: &str) -> Vec<String> {
    let (mut items, mut item, mut depth) = (Vec::new(), String::new(), 0usize);
    for c in value.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            c if depth == 0 && (c == ',' || c.is_whitespace()) => {
                if !item.is_empty() {
                    items.push(std::mem::take(&mut item));
                }
                continue;
            }
            _ => {}
        }
        item.push(c);
    }
    if !item.is_empty() {
        items.push(item);
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_parameter_counts_and_lines_go_on() {
        let main = MainCf::parse(b"a = 1\n# c\nb =\n  x,\n# c\n\n  y\na=2\nno parameter\n");
        assert_eq!((main.value("a"), main.value("b")), ("2".to_owned(), "x, y".to_owned()));
        assert_eq!(main.explicit("a").unwrap().line, 8);
        assert_eq!(main.faults, [(9, "no parameter".to_owned())]);
    }

    #[test]
    fn values_are_expanded() {
        let mut main = MainCf::parse(
            b"h = mx.test\nd = a $h b\nl = $l x\ne =\nc = ${e?never}${e:unset}${h?{$h}:{no}}\np = $(h)$$\n",
        );
        main.set_default("m", "$h!");
        assert_eq!(main.value("d"), "a mx.test b");
        assert_eq!(main.value("c"), "unsetmx.test");
        assert_eq!((main.value("p"), main.value("m")), ("mx.test$".to_owned(), "mx.test!".to_owned()));
        assert!(main.value("l").len() < 200, "a loop ends");
        assert_eq!(main.expand("${h"), "${h");
    }

    #[test]
    fn items_in_braces_stay_together() {
        assert_eq!(items("a, b\tinline:{x = y, z},c"), ["a", "b", "inline:{x = y, z}", "c"]);
    }
}
