//! The settings that lead the mail for the test domain to the sink, and what to do if it does not arrive.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::{TcpStream, ToSocketAddrs as _},
    time::Duration,
};

/// A server that can be told where to send the test domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mta {
    Postfix,
    Exim,
    Opensmtpd,
}

/// The reason why the test message is not at the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lost {
    /// The source could not send it, for this reason.
    NotSent(String),
    /// The server refused it, such as with `RCPT 554`.
    Refused(String),
    /// The server took it, and the sink did not get it in this time.
    NotArrived(Duration),
}

/// The sink, and the domain whose mail leads there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Redirection<'a> {
    pub(super) domain: &'a str,
    /// `127.0.0.1:2600`
    pub(super) sink: &'a str,
}

/// Time for the greeting of a server.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Which server the greeting names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Recognized {
    /// One that can be told where to send the test domain.
    pub(super) mta: Option<Mta>,
    /// Name and version as the greeting has them, with a note of it; empty if it names nothing.
    pub(super) version: String,
}

/// The longest line that is read as a greeting, as in RFC 5321 §4.5.3.1.5 for replies.
const GREETING_MAX_BYTES: u64 = 512;

/// Recognizes a server by its greeting; none if it sends none.
pub(super) fn recognize(endpoint: &str) -> Option<Recognized> {
    let greeting = greeting(endpoint)?;
    Some(Recognized { mta: of_greeting(&greeting), version: version_in(&greeting) })
}

fn greeting(endpoint: &str) -> Option<String> {
    let address = endpoint.to_socket_addrs().ok()?.next()?;
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let mut greeting = String::new();
    BufReader::new(stream.take(GREETING_MAX_BYTES)).read_line(&mut greeting).ok()?;
    Some(greeting)
}

/// Returns the name behind ESMTP, and the version behind the name: `Exim 4.96`, `Postfix (Debian/GNU)`.
fn version_in(greeting: &str) -> String {
    let mut words = greeting.split_ascii_whitespace().skip_while(|word| !word.ends_with("SMTP")).skip(1);
    let name = words.next().map(|word| word.trim_end_matches([',', ';'])).unwrap_or_default();
    if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return String::new();
    }
    let version = words.next().filter(|word| word.starts_with(|c: char| c.is_ascii_digit() || c == '('));
    let version = version.map(|word| format!(" {}", word.trim_end_matches([',', ';']))).unwrap_or_default();
    format!("{name}{version} (by its greeting)")
}

fn of_greeting(greeting: &str) -> Option<Mta> {
    let known = [("Postfix", Mta::Postfix), ("Exim", Mta::Exim), ("OpenSMTPD", Mta::Opensmtpd)];
    known.into_iter().find(|(word, _)| greeting.contains(word)).map(|(_, mta)| mta)
}

impl Mta {
    /// All, in the order in which they are explained.
    pub(super) const ALL: [Self; 3] = [Self::Postfix, Self::Exim, Self::Opensmtpd];

    /// Returns the exact lines, with the commands around them.
    pub(super) fn settings(self, redirection: Redirection<'_>) -> String {
        let Redirection { domain, sink } = redirection;
        let (host, port) = sink.rsplit_once(':').unwrap_or((sink, "25"));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_v6 = host.contains(':');
        match self {
            Self::Postfix => format!(
                "Postfix 3.0 or newer. As root:\n\n    \
                 postconf transport_maps             # note the value, to restore it afterwards\n    \
                 postconf -e 'transport_maps = inline:{{ {domain}=smtp:[{host}]:{port} }}'\n    \
                 postfix reload\n\n\
                 If transport_maps was set, put the old value after the closing brace. Afterwards: `postconf -X transport_maps` (or set the \
                 old value), `postfix reload`.\n"
            ),
            Self::Exim => format!(
                "Exim 4 of Debian, as root. With the split configuration (`dc_use_split_config='true'` in\n\
                 /etc/exim4/update-exim4.conf.conf), the file /etc/exim4/conf.d/router/050_postlab:\n\n    \
                 postlab:\n      driver = manualroute\n      domains = {domain}\n      transport = postlab_smtp\n      \
                 route_list = * {hosts} byname\n      self = send\n      no_more\n\n\
                 and the file /etc/exim4/conf.d/transport/50_postlab:\n\n    \
                 postlab_smtp:\n      driver = smtp\n      port = {port}\n      allow_localhost\n      hosts_avoid_tls = *\n\n\
                 With one file, put the first part behind the line `begin routers` of /etc/exim4/exim4.conf.template, the second behind\n\
                 `begin transports`. Then `update-exim4.conf && systemctl restart exim4`. Afterwards remove them again.\n",
                // A colon separates hosts.
                hosts = if is_v6 { format!("\"<; {host}\"") } else { host.to_owned() },
            ),
            Self::Opensmtpd => format!(
                "OpenSMTPD 6.4 or newer. In /etc/smtpd.conf, before the first line with `match`:\n\n    \
                 action \"postlab\" relay host smtp://{url_host}:{port}\n    \
                 match from local for domain \"{domain}\" action \"postlab\"\n\n\
                 Then `smtpd -n && systemctl restart opensmtpd`. Afterwards remove them again.\n",
                url_host = if is_v6 { format!("[{host}]") } else { host.to_owned() },
            ),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Postfix => "Postfix",
            Self::Exim => "Exim",
            Self::Opensmtpd => "OpenSMTPD",
        }
    }

    /// Returns where Debian's package has the queue.
    pub(super) fn queue(self) -> &'static str {
        match self {
            Self::Postfix => "/var/spool/postfix",
            Self::Exim => "/var/spool/exim4",
            Self::Opensmtpd => "/var/spool/smtpd",
        }
    }

    /// Returns where Debian's package has the log.
    pub(super) fn log_file(self) -> &'static str {
        match self {
            Self::Exim => "/var/log/exim4/mainlog",
            Self::Postfix | Self::Opensmtpd => "/var/log/mail.log",
        }
    }

    /// Returns the file or command that says what happened to a message.
    fn log(self) -> &'static str {
        match self {
            Self::Postfix => "`postqueue -p`, and /var/log/mail.log or `journalctl -u postfix@-`",
            Self::Exim => "`exim -bp`, and /var/log/exim4/mainlog",
            Self::Opensmtpd => "`smtpctl show queue`, and /var/log/mail.log or `journalctl -u opensmtpd`",
        }
    }
}

/// Explains the settings of one server, or of all where it is not known.
pub(super) fn settings(mta: Option<Mta>, redirection: Redirection<'_>) -> String {
    match mta {
        Some(mta) => mta.settings(redirection),
        None => Mta::ALL.map(|mta| mta.settings(redirection)).join("\n"),
    }
}

impl Lost {
    /// Says what to do about it.
    pub(super) fn advice(&self, mta: Option<Mta>, endpoint: &str, redirection: Redirection<'_>) -> String {
        let Redirection { domain, sink } = redirection;
        let log = mta.map_or("the log of the server", Mta::log);
        match self {
            Self::NotSent(why) => format!("send a test message to {endpoint}: {why}"),
            Self::Refused(reason) if reason.starts_with("connect") || reason.contains("refused") => {
                format!(
                    "send a test message to {endpoint}: {reason}: start the server, or name the address it listens on"
                )
            }
            Self::Refused(reason) if reason.starts_with("RCPT") => {
                let permit = match mta {
                    Some(Mta::Postfix) => "the client's address must be in mynetworks",
                    Some(Mta::Exim) => "the client's address must be in dc_relay_nets",
                    Some(Mta::Opensmtpd) => "a client that is not local needs `match from src ADDRESS`",
                    None => "the server must relay for this client",
                };
                format!(
                    "send a test message to {endpoint}: the server replied {reason}: {permit}; read {log}"
                )
            }
            Self::Refused(reason) => {
                format!("send a test message to {endpoint}: the server failed it ({reason}): read {log}")
            }
            Self::NotArrived(wait) => {
                let settings = settings(mta, redirection);
                format!(
                    "the server accepted the test message for {domain}, and the sink on {sink} did not get it within {} s.\n\
                     Read {log}. If the server has mail of a run before in its queue, wait until that is empty. If the message went elsewhere \
                     or is deferred, the route is missing:\n\n{settings}",
                    wait.as_secs()
                )
            }
        }
    }
}

impl Recognized {
    /// Returns the name for people: that of the server, or what its greeting says.
    pub(super) fn name(&self) -> &str {
        match self.mta {
            Some(mta) => mta.name(),
            None if self.version.is_empty() => "a server that does not name itself",
            None => &self.version,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIRECTION: Redirection<'_> = Redirection { domain: "postlab.test", sink: "127.0.0.1:2600" };

    #[test]
    fn each_server_is_recognized_and_explained_with_the_address_of_the_sink() {
        assert_eq!(of_greeting("220 mail.example ESMTP Postfix (Debian)"), Some(Mta::Postfix));
        assert_eq!(of_greeting("220 x ESMTP Exim 4.96 Mon"), Some(Mta::Exim));
        assert_eq!(of_greeting("220 x ESMTP OpenSMTPD"), Some(Mta::Opensmtpd));
        assert_eq!(of_greeting("220 x ready"), None);
        for (greeting, version) in [
            ("220 x ESMTP Exim 4.96 Mon, 23 Nov\r\n", "Exim 4.96 (by its greeting)"),
            ("220 x ESMTP Postfix (Debian/GNU)\r\n", "Postfix (Debian/GNU) (by its greeting)"),
            ("220 x ESMTP Sendmail 8.17.1.9/8.17; Mon\r\n", "Sendmail 8.17.1.9/8.17 (by its greeting)"),
            ("220 x ESMTP OpenSMTPD\r\n", "OpenSMTPD (by its greeting)"),
            ("220 x ESMTP ready\r\n", ""),
            ("220 x ESMTP\r\n", ""),
            ("", ""),
        ] {
            assert_eq!(version_in(greeting), version, "{greeting}");
        }
        assert!(Mta::Postfix.settings(REDIRECTION).contains("postlab.test=smtp:[127.0.0.1]:2600 }'"));
        assert!(Mta::Exim.settings(REDIRECTION).contains("\n      port = 2600\n"));
        assert!(Mta::Opensmtpd.settings(REDIRECTION).contains("relay host smtp://127.0.0.1:2600\n"));
        let all = settings(None, REDIRECTION);
        assert!(Mta::ALL.iter().all(|mta| all.contains(mta.name())));
    }

    #[test]
    fn a_message_that_is_lost_comes_with_advice() {
        let advice = |lost: Lost, mta| lost.advice(mta, "127.0.0.1:25", REDIRECTION);
        assert!(advice(Lost::Refused("RCPT 554".into()), Some(Mta::Postfix)).contains("mynetworks"));
        assert!(
            advice(Lost::Refused("connect connection refused".into()), None).contains("start the server")
        );
        let late = advice(Lost::NotArrived(Duration::from_secs(10)), Some(Mta::Postfix));
        assert!(
            late.contains("within 10 s") && late.contains("postqueue -p") && late.contains("transport_maps")
        );
    }
}
