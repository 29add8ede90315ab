//! Kinds of listeners.

/// The purpose of a listener: who may use it, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ListenerKind {
    /// Mail from everywhere for local domains; from trusted clients and logins for all.
    #[default]
    Mx,
    /// Mail from trusted clients only, for all domains.
    Relay,
    /// Mail from logins, with STARTTLS (RFC 6409).
    Submission,
    /// Mail from logins, with TLS from the first byte (RFC 8314 §3.3).
    Submissions,
    /// LMTP (RFC 2033): mail for local domains from other mail servers, with a reply for each recipient.
    Lmtp,
}

impl ListenerKind {
    /// Returns the kind as the configuration names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mx => "mx",
            Self::Relay => "relay",
            Self::Submission => "submission",
            Self::Submissions => "submissions",
            Self::Lmtp => "lmtp",
        }
    }

    /// Returns whether mail needs a login.
    pub fn needs_login(self) -> bool {
        matches!(self, Self::Submission | Self::Submissions)
    }

    /// Returns whether AUTH is offered where there are users.
    pub fn has_login(self) -> bool {
        !matches!(self, Self::Relay | Self::Lmtp)
    }

    /// Returns the port that is registered for the kind.
    pub fn port(self) -> u16 {
        match self {
            Self::Mx | Self::Relay => 25,
            Self::Submission => 587,
            Self::Submissions => 465,
            Self::Lmtp => 24,
        }
    }
}
