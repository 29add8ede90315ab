//! State of a conversion: what was read, what is written, and the verdicts so far.

use super::{
    super::{
        access::network,
        main_cf::{MainCf, items},
        master_cf::MasterCf,
        restrictions::Lists,
        table::{self, Purpose, Table, TableEntry},
    },
    users::Unlisted,
};
use crate::{Draft, Files, Report, Verdict, draft::Section, places::is_domain, report::Effect};
use ipnet::IpNet;
use std::{collections::HashMap, path::Path};

/// A listener that clients connect to.
#[derive(Debug, Clone)]
pub(in super::super) struct Door {
    /// For `kind` of its `[[listen]]`.
    pub(in super::super) kind: &'static str,
    /// With the overrides of its service.
    pub(in super::super) lists: Lists,
    /// In `master.cf`.
    pub(super) line: usize,
}

/// State of a conversion.
pub(in super::super) struct Context<'a> {
    pub(in super::super) main: MainCf,
    pub(in super::super) master: MasterCf,
    pub(in super::super) files: &'a dyn Files,
    pub(in super::super) draft: Draft,
    pub(in super::super) hostname: String,
    /// The queue directory: sockets are named below it.
    pub(in super::super) queue: String,
    verdicts: HashMap<String, Verdict>,
    /// Verdicts about overrides in `master.cf`: line, name, verdict.
    overrides: Vec<(usize, String, Verdict)>,
    notes: Vec<String>,
    /// What matters most.
    effects: Vec<(Effect, String, String)>,
    /// In the order of `master.cf`.
    pub(in super::super) doors: Vec<Door>,
    /// Recipients that rules refuse.
    pub(super) unlisted: Vec<Unlisted>,
    /// `mynetworks`, expanded.
    pub(in super::super) networks: Vec<String>,
    /// The domains whose mail everybody may send, as patterns of recipients.
    pub(in super::super) destinations: Vec<String>,
    /// Whether these, and no others, are in `relay.networks`.
    pub(in super::super) are_relayed: bool,
    /// Those of `mynetworks` may relay, and perhaps others.
    pub(in super::super) do_networks_relay: bool,
    /// Some clients that are not in `mynetworks` may relay.
    pub(in super::super) do_others_relay: bool,
}

/// Defaults of Postfix that other values refer to.
const DEFAULTS: [(&str, &str); 20] = [
    ("myorigin", "$myhostname"),
    ("mydestination", "$myhostname, localhost.$mydomain, localhost"),
    ("inet_interfaces", "all"),
    ("inet_protocols", "all"),
    ("queue_directory", "/var/spool/postfix"),
    ("alias_maps", "hash:/etc/aliases"),
    ("virtual_alias_domains", "$virtual_alias_maps"),
    ("local_recipient_maps", "proxy:unix:passwd.byname $alias_maps"),
    ("local_transport", "local:$myhostname"),
    ("relay_transport", "relay"),
    ("virtual_transport", "virtual"),
    ("default_transport", "smtp"),
    ("mail_spool_directory", "/var/mail"),
    ("message_size_limit", "10240000"),
    ("smtpd_relay_restrictions", "permit_mynetworks, permit_sasl_authenticated, defer_unauth_destination"),
    ("process_id_directory", "pid"),
    ("mail_owner", "postfix"),
    ("smtpd_sasl_type", "cyrus"),
    ("smtpd_sasl_path", "smtpd"),
    ("delay_warning_time", "0h"),
];

impl<'a> Context<'a> {
    pub(super) fn new(mut main: MainCf, master: MasterCf, dir: &str, files: &'a dyn Files) -> Self {
        let machine = files.machine();
        DEFAULTS.iter().for_each(|(name, value)| main.set_default(name, *value));
        main.set_default("config_directory", dir);
        main.set_default("mydomain", machine.split_once('.').map_or("localdomain", |(_, domain)| domain));
        let full = if machine.contains('.') { machine } else { format!("{machine}.$mydomain") };
        main.set_default("myhostname", full);
        if let Some((_, domain)) = main.value("myhostname").split_once('.') {
            main.set_default("mydomain", domain);
        }
        let (hostname, queue) = (main.value("myhostname").to_lowercase(), main.value("queue_directory"));
        let head = [
            "Written by `postrider import postfix` from main.cf and master.cf.",
            "Check it with `postrider config check`, and read the import's report.",
        ];
        Self {
            main,
            master,
            files,
            draft: Draft::new(&head),
            hostname,
            queue,
            verdicts: HashMap::new(),
            overrides: Vec::new(),
            notes: Vec::new(),
            effects: Vec::new(),
            doors: Vec::new(),
            unlisted: Vec::new(),
            networks: Vec::new(),
            destinations: Vec::new(),
            are_relayed: true,
            do_networks_relay: true,
            do_others_relay: false,
        }
    }

    /// Writes the names of this server.
    pub(super) fn names(&mut self) {
        self.mapped("myhostname");
        self.mapped("mydomain");
        let from = self.place("myhostname");
        self.draft.set("", "hostname", self.hostname.clone(), &from);
        self.draft.set("", "data_dir", "/var/lib/postrider", "");
        let origin = self.origin();
        if !origin.eq_ignore_ascii_case(&self.hostname) {
            // The map is for this host alone: other hosts below the domain have senders of their own.
            let (host, origin) = (self.hostname.clone(), origin.to_lowercase());
            self.draft.add_file("origin", format!("@{host} @{origin}\n"), false);
            self.draft.extend("[addresses]", "generic", ["text:origin".to_owned()], "myorigin");
            self.effect(Effect::Addresses, "myorigin", format!("addresses without a domain get {host} here, and {origin} when the mail leaves; so do clients' sender addresses at {host}, which Postfix does not change"));
        } else {
            self.mapped("myorigin");
        }
    }

    /// Returns `myorigin`, which may be the name of a file.
    pub(super) fn origin(&self) -> String {
        let origin = self.main.value("myorigin");
        if !origin.starts_with('/') {
            return origin;
        }
        let file = self.files.read(Path::new(&origin)).unwrap_or_default();
        let name = String::from_utf8_lossy(&file).lines().next().unwrap_or_default().trim().to_owned();
        if name.is_empty() { self.hostname.clone() } else { name }
    }

    /// Returns the domains of this machine that are named, and no exclusions, files or tables.
    pub(super) fn own_domains(&self) -> Vec<String> {
        let names = items(&self.main.value("mydestination")).into_iter().map(|name| name.to_lowercase());
        names.filter(|name| is_domain(name)).collect()
    }

    /// Returns the place of a parameter, for a comment.
    pub(in super::super) fn place(&self, name: &str) -> String {
        match self.main.explicit(name) {
            Some(parameter) if parameter.line > 0 => format!("{name}, main.cf:{}", parameter.line),
            _ => format!("the default of {name}"),
        }
    }

    /// Returns the value of a parameter that the file has; it counts as mapped then.
    pub(in super::super) fn given(&mut self, name: &str) -> Option<String> {
        self.main.explicit(name)?;
        self.mapped(name);
        Some(self.main.value(name))
    }

    /// The parameter is mapped, unless a verdict says less.
    pub(in super::super) fn mapped(&mut self, name: &str) {
        self.verdicts.entry(name.to_owned()).or_insert(Verdict::Mapped);
    }

    /// The parameter is mapped with a note; several notes are one.
    pub(in super::super) fn note(&mut self, name: &str, text: impl Into<String>) {
        self.add(name, Verdict::Note(text.into()));
    }

    /// The parameter, or a part of it, has no counterpart.
    pub(in super::super) fn missing(&mut self, name: &str, text: impl Into<String>) {
        self.add(name, Verdict::Missing(text.into()));
    }

    fn add(&mut self, name: &str, verdict: Verdict) {
        let known = self.verdicts.remove(name).unwrap_or(Verdict::Mapped);
        self.verdicts.insert(name.to_owned(), known.and(verdict));
    }

    /// Mail is treated in another way because of this parameter: the report begins with that.
    pub(in super::super) fn effect(&mut self, effect: Effect, name: &str, text: impl Into<String>) {
        let place = match self.main.explicit(name) {
            Some(parameter) if parameter.line > 0 => format!("main.cf:{} {name}", parameter.line),
            Some(_) => name.to_owned(),
            None => format!("main.cf {name} (default)"),
        };
        let entry = (effect, place, text.into());
        if !self.effects.contains(&entry) {
            self.effects.push(entry);
        }
        if self.main.explicit(name).is_some() {
            let verdict = self.verdicts.entry(name.to_owned()).or_insert(Verdict::Mapped);
            if *verdict == Verdict::Mapped {
                *verdict = Verdict::Note(String::new());
            }
        }
    }

    /// As the function above, for what is no parameter.
    pub(super) fn tell(&mut self, effect: Effect, what: &str, text: String) {
        self.effects.push((effect, what.to_owned(), text));
    }

    pub(super) fn set_verdict(&mut self, name: &str, verdict: Verdict) {
        self.verdicts.entry(name.to_owned()).or_insert(verdict);
    }

    pub(super) fn has_verdict(&self, name: &str) -> bool {
        self.verdicts.contains_key(name)
    }

    /// Mail is treated in another way because of a service, or of an override of it: the report begins with that.
    pub(super) fn service_effect(&mut self, line: usize, name: &str, effect: Effect, text: String) {
        self.effects.push((effect, format!("master.cf:{line} {name}"), text));
        self.override_verdict(line, name, Verdict::Missing(String::new()));
    }

    /// Gives a verdict about an override of a service.
    pub(super) fn override_verdict(&mut self, line: usize, name: impl Into<String>, verdict: Verdict) {
        self.overrides.push((line, name.into(), verdict));
    }

    /// Adds a note that belongs to no parameter.
    pub(in super::super) fn remark(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Returns whether `mynetworks` has all addresses of a network.
    pub(in super::super) fn has_network(&self, wanted: IpNet) -> bool {
        self.networks.iter().filter_map(|text| network(text)).any(|known| known.contains(&wanted))
    }

    /// Returns the tables of a parameter, each with its entries or the reason why they are not known.
    pub(super) fn tables(&self, parameter: &str) -> Vec<(String, Result<Vec<TableEntry>, String>)> {
        let entries = |item: String| {
            let table = Table::parse(&item).ok_or_else(|| "it is not a table".to_owned());
            let entries = table.and_then(|table| table.keyed_entries(self.files));
            (item, entries)
        };
        items(&self.main.value(parameter)).into_iter().map(entries).collect()
    }

    /// Returns the entries of all tables of a parameter; none if some are not known.
    pub(super) fn entries(&self, parameter: &str) -> Option<Vec<TableEntry>> {
        let is_default = self.main.explicit(parameter).is_none();
        let mut all = Vec::new();
        for (_, entries) in self.tables(parameter) {
            match entries {
                // The default names a file that need not be there.
                Err(_) if is_default => {}
                entries => all.extend(entries.ok()?),
            }
        }
        Some(all)
    }

    /// Returns the maps of a parameter with tables; others are reported.
    pub(in super::super) fn maps(&mut self, name: &str, purpose: Purpose) -> Vec<String> {
        let value = self.main.value(name);
        items(&value).iter().filter_map(|item| self.map(name, item, purpose)).collect()
    }

    /// Converts a table of this parameter, and returns the map for the configuration.
    pub(super) fn map(&mut self, name: &str, item: &str, purpose: Purpose) -> Option<String> {
        let Some(table) = Table::parse(item) else {
            self.missing(name, format!("\"{item}\" is not a table"));
            return None;
        };
        match table::reference(&table, purpose, self.files, &mut self.draft) {
            Ok(map) => Some(map),
            // The default names a file that a machine without local mail does not have.
            Err(_) if self.main.explicit(name).is_none() => None,
            Err(why) => Some(self.waiting(name, item, &why)),
        }
    }

    /// Returns a map that does not answer until somebody offers it: a table that cannot be read is no reason to refuse mail for good, nor
    /// to take all of it.
    pub(super) fn waiting(&mut self, parameter: &str, item: &str, why: &str) -> String {
        if let Some((_, map)) = self.draft.maps.iter().find(|(known, _)| known == item) {
            return map.clone();
        }
        let name = table::map_name(item.rsplit(':').next().unwrap_or(item), &self.draft);
        let server = format!("unix:/run/postrider/{name}.sock");
        let text = format!(
            "{item}: {why}; until then this mail is deferred (451), because nothing serves the map at {server}"
        );
        self.effect(Effect::Refused, parameter, text);
        let comment = format!("{parameter}: replaces {item}");
        self.draft.push(Section::new(&format!("[map.{name}]"), comment).with("socketmap", server));
        let map = format!("map:{name}");
        self.draft.maps.push((item.to_owned(), map.clone()));
        map
    }

    /// Returns the map that takes the place of a table.
    ///
    /// # Errors
    /// There is none: what to do instead.
    pub(in super::super) fn reference(&mut self, item: &str) -> Result<String, String> {
        let table = Table::parse(item).ok_or_else(|| format!("\"{item}\" is not a table"))?;
        table::reference(&table, Purpose::Keys, self.files, &mut self.draft)
    }

    /// Returns whether clients can log in at some listener.
    pub(super) fn offers_logins(&self) -> bool {
        let is_on = |(name, value): &(String, String)| name == "smtpd_sasl_auth_enable" && value == "yes";
        self.main.value("smtpd_sasl_auth_enable") == "yes"
            || self.master.services.iter().any(|service| service.overrides.iter().any(is_on))
    }

    /// Returns a path below the queue directory, as sockets are named.
    pub(in super::super) fn below_queue(&self, path: &str) -> String {
        if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("{}/{path}", self.queue.trim_end_matches('/'))
        }
    }

    pub(super) fn finish(mut self) -> (Draft, Report) {
        self.draft.drop_hidden_routes();
        let mut report = Report::default();
        for parameter in &self.main.parameters {
            let verdict = self.verdicts.get(&parameter.name).cloned().unwrap_or(Verdict::Unknown);
            if let (Verdict::Unknown, Some(near)) = (&verdict, super::known::near(&parameter.name)) {
                let (name, line) = (&parameter.name, parameter.line);
                self.notes
                    .push(format!("main.cf:{line}: did you mean {near}? Postfix ignores {name} as well"));
            }
            report.add(format!("main.cf:{}", parameter.line), parameter.name.clone(), verdict);
        }
        for (line, text) in &self.main.faults {
            report.add(format!("main.cf:{line}"), text.clone(), Verdict::Unknown);
        }
        // Postfix's defaults are settings, too: what has no counterpart is told.
        for (name, verdict) in &self.verdicts {
            if self.main.explicit(name).is_none() && matches!(verdict, Verdict::Missing(_)) {
                report.add("main.cf", format!("{name} (default)"), verdict.clone());
            }
        }
        for (line, name, verdict) in &self.overrides {
            report.add(format!("master.cf:{line}"), name.clone(), verdict.clone());
        }
        for (line, text) in &self.master.faults {
            report.add(format!("master.cf:{line}"), text.clone(), Verdict::Unknown);
        }
        (report.notes, report.effects) = (self.notes, self.effects);
        (self.draft, report)
    }
}
