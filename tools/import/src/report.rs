//! The treatment of each setting.

use std::fmt;

/// A part of notes that do not hold where the daemon delivers as other users.
pub(crate) const AS_DAEMON: &str = "the daemon's user must be able to write";

/// What becomes of mail that Postrider treats in another way, worst for the reader first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Mail is refused, or waits, that the other server took.
    Refused,
    /// Mail is taken that the other server refused.
    Taken,
    /// Mail goes elsewhere.
    Elsewhere,
    /// The sender or a recipient of mail changes that did not, or the other way round.
    Addresses,
    /// Somebody may do what the other server did not permit.
    Opened,
}

impl Effect {
    /// Returns the word for it in the report.
    fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Taken => "accepted",
            Self::Elsewhere => "rerouted",
            Self::Addresses => "changed",
            Self::Opened => "opened",
        }
    }
}

/// What became of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Postrider does the same.
    Mapped,
    /// Postrider does nearly the same: the sentence says what is different.
    Note(String),
    /// Postrider has no such thing: the sentence says what to do instead.
    Missing(String),
    /// A setting that the import does not know.
    Unknown,
}

impl Verdict {
    /// Returns the verdict of two parts of a setting: the worse one, with the sentences of both.
    pub(crate) fn and(self, other: Self) -> Self {
        let joined = |before: String, text: String| match (before.contains(&text), before.is_empty()) {
            (true, _) => before,
            (false, true) => text,
            (false, false) => format!("{before}; {text}"),
        };
        match (self, other) {
            (Self::Missing(before), Self::Missing(text) | Self::Note(text))
            | (Self::Note(before), Self::Missing(text)) => Self::Missing(joined(before, text)),
            (Self::Note(before), Self::Note(text)) => Self::Note(joined(before, text)),
            (known @ (Self::Note(_) | Self::Missing(_)), _) => known,
            (_, other) => other,
        }
    }
}

/// One setting of the other server, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// File and line, such as `main.cf:12`.
    pub place: String,
    /// As the file has it.
    pub name: String,
    /// What became of the setting.
    pub verdict: Verdict,
}

/// All settings of a configuration, in the order of its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order of the files.
    pub entries: Vec<Entry>,
    /// What matters most: mail that is treated in another way, the setting that says so, and what to do.
    pub effects: Vec<(Effect, String, String)>,
    /// Facts about the result that belong to no setting, a sentence each.
    pub notes: Vec<String>,
}

impl Report {
    /// Adds what became of a setting.
    pub(crate) fn add(&mut self, place: impl Into<String>, name: impl Into<String>, verdict: Verdict) {
        self.entries.push(Entry { place: place.into(), name: name.into(), verdict });
    }

    /// Adds a setting. With an effect, one without a counterpart stands at the top of the report, under what happens to the mail.
    pub(crate) fn add_with(&mut self, place: &str, name: &str, verdict: Verdict, effect: Option<Effect>) {
        match (verdict, effect) {
            (Verdict::Missing(text), Some(effect)) if !text.is_empty() => {
                self.effect(effect, &format!("{place} {name}"), text);
                self.add(place, name, Verdict::Missing(String::new()));
            }
            (verdict, _) => self.add(place, name, verdict),
        }
    }

    /// Adds mail that is treated in another way.
    pub(crate) fn effect(&mut self, effect: Effect, name: &str, text: impl Into<String>) {
        let entry = (effect, name.to_owned(), text.into());
        if !self.effects.contains(&entry) {
            self.effects.push(entry);
        }
    }

    /// Returns the number of settings whose verdict is like this one.
    fn count(&self, is_like: fn(&Verdict) -> bool) -> usize {
        self.entries.iter().filter(|entry| is_like(&entry.verdict)).count()
    }

    /// Returns the number of settings that are mapped without a note.
    pub fn mapped_count(&self) -> usize {
        self.count(|verdict| *verdict == Verdict::Mapped)
    }

    /// Returns the number of settings that are mapped with a note.
    pub fn note_count(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Note(_)))
    }

    /// Returns the number of settings without a counterpart.
    pub fn missing_count(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Missing(_)))
    }

    /// Returns the number of unknown settings.
    pub fn unknown_count(&self) -> usize {
        self.count(|verdict| *verdict == Verdict::Unknown)
    }
}

/// `1 changes`, `2 change`.
fn changes(count: usize) -> String {
    format!("{count} change{}", if count == 1 { "s" } else { "" })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} settings: {} mapped, {} with a note, {} without a counterpart",
            self.entries.len(),
            self.mapped_count(),
            self.note_count(),
            self.missing_count()
        )?;
        if let count @ 1.. = self.unknown_count() {
            write!(f, ", {count} unknown")?;
        }
        if !self.effects.is_empty() {
            write!(f, "; {} what happens to mail", changes(self.effects.len()))?;
        }
        writeln!(f)?;
        let mut effects: Vec<_> = self.effects.iter().collect();
        effects.sort_by_key(|(effect, ..)| *effect);
        effects
            .iter()
            .try_for_each(|(effect, name, what)| writeln!(f, "{:9}{name}: {what}", effect.as_str()))?;
        for Entry { place, name, verdict } in &self.entries {
            match verdict {
                Verdict::Mapped => {}
                // Told above.
                Verdict::Note(what) | Verdict::Missing(what) if what.is_empty() => {}
                Verdict::Note(what) => writeln!(f, "note     {place} {name}: {what}")?,
                Verdict::Missing(what) => writeln!(f, "missing  {place} {name}: {what}")?,
                Verdict::Unknown => writeln!(f, "unknown  {place} {name}")?,
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note     {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_counts_and_names_what_is_not_mapped() {
        let mut report = Report::default();
        report.add("main.cf:1", "myhostname", Verdict::Mapped);
        report.add("main.cf:2", "content_filter", Verdict::Missing("do x".to_owned()));
        report.add("main.cf:3", "typo", Verdict::Unknown);
        report.notes.push("the key was copied".to_owned());
        assert_eq!(
            report.to_string(),
            "3 settings: 1 mapped, 0 with a note, 1 without a counterpart, 1 unknown\n\
             missing  main.cf:2 content_filter: do x\nunknown  main.cf:3 typo\nnote     the key was copied\n"
        );
    }
}
