//! What Postfix and Sendmail say about mail filters, as keys of `[filter.NAME]`.

use crate::draft::Section;

/// Returns the address of a filter on this machine or in the network: `inet:8891@localhost`, `inet:localhost:8891`, `local:/run/x.sock`.
/// None if it is no socket, or if the port is not a number.
pub(crate) fn address(place: &str) -> Option<String> {
    let place = match place.split_once(':')? {
        ("unix" | "local", path) => return Some(format!("unix:{path}")),
        ("inet" | "inet6", place) => place,
        _ => return None,
    };
    let (host, port) = match place.split_once('@') {
        Some((port, host)) => (host, port),
        None => place.rsplit_once(':')?,
    };
    port.parse::<u16>().ok().filter(|port| *port > 0)?;
    let is_bare = host.contains(':') && !host.starts_with('[');
    Some(if is_bare { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// Adds a time that a filter has for an answer, as long as it may be here.
pub(crate) fn with_time(section: Section, key: &str, seconds: Option<u64>) -> Section {
    let most = if key == "timeout" { 25 } else { 540 };
    section.with_some(key, seconds.map(|time| format!("{}s", time.clamp(1, most))))
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn sockets_have_one_form() {
        for (place, wanted) in [
            ("inet:8891@localhost", Some("localhost:8891")),
            ("inet:localhost:8891", Some("localhost:8891")),
            ("inet6:8891@::1", Some("[::1]:8891")),
            ("local:/run/x.sock", Some("unix:/run/x.sock")),
            ("inet:localhost:rspamd", None),
            ("/run/x.sock", None),
        ] {
            assert_eq!(address(place).as_deref(), wanted, "{place}");
        }
    }
}
