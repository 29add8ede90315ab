//! The replies that a connection waits for.

/// The command that a reply will answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExpectedReply {
    /// The connection itself.
    Greeting,
    /// EHLO, HELO or LHLO.
    Hello,
    /// STARTTLS.
    StartTls,
    /// AUTH, or a response to a challenge.
    Auth,
    /// A command of a question.
    Question,
    /// MAIL.
    Mail,
    /// One RCPT.
    Rcpt,
    /// DATA.
    Data,
    /// The end of the content.
    Final,
    /// RSET.
    Reset,
    /// QUIT.
    Quit,
}

impl ExpectedReply {
    /// Returns what a client does that waits for the reply, in Postfix's words: behind "while".
    pub(super) fn step(self) -> &'static str {
        match self {
            Self::Greeting => "receiving the initial server greeting",
            Self::Hello => "performing the EHLO handshake",
            Self::StartTls => "sending STARTTLS",
            Self::Auth => "sending AUTH",
            Self::Question => "verifying an address",
            Self::Mail => "sending MAIL FROM",
            Self::Rcpt => "sending RCPT TO",
            Self::Data => "sending DATA command",
            Self::Final => "sending end of data",
            Self::Reset => "sending RSET",
            Self::Quit => "sending QUIT",
        }
    }
}

impl From<Expected> for ExpectedReply {
    fn from(expect: Expected) -> Self {
        match expect {
            Expected::Greeting => Self::Greeting,
            Expected::Ehlo | Expected::Helo => Self::Hello,
            Expected::StartTls => Self::StartTls,
            Expected::Auth => Self::Auth,
            Expected::Question(_) => Self::Question,
            Expected::Mail => Self::Mail,
            Expected::Rcpt(_) => Self::Rcpt,
            Expected::Data => Self::Data,
            Expected::Final | Expected::FinalFor(_) => Self::Final,
            Expected::Rset => Self::Reset,
            Expected::Quit => Self::Quit,
        }
    }
}

/// The replies that are expected, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Greeting,
    Ehlo,
    Helo,
    StartTls,
    Auth,
    /// A command of a question.
    Question(ExpectedReply),
    Mail,
    Rcpt(usize),
    Data,
    /// The end of the content of the first transaction.
    Final,
    /// The final reply for one recipient of LMTP.
    FinalFor(usize),
    Rset,
    Quit,
}
