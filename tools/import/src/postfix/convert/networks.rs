//! Lists of networks, such as `mynetworks`, with their exclusions.

use super::super::{main_cf::items, table::Table};
use crate::Files;
use ipnet::IpNet;
use std::{net::IpAddr, path::Path};

/// A list of networks. A client that Postfix keeps out is never in it.
#[derive(Debug, Default)]
pub(super) struct Networks {
    list: Vec<IpNet>,
    /// Networks behind a `!`.
    excluded: Vec<IpNet>,
    /// Those of them that stand behind a network which they are in, so that Postfix does not exclude them.
    late: Vec<IpNet>,
    /// Items that are no networks.
    others: Vec<String>,
    /// Exclusions that are no networks: which networks they are for is not known.
    unknown_exclusions: Vec<String>,
}

impl Networks {
    /// Reads a list with its files and tables.
    ///
    /// Postfix takes the first item that matches, so an exclusion is for the networks behind it. Here an exclusion is for
    /// the networks before it, too: its author wanted to keep the client out.
    pub(super) fn read(value: &str, files: &dyn Files) -> Self {
        let mut networks = Self::default();
        for item in items(value) {
            networks.add_item(&item, files);
        }
        networks
    }

    fn add_item(&mut self, item: &str, files: &dyn Files) {
        let (is_excluded, name) = match item.strip_prefix('!') {
            Some(name) => (true, name),
            None => (false, item),
        };
        let file = name.starts_with('/').then(|| files.read(Path::new(name))).flatten();
        if let Some(file) = file {
            String::from_utf8_lossy(&file)
                .lines()
                .map(|line| line.split('#').next().unwrap_or_default())
                .flat_map(items)
                .for_each(|entry| self.add(&entry, is_excluded));
        } else if let Some((kind, Ok(entries))) =
            Table::parse(name).map(|table| (table.kind.clone(), table.entries(files)))
        {
            // Other tables are asked for the address of the client, and never for a network.
            let is_asked = |key: &str| kind == "cidr" || key.parse::<IpAddr>().is_ok();
            let keys = entries.iter().map(|entry| &*entry.key).filter(|key| is_asked(key));
            keys.for_each(|key| self.add(key, is_excluded));
        } else {
            self.add(name, is_excluded);
        }
    }

    fn add(&mut self, item: &str, is_excluded: bool) {
        let (is_negated, name) = match item.strip_prefix('!') {
            Some(name) => (true, name),
            None => (false, item),
        };
        let plain = name.replace(['[', ']'], "");
        let network = plain.parse::<IpNet>().map(|network| network.trunc());
        let network = network.or_else(|_| plain.parse::<IpAddr>().map(IpNet::from));
        match (network, is_excluded || is_negated) {
            // Two negations: a part of what a file excludes. To leave it out is safe.
            (_, true) if is_excluded && is_negated => self.others.push(format!("!{item}")),
            (Ok(network), true) => {
                if self.list.iter().any(|before| before.contains(&network)) {
                    self.late.push(network);
                }
                self.excluded.push(network);
            }
            (Ok(network), false) => self.list.push(network),
            (Err(_), true) => self.unknown_exclusions.push(format!("!{name}")),
            (Err(_), false) => self.others.push(item.to_owned()),
        }
    }

    /// Returns the networks without the excluded ones, in Postrider's form.
    pub(super) fn texts(&self) -> Vec<String> {
        // What a name or a table excludes may be in any network but that of this machine.
        let is_known = |network: &&IpNet| self.unknown_exclusions.is_empty() || network.addr().is_loopback();
        let mut left: Vec<IpNet> = self.list.iter().filter(is_known).copied().collect();
        for excluded in &self.excluded {
            left = left.into_iter().flat_map(|network| without(network, *excluded)).collect();
        }
        left.iter()
            .map(|network| match network.prefix_len() == network.max_prefix_len() {
                true => network.addr().to_string(),
                false => network.to_string(),
            })
            .collect()
    }

    /// Returns what the list has that cannot be written; none if it has no such thing.
    pub(super) fn problem(&self) -> Option<String> {
        let mut problems = Vec::new();
        if !self.others.is_empty() {
            problems.push(format!(
                "only addresses and networks are supported here, not {}",
                self.others.join(", ")
            ));
        }
        if !self.unknown_exclusions.is_empty() {
            problems.push(format!(
                "all networks except that of this machine are left out, because it is not known which addresses are excluded: {}; list \
                 the remaining networks by hand",
                self.unknown_exclusions.join(", ")
            ));
        }
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    /// Returns the exclusions that Postfix does not make; none if there are none.
    pub(super) fn late(&self) -> Option<String> {
        let late: Vec<String> = self.late.iter().map(|network| format!("!{network}")).collect();
        (!late.is_empty()).then(|| format!("Postfix ignores {}, which comes after a network that contains it, and lets these clients relay; Postrider does not", late.join(", ")))
    }

    /// Returns a remark about the exclusions that were taken out of networks; none if there are none.
    pub(super) fn remark(&self) -> Option<String> {
        let excluded: Vec<String> = self.excluded.iter().map(|network| format!("!{network}")).collect();
        (!excluded.is_empty()).then(|| format!("the networks are split to leave out {}", excluded.join(", ")))
    }
}

/// Returns the parts of a network that are not excluded.
fn without(network: IpNet, excluded: IpNet) -> Vec<IpNet> {
    if excluded.contains(&network) {
        return Vec::new();
    }
    if !network.contains(&excluded) {
        return vec![network];
    }
    // The half that has the excluded network is cut further: at most 128 times.
    match network.subnets(network.prefix_len() + 1) {
        Ok(halves) => halves.flat_map(|half| without(half, excluded)).collect(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_files::MemoryFiles;

    fn read(value: &str) -> Networks {
        Networks::read(
            value,
            &MemoryFiles(&[
                ("/etc/postfix/out", "10.0.0.4/31 10.0.0.6 # two\n"),
                ("/etc/postfix/in", "!10.0.0.0/25\n10.0.0.0/24\n"),
            ]),
        )
    }

    #[test]
    fn an_excluded_client_is_in_no_network() {
        for value in ["10.0.0.0/29, !10.0.0.5", "!10.0.0.5 10.0.0.0/29"] {
            assert_eq!(read(value).texts(), ["10.0.0.0/30", "10.0.0.4", "10.0.0.6/31"], "{value}");
            assert!(read(value).remark().unwrap().contains("!10.0.0.5/32"));
        }
        assert_eq!(read("10.0.0.0/24, !10.0.0.0/24, 192.0.2.1").texts(), ["192.0.2.1"]);
        assert_eq!(read("10.0.0.0/29 !/etc/postfix/out").texts(), ["10.0.0.0/30", "10.0.0.7"]);
        assert_eq!(read("/etc/postfix/in").texts(), ["10.0.0.128/25"]);
        let split = read("[2001:db8::]/64, ![2001:db8::1]");
        assert_eq!(split.texts().len(), 64);
        assert!(split.excluded.iter().all(|one| !split.texts().contains(&one.addr().to_string())));
    }

    #[test]
    fn an_exclusion_that_is_no_network_leaves_only_this_machine() {
        let networks = read("127.0.0.0/8 [::1]/128 10.0.0.0/24 !bad.example.com !hash:/etc/postfix/x");
        assert_eq!(networks.texts(), ["127.0.0.0/8", "::1"]);
        let problem = networks.problem().unwrap();
        assert!(problem.contains("!bad.example.com, !hash:/etc/postfix/x"), "{problem}");
        assert!(read("10.0.0.0/24 host.example.com").problem().unwrap().contains("host.example.com"));
        assert_eq!(read("10.0.0.0/24").problem(), None);
    }
}
