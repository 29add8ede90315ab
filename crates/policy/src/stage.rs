//! The stages of a message's acceptance.

/// A stage. A message walks the stages in this order; RCPT once a recipient, and the body in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The client is connected.
    Connect,
    /// EHLO or HELO.
    Hello,
    /// AUTH succeeded.
    Auth,
    /// MAIL.
    Mail,
    /// RCPT, before the recipient joins the envelope.
    Rcpt,
    /// The header is complete.
    Header,
    /// A piece of the body.
    Body,
    /// The content is complete.
    Content,
    /// The content is as it will be stored: all changes are made, and what seals it is added.
    Seal,
}

impl Stage {
    /// Number of stages.
    pub const COUNT: usize = 9;

    /// The stages at which rules and limits run, in order.
    pub const OF_RULES: [Self; 5] = [Self::Connect, Self::Hello, Self::Mail, Self::Rcpt, Self::Content];

    /// Returns the word for the stage; the configuration has those of rules, such as `connect`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Hello => "hello",
            Self::Auth => "auth",
            Self::Mail => "mail",
            Self::Rcpt => "rcpt",
            Self::Header => "header",
            Self::Body => "body",
            Self::Content => "content",
            Self::Seal => "seal",
        }
    }
}
