//! `sendmail.cf`: lines with a letter in front.

/// A line of the file, with the lines that continue it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CfLine {
    /// The letter: `D`, `C`, `F`, `O`, `K`, `M`, `R` and so on.
    pub code: char,
    /// Behind the letter.
    pub value: String,
    /// Counted from 1.
    pub line: usize,
}

/// What `sendmail.cf` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cf {
    /// In the order of the file, with continued lines joined.
    pub lines: Vec<CfLine>,
    /// The files of m4 that it was made of: those of `FEATURE` leave their names in comments.
    pub features: Vec<String>,
}

impl Cf {
    /// Reads the file; bytes that are no UTF-8 are replaced.
    pub fn parse(file: &[u8]) -> Self {
        let text = String::from_utf8_lossy(file);
        let mut lines: Vec<CfLine> = Vec::new();
        let features =
            text.split("$Id: ").skip(1).filter_map(|rest| Some(rest.split_once(".m4,")?.0.to_owned()));
        for (number, line) in (1..).zip(text.lines()) {
            if line.starts_with([' ', '\t']) {
                if let Some(last) = lines.last_mut() {
                    last.value.push(' ');
                    last.value.push_str(line.trim());
                }
                continue;
            }
            let line = line.trim_end();
            let Some(code) = line.chars().next().filter(|code| *code != '#') else { continue };
            lines.push(CfLine { code, value: line[code.len_utf8()..].to_owned(), line: number });
        }
        Self { lines, features: features.filter(|name| !name.contains(char::is_whitespace)).collect() }
    }

    /// Returns the value of a macro: `Dj` is the hostname, `DS` the smart host.
    pub fn macro_value(&self, name: &str) -> Option<&str> {
        let values = self.lines.iter().filter(|line| line.code == 'D');
        values.filter_map(|line| behind_name(&line.value, name)).next_back()
    }

    /// Returns the words of a class, without those of its files. `$={name}` stands for another class.
    pub fn class(&self, name: &str) -> Vec<String> {
        self.class_within(name, 0)
    }

    fn class_within(&self, name: &str, depth: usize) -> Vec<String> {
        let lines = self.lines.iter().filter(|line| line.code == 'C');
        let words = lines.filter_map(|line| behind_name(&line.value, name));
        let words = words.flat_map(str::split_whitespace).flat_map(|word| match word.strip_prefix("$=") {
            Some(other) if depth < 10 => self.class_within(other, depth + 1),
            _ => vec![word.to_owned()],
        });
        words.collect()
    }

    /// Returns the files that a class is read from.
    pub fn class_files(&self, name: &str) -> Vec<String> {
        let lines = self.lines.iter().filter(|line| line.code == 'F');
        let files = lines.filter_map(|line| behind_name(&line.value, name));
        files
            .filter_map(|file| file.split_whitespace().rfind(|word| word.starts_with('/')))
            .map(str::to_owned)
            .collect()
    }

    /// Returns the value of an option: `O Name=value`.
    pub fn option(&self, name: &str) -> Option<&str> {
        let options = self.lines.iter().rev().filter(|line| line.code == 'O');
        options.filter_map(|line| value_of(&line.value, name)).next()
    }

    /// Returns the values of an option that may stand several times.
    pub fn options<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a str> {
        self.lines.iter().filter(|line| line.code == 'O').filter_map(move |line| value_of(&line.value, name))
    }

    /// Returns the mailer of users of this machine: that of the rule for their names.
    pub fn local_mailer(&self) -> Option<&str> {
        let is_it = |line: &&CfLine| line.code == 'R' && line.value.contains("regular local names");
        let rule = self.lines.iter().find(is_it)?.value.split("$#").nth(1)?;
        rule.split_whitespace().next()
    }

    /// Returns the definition of a mailer: `Mrelay, P=[IPC], A=TCP $h`.
    pub fn mailer(&self, name: &str) -> Option<&str> {
        let mut mailers = self.lines.iter().filter(|line| line.code == 'M').map(|line| &*line.value);
        mailers.find(|value| value.split(',').next().is_some_and(|found| found.trim() == name))
    }

    /// Returns the file of a map: `Kname type -o /etc/mail/file`.
    pub fn map_file(&self, name: &str) -> Option<String> {
        let map = self
            .lines
            .iter()
            .filter(|line| line.code == 'K')
            .find(|line| line.value.split_whitespace().next() == Some(name))?;
        let file = map.value.split_whitespace().rfind(|word| word.starts_with('/'))?;
        Some(file.strip_suffix(".db").unwrap_or(file).to_owned())
    }
}

/// Returns the lines of `sendmail.cf` that `sendmail.mc` has behind LOCAL_CONFIG.
pub(super) fn local_config(mc: &[u8]) -> Cf {
    let text = String::from_utf8_lossy(mc);
    let mut is_within = false;
    let mut lines = String::new();
    for line in text.lines() {
        let word = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        match word {
            "LOCAL_CONFIG" => is_within = true,
            "MAILER_DEFINITIONS" | "MAILER" => is_within = false,
            word if word.starts_with("LOCAL_") => is_within = false,
            // A macro of m4.
            word if line[word.len()..].starts_with('(') || word == "dnl" => {}
            _ if is_within => lines += &format!("{}\n", line.split("dnl").next().unwrap_or_default()),
            _ => {}
        }
    }
    Cf::parse(lines.as_bytes())
}

/// Returns what stands behind the name of a macro or a class; one of a letter may have braces, as `C{w}`.
fn behind_name<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let braced = || text.strip_prefix('{')?.strip_prefix(name)?.strip_prefix('}');
    text.strip_prefix(name).or_else(braced)
}

/// Returns the text behind `Name=`; `None` if it begins otherwise.
fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (found, value) = text.trim_start().split_once('=')?;
    found.trim().eq_ignore_ascii_case(name).then_some(value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_macros_classes_options_and_maps() {
        let cf = Cf::parse(
            b"#####  $Id: delay_checks.m4,v 8.9 ca Exp $  #####\nDjmx.test\nDSrelay:[hub.test]\nCwlocalhost a.test\nCw b.test\nC{w}c.test\nFw-o /etc/mail/local-host-names %[^\\#]\n\
              O MaxMessageSize=100\nO DaemonPortOptions=Name=MTA,\n\tPort=smtp\nO DaemonPortOptions=Port=587\n\
              Kaccess hash -T<TMPF> -o /etc/mail/access.db\n",
        );
        assert_eq!(
            (cf.macro_value("j"), cf.macro_value("S"), cf.macro_value("x")),
            (Some("mx.test"), Some("relay:[hub.test]"), None)
        );
        assert_eq!(cf.class("w"), ["localhost", "a.test", "b.test", "c.test"]);
        assert_eq!(cf.features, ["delay_checks"]);
        assert_eq!(cf.class_files("w"), ["/etc/mail/local-host-names"]);
        assert_eq!(cf.options("daemonportoptions").collect::<Vec<_>>(), ["Name=MTA, Port=smtp", "Port=587"]);
        assert_eq!(
            (cf.option("MaxMessageSize"), cf.map_file("access").as_deref()),
            (Some("100"), Some("/etc/mail/access"))
        );
    }
}
