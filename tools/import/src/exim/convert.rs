//! The configuration of Exim, or Debian's answers for it, as one of Postrider.

mod acl;
mod debian;
mod lookups;
mod monolithic;
mod redirects;
mod terms;

use crate::{Draft, Files, Report, draft::Section};
use std::path::Path;

/// Names that the reader of the queue needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The domain of addresses that have none.
    pub qualify_domain: String,
    /// The file with the number of the daemon, if the configuration names it.
    pub pid_file: Option<String>,
}

/// Returns the names of a configuration: `monolithic` is Exim's own file, `debian` is update-exim4.conf.conf.
pub fn names(monolithic: Option<&[u8]>, debian: Option<&[u8]>, files: &dyn Files) -> Names {
    match (monolithic, debian) {
        (Some(file), _) => monolithic::names(file, files),
        _ => Names { qualify_domain: mailname(files), pid_file: None },
    }
}

/// Returns the configuration of Postrider, and a report about each setting. Exim's own file counts, if there is one, as for
/// Debian's Exim. `None` without a file.
pub fn convert(
    monolithic: Option<&[u8]>,
    debian: Option<&[u8]>,
    files: &dyn Files,
) -> Option<(Draft, Report)> {
    match (monolithic, debian) {
        (Some(file), _) => Some(monolithic::convert(file, files)),
        (None, Some(file)) => Some(debian::convert(file, files)),
        (None, None) => None,
    }
}

/// Returns /etc/mailname, or the name of the machine.
fn mailname(files: &dyn Files) -> String {
    let file = files.read(Path::new("/etc/mailname")).unwrap_or_default();
    let name = String::from_utf8_lossy(&file).lines().next().unwrap_or_default().trim().to_lowercase();
    if name.is_empty() { files.machine() } else { name }
}

fn head(of: &str) -> Draft {
    let made = format!("Written by `postrider import exim` from {of}.");
    Draft::new(&[&made, "Check it with `postrider config check`, and read the import's report."])
}

/// Returns networks in Postrider's form, and the items that are none.
fn networks(items: &[String]) -> (Vec<String>, Vec<String>) {
    let (mut networks, mut others) = (Vec::new(), Vec::new());
    for item in items {
        let plain = item.replace(['[', ']'], "");
        let network = plain.parse::<ipnet::IpNet>().map(|network| network.trunc().to_string());
        let network =
            network.or_else(|_| plain.parse::<std::net::IpAddr>().map(|address| address.to_string()));
        match network {
            Ok(network) => networks.push(network),
            Err(_) => others.push(item.clone()),
        }
    }
    (networks, others)
}

/// Reads `host`, `host::port` or `host:port`.
fn smarthost(text: &str, usual_port: &str) -> Option<String> {
    let text = text.trim().replace("::", ":");
    let is_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !is_v6 && port.parse::<u16>().is_ok() => (host.to_owned(), port.to_owned()),
        _ => (text.clone(), usual_port.to_owned()),
    };
    let host = if is_v6 { format!("[{host}]") } else { host };
    (!host.is_empty() && !host.contains(['$', '{', ' ', '/'])).then(|| format!("{host}:{port}"))
}

/// Writes a listener for each address.
fn listeners(
    draft: &mut Draft,
    addresses: &[String],
    ports: &[String],
    implicit: &[String],
    tls: Option<&str>,
    from: &str,
) {
    for port in ports {
        for address in addresses {
            let address = if address.contains(':') {
                format!("[{address}]:{port}")
            } else {
                format!("{address}:{port}")
            };
            let mut section = Section::new("[[listen]]", from);
            if implicit.contains(port) {
                section = section.with("tls", "implicit");
            } else {
                section = section.with_some("tls", tls);
            }
            draft.push(section.with("address", address));
        }
    }
}

#[cfg(test)]
mod tests;
