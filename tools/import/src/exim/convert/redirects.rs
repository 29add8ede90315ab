//! Routers that replace addresses by others.

use super::{
    lookups::{self, Lookup},
    monolithic::Converter,
};
use crate::places::is_domain;
use crate::{Effect, Report, Verdict, draft::Section, exim::conf::Driver, forward};
use std::path::Path;

impl Converter<'_> {
    /// Aliases, virtual addresses, and mail that is refused.
    pub(super) fn redirect(&mut self, router: &Driver) -> Verdict {
        if !router.option("file").is_empty() {
            if router.option("file") != "$home/.forward" {
                return Verdict::Missing("only .forward files in home directories are read".to_owned());
            }
            return match forward::obey(self.files, &mut self.draft, "file") {
                None => Verdict::Note(
                    "no user has a .forward file; set addresses.forward to read them".to_owned(),
                ),
                Some(text) => Verdict::Note(text),
            };
        }
        if is_refusal(router) {
            if router.option("domains").starts_with('!') {
                let text = lookups::reply_text(router.option("data")[":fail:".len()..].trim());
                let text = if text.is_empty() { "Unrouteable address".to_owned() } else { text };
                let section = Section::new("[[route]]", format!("router {}", router.name));
                let section = section.with("domains", vec!["*".to_owned()]);
                self.late.push(section.with("reject", format!("550 5.1.2 {text}")));
            }
            return Verdict::Mapped;
        }
        let data = router.option("data");
        let Some(lookup) = Lookup::parse(data) else {
            if let Some(domain) =
                data.strip_prefix("$local_part@").or_else(|| data.strip_prefix("${local_part}@"))
                && is_domain(domain)
            {
                let own = self.places.own.iter().filter(|own| *own != domain);
                let text: String = own.map(|own| format!("@{own} @{domain}\n")).collect();
                self.draft.append_file("virtual", &text);
                self.draft.extend("[addresses]", "virtual", ["text:virtual".to_owned()], &router.name);
                return Verdict::Note("addresses.virtual redirects mail for the local domains".to_owned());
            }
            return Verdict::Missing("write a map for addresses.virtual or addresses.aliases".to_owned());
        };
        let is_for_domains = router.option("domains").contains(';') || lookup.file.contains("$domain");
        if lookup.is_for_addresses() || is_for_domains {
            return self.virtual_addresses(router, &lookup);
        }
        let file = &*lookup.file;
        let Some(content) = self.files.read(Path::new(file)) else {
            return Verdict::Note(format!("there is no file {file}"));
        };
        self.draft.extend("[addresses]", "aliases", [format!("aliases:{file}")], &router.name);
        tell_programs(&mut self.report, &format!("router {}", router.name), file, &content);
        Verdict::Mapped
    }

    /// Addresses of some domains, in one file or in a file for each domain.
    fn virtual_addresses(&mut self, router: &Driver, lookup: &Lookup) -> Verdict {
        let domains = self
            .router_domains(router)
            .unwrap_or_else(|| self.places.own.iter().chain(&self.places.of_addresses).cloned().collect());
        let (mut found, mut missing) = (lookups::Addresses::default(), Vec::new());
        let of_domain = |domain: &str| {
            lookup
                .file
                .replace("${domain}", domain)
                .replace("$domain_data", domain)
                .replace("$domain", domain)
        };
        let files: Vec<(String, Vec<String>)> = if lookup.file.contains("$domain") {
            domains.iter().map(|domain| (of_domain(domain), vec![domain.clone()])).collect()
        } else {
            vec![(lookup.file.clone(), domains)]
        };
        for (file, domains) in files {
            match self.files.read(Path::new(&file)) {
                Some(text) => {
                    lookups::addresses(lookup, &String::from_utf8_lossy(&text), &domains, &mut found);
                }
                None => missing.push(format!("there is no file {file}")),
            }
        }
        missing.extend(std::mem::take(&mut found.others));
        found.write(&mut self.draft, &router.name);
        if missing.is_empty() {
            Verdict::Note(format!(
                "{} is copied to the file `virtual`: edit the copy from now on",
                lookup.file
            ))
        } else {
            Verdict::Missing(format!("write addresses.virtual, or a [[rule]], for: {}", missing.join("; ")))
        }
    }
}

/// Tells of aliases to programs and files, which the configuration does not name.
pub(super) fn tell_programs(report: &mut Report, setting: &str, file: &str, content: &[u8]) {
    let text = String::from_utf8_lossy(content);
    let is_file = |line: &str| line.split_once(':').is_some_and(|(_, to)| to.trim().starts_with('/'));
    if text.contains('|') || text.lines().any(is_file) {
        let text = format!(
            "{file} delivers to programs or files: mail for them is deferred until addresses.programs and addresses.files list them"
        );
        report.effect(Effect::Refused, setting, text);
    }
}

/// Returns whether the router refuses everything that comes to it.
pub(super) fn is_refusal(router: &Driver) -> bool {
    router.option("driver") == "redirect" && router.option("data").to_lowercase().starts_with(":fail:")
}
