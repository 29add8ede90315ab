//! Limits: rates of clients, logins, senders and domains.

use crate::{Facts, Line, ReplyText, Stage};
use ipnet::{IpNet, Ipv6Net};
use limits::Rate;
use mail::ReversePath;
use rewrite::Separator;
use std::net::IpAddr;

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Connections.
    Connections,
    /// MAIL commands.
    Messages,
    /// RCPT commands.
    Recipients,
    /// Octets of content.
    Bytes,
    /// Commands that were rejected.
    Failures,
}

impl Measure {
    /// Returns the key in the configuration, such as `recipients`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Messages => "messages",
            Self::Recipients => "recipients",
            Self::Bytes => "bytes",
            Self::Failures => "failures",
        }
    }

    /// Returns the stage at which the rate is spent.
    pub fn stage(self) -> Stage {
        match self {
            Self::Connections | Self::Failures => Stage::Connect,
            Self::Messages => Stage::Mail,
            Self::Recipients => Stage::Rcpt,
            Self::Bytes => Stage::Content,
        }
    }
}

/// The owner of the events that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Per {
    /// An IPv4 address, or an IPv6 network /64.
    Client,
    /// A user that has logged in.
    Login,
    /// A reverse-path.
    Sender,
    /// The domain of the reverse-path.
    SenderDomain,
    /// The domain of a recipient.
    RecipientDomain,
}

impl Per {
    /// Returns the word in the configuration, such as `sender-domain`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Login => "login",
            Self::Sender => "sender",
            Self::SenderDomain => "sender-domain",
            Self::RecipientDomain => "recipient-domain",
        }
    }

    /// The first stage at which there is such a key.
    pub fn first_stage(self) -> Stage {
        match self {
            Self::Client => Stage::Connect,
            Self::Login | Self::Sender | Self::SenderDomain => Stage::Mail,
            Self::RecipientDomain => Stage::Rcpt,
        }
    }
}

/// A `[[limit]]` of the configuration: a rate for each key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// As configured; `limit 2` for the second without a name.
    pub name: Box<str>,
    /// For messages to the operator.
    pub line: Line,
    /// Whose events are counted together.
    pub per: Per,
    /// What is counted against the rate.
    pub measure: Measure,
    /// How many are permitted in a period.
    pub rate: Rate,
    /// What a client is answered that exceeds it.
    pub reply: ReplyText,
    /// Clients without this limit.
    pub except: Vec<IpNet>,
    /// A rule asks for it: then it refuses nothing by itself.
    pub is_for_rules: bool,
}

impl Limit {
    /// Returns the key whose events are counted; `None` if the limit is not for this session.
    ///
    /// A sender is counted without the detail of its address: its owner chooses the detail.
    pub fn key(&self, facts: &Facts<'_>, separator: Option<Separator>) -> Option<Box<str>> {
        let client = facts.session.client().map(|client| client.to_canonical());
        if client.is_some_and(|client| self.except.iter().any(|network| network.contains(&client))) {
            return None;
        }
        // Programs on this machine are no clients.
        facts.session.listener()?;
        match self.per {
            Per::Client => client.map(client_key),
            Per::Login => facts.session.login.as_deref().map(|login| login.to_lowercase().into()),
            Per::Sender => sender(facts).map(|mailbox| sender_key(mailbox, separator)),
            Per::SenderDomain => sender(facts).map(|mailbox| mailbox.domain().key().into()),
            Per::RecipientDomain => {
                facts.to.first().and_then(|to| to.path.mailbox()).map(|mailbox| mailbox.domain().key().into())
            }
        }
    }

    /// Returns how much of the rate an event spends: 1, or the octets of the content; 0 for failures.
    pub fn amount(&self, facts: &Facts<'_>) -> u64 {
        match self.measure {
            Measure::Bytes => facts.size_bytes.unwrap_or(0),
            Measure::Failures => 0,
            Measure::Connections | Measure::Messages | Measure::Recipients => 1,
        }
    }
}

/// An IPv4 address, or an IPv6 network /64: who has one IPv6 address has them all.
pub(crate) fn client_key(client: IpAddr) -> Box<str> {
    match client {
        IpAddr::V4(address) => address.to_string().into(),
        IpAddr::V6(address) => {
            let network = Ipv6Net::new(address, 64).map(|network| network.trunc().to_string());
            network.unwrap_or_else(|_| address.to_string()).into()
        }
    }
}

/// Returns the key of a sender: its address without the detail.
fn sender_key(mailbox: &mail::Mailbox, separator: Option<Separator>) -> Box<str> {
    let local = mailbox.plain_local();
    let user = separator.and_then(|separator| separator.split(&local)).map_or(&*local, |(user, _)| user);
    format!("{user}@{}", mailbox.domain().key()).into()
}

fn sender<'a>(facts: &Facts<'a>) -> Option<&'a mail::Mailbox> {
    match facts.from? {
        ReversePath::Mailbox(mailbox) => Some(mailbox),
        ReversePath::Null => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_counted_under_one_key_however_its_address_is_written() {
        let key = |text: &str| {
            let mailbox = mail::Mailbox::parse(text, true).unwrap();
            sender_key(&mailbox, Separator::parse("+")).into_string()
        };
        for text in ["z@z.test", "Z@Z.test", "\"z\"@z.test", "z+1@z.test", "\"z+1\"@z.test"] {
            assert_eq!(key(text), "z@z.test", "{text}");
        }
        assert_eq!(key("zz@z.test"), "zz@z.test");
    }
}
