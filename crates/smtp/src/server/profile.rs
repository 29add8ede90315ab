//! The extensions that a listener offers: the keywords of EHLO's reply, in their order, and their settings.

use crate::{Limits, command::Declared, forwarded::ClientAttributeSet};
use mail::{BodyType, Envelope, Recipient, UnixMillis};
use std::fmt::Write as _;

/// One line of EHLO's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Keyword {
    /// RFC 2920.
    Pipelining,
    /// RFC 1870; the value is [`Limits::message_bytes`].
    Size,
    /// RFC 3207. Offered in clear text only.
    StartTls,
    /// RFC 4954. Offered once a session, where [`Auth`] allows it.
    Auth,
    /// RFC 2034.
    EnhancedStatusCodes,
    /// RFC 6152.
    EightBitMime,
    /// RFC 3461.
    Dsn,
    /// RFC 6531.
    SmtpUtf8,
    /// RFC 3030.
    Chunking,
    /// RFC 3030; needs [`Keyword::Chunking`].
    BinaryMime,
    /// RFC 9422; the values are [`Limits::recipients`] and [`Limits::transactions`].
    Limits,
    /// RFC 8689. Offered under TLS only.
    RequireTls,
    /// RFC 4865; the values are [`Extensions::hold_max_seconds`] and the time that it ends at.
    FutureRelease,
    /// RFC 2852; the value is [`Extensions::deliver_by_min_seconds`].
    DeliverBy,
    /// RFC 6710; the value is [`Extensions::priority_policy`].
    MtPriority,
    /// RFC 1985.
    Etrn,
    /// RFC 5321 §3.5. Without it, VRFY is answered by 252.
    Vrfy,
    /// RFC 5321 §3.5. Without it, EXPN is refused.
    Expn,
    /// XCLIENT of Postfix, for listed peers.
    XClient,
    /// XFORWARD of Postfix, for listed peers.
    XForward,
    /// RFC 5321 §4.1.1.8.
    Help,
}

/// The largest value of a limit (RFC 9422 §3).
const LIMIT_MAX: usize = 999_999;

/// The keywords that need no settings, in the order of EHLO's reply.
const KEYWORDS: [Keyword; 11] = [
    Keyword::Pipelining,
    Keyword::Size,
    Keyword::EnhancedStatusCodes,
    Keyword::EightBitMime,
    Keyword::Dsn,
    Keyword::SmtpUtf8,
    Keyword::Chunking,
    Keyword::BinaryMime,
    Keyword::Limits,
    Keyword::RequireTls,
    Keyword::Help,
];

/// Authentication on a listener. Nothing is offered by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Auth {
    /// In the order of EHLO's reply.
    pub mechanisms: Vec<OfferedMechanism>,
    /// True if clients may authenticate without TLS.
    pub in_clear_text: bool,
}

/// A SASL mechanism that a listener offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedMechanism {
    /// Registered name of the mechanism, in capitals.
    pub name: Box<str>,
    /// The property of the connection without which the mechanism is not offered.
    pub needs: MechanismNeed,
}

/// A property of a connection that a mechanism needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MechanismNeed {
    /// None.
    Nothing,
    /// TLS, whose channel bindings the mechanism uses.
    Tls,
    /// A client certificate that was verified.
    Certificate,
}

/// The values of extensions that a listener announces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extensions {
    /// The longest time for which a message is held (RFC 4865 §3).
    pub hold_max_seconds: u32,
    /// The shortest time of BY with the mode R (RFC 2852 §3).
    pub deliver_by_min_seconds: u32,
    /// The name of the priority assignment policy (RFC 6710 §3).
    pub priority_policy: Option<Box<str>>,
}

/// The extensions that a listener offers. Parameters and commands of keywords that are not listed are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Our name in the greeting and EHLO's reply.
    pub hostname: Box<str>,
    /// In the order of EHLO's reply.
    pub keywords: Vec<Keyword>,
    /// The settings of [`Keyword::Auth`].
    pub auth: Auth,
    /// The values of other keywords.
    pub extensions: Extensions,
    /// True if commands before TLS are refused with 530 (RFC 3207 §4), but those that lead to it.
    pub needs_tls: bool,
    /// True if the protocol is LMTP (RFC 2033): LHLO, and at the end of the content a reply for each recipient.
    pub is_lmtp: bool,
    /// True if MAIL before AUTH is refused with 530 (RFC 4954 §6).
    pub needs_login: bool,
}

impl Profile {
    /// Everything but what needs settings of its own: AUTH, STARTTLS, and keywords for [`Profile::with`].
    pub fn new(hostname: impl Into<Box<str>>) -> Self {
        Self {
            hostname: hostname.into(),
            keywords: KEYWORDS.to_vec(),
            auth: Auth::default(),
            extensions: Extensions::default(),
            is_lmtp: false,
            needs_tls: false,
            needs_login: false,
        }
    }

    /// The profile with AUTH offered, behind SIZE and STARTTLS; without mechanisms it stays as it is.
    #[must_use]
    pub fn with_auth(mut self, auth: Auth) -> Self {
        if !auth.mechanisms.is_empty() && !self.has(Keyword::Auth) {
            self.insert(Keyword::Auth);
        }
        self.auth = auth;
        self
    }

    /// The profile with STARTTLS offered, behind SIZE.
    #[must_use]
    pub fn with_starttls(mut self) -> Self {
        if !self.has(Keyword::StartTls) {
            self.insert(Keyword::StartTls);
        }
        self
    }

    /// Inserts a keyword before ENHANCEDSTATUSCODES.
    fn insert(&mut self, keyword: Keyword) {
        let at = self.keywords.iter().position(|one| *one == Keyword::EnhancedStatusCodes);
        self.keywords.insert(at.unwrap_or(self.keywords.len()), keyword);
    }

    /// The profile with a keyword behind the others, before HELP.
    #[must_use]
    pub fn with(mut self, keyword: Keyword) -> Self {
        if !self.has(keyword) {
            let at = self.keywords.iter().position(|one| *one == Keyword::Help);
            self.keywords.insert(at.unwrap_or(self.keywords.len()), keyword);
        }
        self
    }

    /// The profile without a keyword, and without BINARYMIME if it is CHUNKING, which BINARYMIME needs.
    #[must_use]
    pub fn without(mut self, keyword: Keyword) -> Self {
        let goes =
            |one: Keyword| one == keyword || (keyword == Keyword::Chunking && one == Keyword::BinaryMime);
        self.keywords.retain(|one| !goes(*one));
        self
    }

    /// Is the keyword listed?
    pub fn has(&self, keyword: Keyword) -> bool {
        self.keywords.contains(&keyword)
    }

    /// Are all of the envelope's parameters offered here?
    pub(super) fn allows(&self, envelope: &Envelope, declared: &Declared, is_tls: bool) -> bool {
        let is_allowed = |is_used: bool, keyword| !is_used || self.has(keyword);
        if let Some(options) = &envelope.options
            && !(is_allowed(options.auth.is_some(), Keyword::Auth)
                && is_allowed(options.requiretls, Keyword::RequireTls)
                && is_allowed(options.priority.is_some(), Keyword::MtPriority)
                && (is_tls || !options.requiretls))
        {
            return false;
        }
        if let Some(schedule) = &declared.schedule
            && !(is_allowed(schedule.hold.is_some(), Keyword::FutureRelease)
                && is_allowed(schedule.deliver_by.is_some(), Keyword::DeliverBy))
        {
            return false;
        }
        is_allowed(declared.size.is_some(), Keyword::Size)
            && is_allowed(envelope.smtputf8, Keyword::SmtpUtf8)
            && is_allowed(envelope.ret.is_some() || envelope.envid.is_some(), Keyword::Dsn)
            && is_allowed(envelope.body == BodyType::EightBit, Keyword::EightBitMime)
            && is_allowed(envelope.body == BodyType::Binary, Keyword::BinaryMime)
    }

    /// Are all of the recipient's parameters offered here?
    pub(super) fn allows_recipient(&self, recipient: &Recipient) -> bool {
        let is_plain = !recipient.notify.explicit && recipient.orcpt.is_none();
        is_plain || self.has(Keyword::Dsn)
    }

    /// The text of EHLO's reply: the host name and a line for each keyword but the `hidden` ones. `mechanisms`: those
    /// that this session may use. `now`: needed where FUTURERELEASE is offered.
    pub(super) fn hello_text(
        &self,
        limits: &Limits,
        is_tls: bool,
        mechanisms: &[&str],
        now: Option<UnixMillis>,
        hidden: &[Keyword],
    ) -> String {
        let mut text = String::with_capacity(192);
        text.push_str(&self.hostname);
        for keyword in self.keywords.iter().filter(|keyword| !hidden.contains(keyword)) {
            let line = match keyword {
                Keyword::Pipelining => "PIPELINING",
                Keyword::Size => {
                    let _ = write!(text, "\nSIZE {}", limits.message_bytes);
                    continue;
                }
                Keyword::Limits => {
                    // A value has six digits at most (RFC 9422 §3).
                    let _ = write!(text, "\nLIMITS RCPTMAX={}", limits.recipients.min(LIMIT_MAX));
                    let _ = write!(text, " MAILMAX={}", (limits.transactions as usize).min(LIMIT_MAX));
                    continue;
                }
                Keyword::RequireTls if !is_tls => continue,
                Keyword::RequireTls => "REQUIRETLS",
                Keyword::StartTls if is_tls => continue,
                Keyword::StartTls => "STARTTLS",
                Keyword::Auth if mechanisms.is_empty() => continue,
                Keyword::Auth => {
                    text.push_str("\nAUTH");
                    for mechanism in mechanisms {
                        let _ = write!(text, " {mechanism}");
                    }
                    continue;
                }
                Keyword::FutureRelease => {
                    self.write_future_release(&mut text, now);
                    continue;
                }
                Keyword::DeliverBy => {
                    let _ = write!(text, "\nDELIVERBY {}", self.extensions.deliver_by_min_seconds);
                    continue;
                }
                Keyword::MtPriority => {
                    text.push_str("\nMT-PRIORITY");
                    if let Some(policy) = &self.extensions.priority_policy {
                        let _ = write!(text, " {policy}");
                    }
                    continue;
                }
                Keyword::XClient => {
                    let _ = write!(text, "\nXCLIENT {}", ClientAttributeSet::XClient.names().join(" "));
                    continue;
                }
                Keyword::XForward => {
                    let _ = write!(text, "\nXFORWARD {}", ClientAttributeSet::XForward.names().join(" "));
                    continue;
                }
                Keyword::Etrn => "ETRN",
                Keyword::Vrfy => "VRFY",
                Keyword::Expn => "EXPN",
                Keyword::EnhancedStatusCodes => "ENHANCEDSTATUSCODES",
                Keyword::EightBitMime => "8BITMIME",
                Keyword::Dsn => "DSN",
                Keyword::SmtpUtf8 => "SMTPUTF8",
                Keyword::Chunking => "CHUNKING",
                Keyword::BinaryMime => "BINARYMIME",
                Keyword::Help => "HELP",
            };
            text.push('\n');
            text.push_str(line);
        }
        text
    }

    /// Appends the longest interval, and the time at which it ends, in seconds (RFC 4865 §3).
    fn write_future_release(&self, text: &mut String, now: Option<UnixMillis>) {
        let Some(now) = now else { return };
        let seconds = u64::from(self.extensions.hold_max_seconds);
        let latest = UnixMillis((now.0 / 1000 + seconds) * 1000).rfc3339();
        let _ = write!(text, "\nFUTURERELEASE {seconds} {}Z", latest.trim_end_matches(".000Z"));
    }
}
