//! Milters: `INPUT_MAIL_FILTER` and `MAIL_FILTER` of `sendmail.mc`, the lines `X` and `InputMailFilters` of `sendmail.cf`.

use super::Converter;
use crate::{
    Effect,
    draft::{Section, plain_word},
    milter,
    time::seconds,
};

impl Converter<'_> {
    pub(super) fn filters(&mut self) {
        let mut known: Vec<(String, String)> = Vec::new();
        let mut used: Vec<String> = Vec::new();
        for call in
            self.calls.iter().filter(|call| matches!(&*call.name, "INPUT_MAIL_FILTER" | "MAIL_FILTER"))
        {
            known.push((call.argument(0).to_owned(), call.argument(1).to_owned()));
            if call.name == "INPUT_MAIL_FILTER" {
                used.push(call.argument(0).to_owned());
            }
        }
        let listed =
            |list: &str| list.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if let Some(list) = self.defined("confINPUT_MAIL_FILTERS") {
            used = listed(list);
        }
        if known.is_empty() {
            let lines = self.cf.lines.iter().filter(|line| line.code == 'X');
            let split = lines.filter_map(|line| line.value.split_once(','));
            known.extend(split.map(|(name, equates)| (name.trim().to_owned(), equates.to_owned())));
            used = self.cf.option("InputMailFilters").map(listed).unwrap_or_default();
        }
        for name in used {
            match known
                .iter()
                .find(|(other, _)| *other == name)
                .and_then(|(_, equates)| section(&name, equates))
            {
                Some(section) => self.draft.push(section),
                None => {
                    let text =
                        format!("{name}: cannot read its equates: write [filter.NAME] (docs/filters.md)");
                    self.report.effect(Effect::Taken, "INPUT_MAIL_FILTER", text);
                }
            }
        }
    }
}

/// Returns the filter with these equates: `S=local:/run/x.sock, F=T, T=S:10s;R:10s;E:5m`.
fn section(name: &str, equates: &str) -> Option<Section> {
    let parts: Vec<(&str, &str)> = equates
        .split(',')
        .filter_map(|part| part.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    let value = |key: &str| parts.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
    let address = milter::address(value("S")?)?;
    let name = plain_word(name);
    // A local program hands its mail to the daemon, which asks its filters.
    let from = format!("the mail filter {name}");
    let mut section =
        Section::new(&format!("[filter.{name}]"), from).with("milter", address).with("local", true);
    for time in value("T").unwrap_or_default().split(';') {
        let key = match time.trim().chars().next() {
            Some('R') => "timeout",
            Some('E') => "content_timeout",
            _ => continue,
        };
        let seconds = time.split_once(':').and_then(|(_, time)| seconds(time, 'm'));
        section = milter::with_time(section, key, seconds);
    }
    // Without a flag, mail goes on as if the filter were not there.
    let fails = value("F").unwrap_or_default().contains(['T', 'R', '4']);
    Some(section.with_some("on_failure", (!fails).then_some("pass")))
}

#[cfg(test)]
mod tests {
    use crate::{memory_files::MemoryFiles, sendmail::convert};

    #[test]
    fn filters_of_both_files_have_their_sockets_flags_and_times() {
        let mc = "INPUT_MAIL_FILTER(`opendkim', `S=inet:8891@localhost')dnl\nMAIL_FILTER(`spam', `S=local:/run/spamass.sock, F=T, T=S:4m;R:4m;E:10m')dnl\n\
                  define(`confINPUT_MAIL_FILTERS', `spam, opendkim')dnl\n";
        let cf = "Xopendkim, S=inet:8891@localhost\nXspam, S=local:/run/spamass.sock, F=T, T=S:4m;R:4m;E:10m\nO InputMailFilters=spam,opendkim\n";
        let filters = "[filter.spam]\nmilter = \"unix:/run/spamass.sock\"\nlocal = true\ntimeout = \"25s\"\ncontent_timeout = \"540s\"\n\n\
                       # the mail filter opendkim\n[filter.opendkim]\nmilter = \"localhost:8891\"\nlocal = true\non_failure = \"pass\"\n";
        for (mc, cf) in [(Some(mc), None), (None, Some(cf)), (Some(mc), Some(cf))] {
            let (draft, report) =
                convert(mc.map(str::as_bytes), cf.map(str::as_bytes), "/etc/mail", &MemoryFiles(&[]))
                    .unwrap();
            assert!(draft.as_toml().contains(filters), "{}", draft.as_toml());
            assert!(!report.to_string().contains("FILTER"), "{report}");
        }
        let odd = "INPUT_MAIL_FILTER(`x', `F=T')dnl\n";
        let (draft, report) = convert(Some(odd.as_bytes()), None, "/etc/mail", &MemoryFiles(&[])).unwrap();
        assert!(
            !draft.as_toml().contains("[filter")
                && report.to_string().contains("accepted INPUT_MAIL_FILTER: x:"),
            "{report}"
        );
    }
}
