//! What filters are told of the client and the envelope, with the macros that Postfix and Sendmail define.

use crate::check::View;
use inbound::UNIX_CLIENT;
use mail::{BodyType, Recipient, ReversePath};
use milter::{Macro, Peer};
use policy::Source;
use std::net::{Ipv4Addr, SocketAddr};

/// The texts of one command.
#[derive(Default)]
pub(super) struct Texts {
    /// The name of the client, the sender, or the recipient.
    pub(super) address: String,
    pub(super) macros: Vec<(&'static str, String)>,
    parameters: Vec<String>,
    peer: Option<SocketAddr>,
}

/// Returns macros as a command has them, which leaves out those without a value.
pub(super) fn macros<'a>(texts: &'a [(&'static str, String)]) -> Vec<Macro<'a>> {
    texts.iter().map(|(name, value)| Macro { name, value }).collect()
}

impl Texts {
    /// The client: its verified name, or its address in brackets. A program on this machine is `localhost`.
    pub(super) fn of_client(view: &View<'_>, name: Option<Box<str>>) -> Self {
        let hostname = &view.rules.settings.hostname;
        let version = concat!("Postrider ", env!("CARGO_PKG_VERSION"));
        let mut macros = vec![("j", hostname.clone()), ("v", version.to_owned())];
        let (peer, address) = match view.facts.source {
            Source::Smtp { peer, local, listener } if peer != UNIX_CLIENT => {
                let ip = peer.ip().to_canonical().to_string();
                // Postfix has the address as the host, and this word in the macros; rspamd looks for it.
                let host = name.as_deref().map_or_else(|| format!("[{ip}]"), str::to_owned);
                let name = name.map_or_else(|| "unknown".to_owned(), String::from);
                macros.extend([
                    ("daemon_name", listener.as_str().to_owned()),
                    ("daemon_addr", local.ip().to_canonical().to_string()),
                    ("daemon_port", local.port().to_string()),
                    ("client_port", peer.port().to_string()),
                    ("_", format!("{name} [{ip}]")),
                    ("client_ptr", name.clone()),
                    ("client_name", name.clone()),
                    ("client_addr", ip),
                ]);
                (Some(peer), host)
            }
            _ => {
                let name = "localhost".to_owned();
                macros.extend([
                    ("daemon_name", "local".to_owned()),
                    ("_", format!("{name} [127.0.0.1]")),
                    ("client_name", name.clone()),
                    ("client_addr", "127.0.0.1".to_owned()),
                ]);
                (Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))), name)
            }
        };
        Self { address, macros, peer, ..Self::default() }
    }

    pub(super) fn peer(&self) -> Peer<'_> {
        self.peer.map_or(Peer::Unknown, Peer::Inet)
    }

    pub(super) fn of_hello(view: &View<'_>) -> Self {
        let (version, cipher) =
            view.facts.tls.as_deref().and_then(|tls| tls.split_once(':')).unwrap_or_default();
        let certificate = view.facts.certificate.as_deref().filter(|certificate| certificate.is_trusted);
        let name = |of: fn(&mail::ClientCertificate) -> Option<&str>| {
            certificate.and_then(of).unwrap_or_default().to_owned()
        };
        let bits = match cipher {
            "" => "",
            cipher if cipher.contains("128") => "128",
            _ => "256",
        };
        let macros = vec![
            ("tls_version", version.to_owned()),
            ("cipher", cipher.to_owned()),
            ("cipher_bits", bits.to_owned()),
            ("cert_subject", name(|certificate| certificate.common_name.as_deref())),
            ("cert_issuer", name(|certificate| certificate.issuer.as_deref())),
        ];
        Self { macros, ..Self::default() }
    }

    pub(super) fn of_sender(view: &View<'_>) -> Self {
        let Some(envelope) = view.envelope else { return Self::default() };
        let address = envelope.reverse_path.as_str().to_owned();
        let host = match &envelope.reverse_path {
            ReversePath::Mailbox(mailbox) => mailbox.domain().as_str().to_owned(),
            ReversePath::Null => String::new(),
        };
        let login = view.facts.login.as_deref().or(view.facts.named_login.as_deref()).unwrap_or_default();
        let kind = view.facts.mechanism.as_deref().unwrap_or_default();
        let body = match envelope.body {
            BodyType::SevenBit => None,
            BodyType::EightBit => Some("BODY=8BITMIME"),
            BodyType::Binary => Some("BODY=BINARYMIME"),
        };
        let utf8 = envelope.smtputf8.then_some("SMTPUTF8");
        let macros = vec![
            ("auth_type", kind.to_owned()),
            ("auth_authen", login.to_owned()),
            ("auth_author", if login.is_empty() { String::new() } else { address.clone() }),
            ("mail_addr", address.clone()),
            ("mail_host", host),
            ("mail_mailer", "smtp".to_owned()),
        ];
        let parameters = body.into_iter().chain(utf8).map(str::to_owned).collect();
        Self { address, macros, parameters, peer: None }
    }

    pub(super) fn of_recipient(recipient: &Recipient) -> Self {
        let address = recipient.path.as_str().to_owned();
        let host = address.rsplit_once('@').map(|(_, host)| host.to_owned()).unwrap_or_default();
        let macros =
            vec![("rcpt_addr", address.clone()), ("rcpt_host", host), ("rcpt_mailer", "smtp".to_owned())];
        Self { address, macros, ..Self::default() }
    }

    pub(super) fn parameters(&self) -> Vec<&str> {
        self.parameters.iter().map(String::as_str).collect()
    }
}
