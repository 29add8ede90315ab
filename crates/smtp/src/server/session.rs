//! One SMTP server session as a table: every state, every input, and what is done (RFC 5321 §4.1.4).
//! Knows neither bytes nor time; [`super::Connection`] decodes lines and content for it.

use super::{
    Profile,
    profile::{Keyword, MechanismNeed, OfferedMechanism},
    replies,
};
use crate::{
    Command, Limits,
    command::{Declared, EtrnNode, decode_initial},
    forwarded::ClientAttributes,
};
use mail::{BodyType, Envelope, Recipient, Reply, ReversePath, TransmissionType, UnixMillis};
use std::fmt;

/// An input of the session.
#[derive(Debug)]
pub enum Input {
    /// A command line was read.
    Command(Command),
    /// A line was read that is no command: the reply for it.
    Malformed(Reply),
    /// The driver's answer to one of the questions. Given for [`Action::JudgeContent`], it ends the transaction
    /// without a message.
    Answer(Reply),
    /// The content that [`Action::JudgeContent`] asked about is accepted.
    Accepted,
    /// The driver's challenge, for the client.
    Challenge(Vec<u8>),
    /// The client's line after a challenge, decoded, or the reply for a line that is no response.
    AuthLine(Result<Vec<u8>, Reply>),
    /// CRLF.CRLF was seen, or the last chunk is complete; the reply if the content is bad.
    ContentEnd(Option<Reply>),
    /// A chunk that is not the last is complete; the reply if it is bad.
    ChunkEnd(Option<Reply>),
    /// The answer to [`Action::AskTime`].
    Time(UnixMillis),
}

/// The input of a client in an authentication exchange (RFC 4954 §4). The bytes may be a secret, which Debug hides.
#[derive(Clone, PartialEq, Eq)]
pub enum AuthInput {
    /// The exchange begins with this mechanism, one of the profile's.
    Begin {
        /// Name of the mechanism, in capitals.
        mechanism: Box<str>,
        /// The initial response, decoded.
        initial: Option<Vec<u8>>,
    },
    /// The response to the last challenge, decoded.
    Response(Vec<u8>),
}

impl fmt::Debug for AuthInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin { mechanism, .. } => write!(f, "Begin({mechanism})"),
            Self::Response(_) => f.write_str("Response"),
        }
    }
}

/// A command or a content that was refused without a question, for a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// `MAIL`, `RCPT` or `DATA`.
    pub stage: &'static str,
    /// The reply that the client gets.
    pub reply: Reply,
    /// The reverse-path, and the recipients that it is about; none outside of a transaction.
    pub envelope: Option<Envelope>,
}

impl Refused {
    fn by_limit(stage: &'static str, reply: Reply, envelope: Envelope) -> Action {
        Action::Refuse(Box::new(Self { stage, reply, envelope: Some(envelope) }))
    }
}

/// The next action of the caller. The questions wait for [`Input::Answer`]; pipelined bytes wait with them.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a reply.
    Send(Reply),
    /// Send a reply that refuses a command because of a limit, and tell it.
    Refuse(Box<Refused>),
    /// Send a reply so many times: once for each recipient (RFC 2033 §4.2).
    SendEach(Reply, usize),
    /// May the client go on under the name it gave? See [`Session::judged_hello`].
    JudgeHello,
    /// Ask the SASL mechanism. Answered by [`Input::Challenge`] or, at the end, by [`Input::Answer`].
    Authenticate(AuthInput),
    /// Send 334 with this challenge, and read a line.
    Challenge(Vec<u8>),
    /// May this sender mail? See [`Session::envelope`].
    JudgeSender,
    /// May it go there? See [`Session::judged_recipient`].
    JudgeRecipient,
    /// Send 354 and read content to CRLF.CRLF.
    ReadData,
    /// Read this many octets of content.
    ReadChunk {
        /// Length of the chunk in octets.
        size_bytes: u64,
        /// True for the last chunk of the message (`BDAT … LAST`).
        last: bool,
    },
    /// Read and forget this many octets, then send the reply: a refused chunk still follows its
    /// command (RFC 3030 §2).
    SkipChunk(u64, Reply),
    /// May the content be accepted? See [`Session::envelope`]. [`Input::Accepted`] is answered by
    /// [`Action::Commit`].
    JudgeContent,
    /// Make the message durable.
    Commit(Box<Envelope>),
    /// Send 220 and begin the TLS handshake.
    StartTls,
    /// The time is needed: answered by [`Input::Time`].
    AskTime,
    /// Answer a question of the client.
    Query(Query),
    /// The peer names its client. Answered by a refusal, or by [`Session::restart`].
    ChangeClient(Box<ClientAttributes>),
    /// The peer names the client from whom the next mail is. Answered by [`Input::Answer`].
    NoteForwarded(Box<ClientAttributes>),
    /// Send a reply and close.
    Close(Reply),
}

/// A question of the client about addresses and queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// VRFY: does the user exist?
    Verify(Box<str>),
    /// EXPN: who is on the list?
    Expand(Box<str>),
    /// ETRN: try what is queued for the domain.
    StartQueue(EtrnNode),
}

/// The state of the session.
#[derive(Debug, Default)]
pub enum State {
    /// 220 sent; EHLO expected.
    #[default]
    Greeted,
    /// Policy weighs EHLO or HELO.
    JudgingHello {
        /// The client's name.
        name: Box<str>,
        /// EHLO, not HELO.
        is_extended: bool,
    },
    /// Between transactions.
    Ready,
    /// An authentication exchange is under way.
    Authenticating,
    /// Policy weighs MAIL.
    JudgingSender(Box<Envelope>),
    /// MAIL accepted; RCPT, DATA or BDAT may follow.
    Open(Box<Envelope>),
    /// Policy weighs one RCPT.
    JudgingRecipient(Box<Envelope>, Recipient),
    /// 354 sent; until CRLF.CRLF.
    Content(Box<Envelope>),
    /// Between or inside chunks.
    Chunks(Box<Envelope>),
    /// A chunk was bad: the others are skipped until RSET or a new MAIL.
    ChunksFailed,
    /// Policy weighs the whole message.
    JudgingContent(Box<Envelope>),
    /// The spool makes the message durable.
    Committing,
    /// A command waits for the time; the state before it.
    AwaitingTime(Box<(State, Command)>),
    /// A question of the client is answered; the state before it, to which the session returns.
    Querying(Box<State>),
    /// The peer has named another client.
    ChangingClient,
    /// The last reply was given.
    Closed,
}

/// The session: its state, and what it remembers across transactions.
#[derive(Debug)]
pub struct Session {
    state: State,
    hello: Option<Box<str>>,
    extended: bool,
    tls: bool,
    /// The client showed a certificate, and it was verified.
    has_certificate: bool,
    is_authenticated: bool,
    refused_in_transaction: bool,
    /// LHLO was accepted.
    is_lmtp: bool,
    /// LMTP: the recipients that the open content has.
    content_recipients: usize,
    /// The time that the command under way has asked for.
    now: Option<UnixMillis>,
    /// The keywords that the replies to EHLO leave out.
    hidden: Vec<Keyword>,
    counts: Counts,
}

/// The counters that are compared with the limits.
#[derive(Debug, Default)]
struct Counts {
    errors: u32,
    refused: u32,
    junk: u32,
    transactions: u32,
}

impl Session {
    /// A session whose greeting is sent; `tls` where TLS came first (RFC 8314 §3.3).
    pub fn new(tls: bool) -> Self {
        Self {
            state: State::Greeted,
            hello: None,
            extended: false,
            tls,
            has_certificate: false,
            is_authenticated: false,
            refused_in_transaction: false,
            is_lmtp: false,
            content_recipients: 0,
            now: None,
            hidden: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The client's name as it gave it in EHLO or HELO.
    pub fn hello(&self) -> Option<&str> {
        self.hello.as_deref()
    }

    /// Returns the `with` protocol of the `Received` field.
    pub fn protocol(&self, smtputf8: bool) -> TransmissionType {
        use TransmissionType::{
            Esmtp, Esmtpa, Esmtps, Esmtpsa, Lmtp, Lmtps, Smtp, Smtps, Utf8Lmtp, Utf8Lmtps, Utf8Smtp,
            Utf8Smtpa, Utf8Smtps, Utf8Smtpsa,
        };
        if self.is_lmtp {
            return match (smtputf8, self.tls) {
                (true, true) => Utf8Lmtps,
                (true, false) => Utf8Lmtp,
                (false, true) => Lmtps,
                (false, false) => Lmtp,
            };
        }
        match (smtputf8, self.extended, self.tls, self.is_authenticated) {
            (true, _, true, true) => Utf8Smtpsa,
            (true, _, true, false) => Utf8Smtps,
            (true, _, false, true) => Utf8Smtpa,
            (true, _, false, false) => Utf8Smtp,
            (false, true, true, true) => Esmtpsa,
            (false, true, true, false) => Esmtps,
            (false, true, false, true) => Esmtpa,
            (false, true, false, false) => Esmtp,
            (false, false, true, _) => Smtps,
            (false, false, false, _) => Smtp,
        }
    }

    /// Returns the envelope of the open transaction; `None` if there is none.
    pub fn envelope(&self) -> Option<&Envelope> {
        match &self.state {
            State::JudgingSender(e) | State::Open(e) | State::Content(e) | State::Chunks(e) => Some(e),
            State::JudgingRecipient(e, _) | State::JudgingContent(e) => Some(e),
            State::Querying(before) => match &**before {
                State::Open(e) | State::Chunks(e) => Some(e),
                _ => None,
            },
            _ => None,
        }
    }

    /// The recipient that [`Action::JudgeRecipient`] asks about.
    pub fn judged_recipient(&self) -> Option<&Recipient> {
        match &self.state {
            State::JudgingRecipient(_, recipient) => Some(recipient),
            _ => None,
        }
    }

    /// The name that [`Action::JudgeHello`] asks about.
    pub fn judged_hello(&self) -> Option<&str> {
        match &self.state {
            State::JudgingHello { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Did the client authenticate?
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Returns true if RCPT may have UTF-8: MAIL had SMTPUTF8.
    pub fn utf8(&self) -> bool {
        self.envelope().is_some_and(|e| e.smtputf8)
    }

    /// The TLS handshake is done: nothing said in clear text counts any more (RFC 3207 §4.2).
    pub fn secured(&mut self) {
        *self = Self { counts: std::mem::take(&mut self.counts), ..Self::new(true) };
    }

    /// Begins the session anew for a client that the peer has named: what was said before does not count, TLS with the
    /// peer stays. With a name the session is as behind HELO or EHLO.
    pub fn restart(&mut self, hello: Option<(Box<str>, bool)>) {
        *self = Self { counts: std::mem::take(&mut self.counts), ..Self::new(self.tls) };
        if let Some((name, is_extended)) = hello {
            self.hello = Some(name);
            self.extended = is_extended;
            self.state = State::Ready;
        }
    }

    /// The client's certificate was verified: mechanisms that need it are offered.
    pub fn certified(&mut self) {
        self.has_certificate = true;
    }

    /// Leaves keywords out of the replies to EHLO.
    pub fn hide(&mut self, keywords: Vec<Keyword>) {
        self.hidden = keywords;
    }

    /// No transaction is open and none is being committed: stopping here breaks nothing.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Greeted | State::Ready | State::Authenticating | State::Closed)
    }

    /// Every transition, in the order a client walks them; then the limits.
    pub fn step(&mut self, input: Input, limits: &Limits, profile: &Profile) -> Action {
        let junk = is_junk(&input);
        let (state, action) = match (std::mem::take(&mut self.state), input) {
            (state, Input::Malformed(reply)) if reply == replies::WRONG_PROTOCOL => {
                (state, Action::Close(reply))
            }
            (state, Input::Malformed(reply)) if reply == replies::BAD_CHUNK_SIZE => {
                (state, Action::Close(reply))
            }
            (state, Input::Malformed(reply)) => (state, Action::Send(reply)),
            (state, Input::Command(command)) => self.command(state, command, limits, profile),
            (State::AwaitingTime(waiting), Input::Time(now)) => {
                self.now = Some(now);
                let (state, command) = *waiting;
                self.command(state, command, limits, profile)
            }
            (State::Querying(before), Input::Answer(reply)) => (*before, send_or_close(reply)),
            (State::ChangingClient, Input::Answer(reply)) => (State::Greeted, send_or_close(reply)),
            (State::JudgingHello { name, is_extended }, Input::Answer(reply)) => {
                self.end_hello(name, is_extended, reply, limits, profile)
            }
            (state, Input::Answer(reply)) => self.answer(state, reply),
            (State::Authenticating, Input::Challenge(text)) => {
                (State::Authenticating, Action::Challenge(text))
            }
            (State::Authenticating, Input::AuthLine(Ok(response))) => {
                (State::Authenticating, Action::Authenticate(AuthInput::Response(response)))
            }
            (State::Authenticating, Input::AuthLine(Err(reply))) => (State::Ready, Action::Send(reply)),
            (State::Content(_), Input::ContentEnd(Some(bad))) => (State::Ready, self.end_content(bad)),
            (State::Content(e) | State::Chunks(e), Input::ContentEnd(None)) => {
                (State::JudgingContent(e), Action::JudgeContent)
            }
            (State::Chunks(_), Input::ContentEnd(Some(bad))) => (State::Ready, self.end_content(bad)),
            (State::Chunks(e), Input::ChunkEnd(None)) => (State::Chunks(e), Action::Send(replies::OK)),
            (State::Chunks(_), Input::ChunkEnd(Some(bad))) => (State::ChunksFailed, Action::Send(bad)),
            (State::JudgingContent(e), Input::Accepted) => (State::Committing, Action::Commit(e)),
            (state, input) => unreachable!("driver sent {input:?} in {state:?}"),
        };
        self.state = state;
        self.limit(action, junk, limits)
    }

    fn command(
        &mut self,
        state: State,
        command: Command,
        limits: &Limits,
        profile: &Profile,
    ) -> (State, Action) {
        use Command::{
            Auth, Bdat, Data, Ehlo, Etrn, Expn, Helo, Help, Lhlo, Mail, Noop, Quit, Rcpt, Rset, StartTls,
            Vrfy, XClient, XForward,
        };
        let send = Action::Send;
        match (state, command) {
            (state, Bdat { size_bytes, .. }) if profile.needs_tls && !self.tls => {
                (state, Action::SkipChunk(size_bytes, replies::TLS_FIRST))
            }
            (state, Auth { .. } | Mail(..) | Rcpt(_) | Data | Vrfy(_) | Expn(_) | Etrn(_))
                if profile.needs_tls && !self.tls =>
            {
                (state, send(replies::TLS_FIRST))
            }
            (_, Quit) => (State::Closed, Action::Close(replies::BYE)),
            (state, Noop) => (state, send(replies::OK)),
            (state, Ehlo(_) | Helo(_)) if profile.is_lmtp => (state, send(replies::USE_LHLO)),
            (state, Lhlo(_)) if !profile.is_lmtp => (state, send(replies::UNKNOWN_COMMAND)),
            (_, Lhlo(name)) => {
                self.is_lmtp = true;
                (State::JudgingHello { name, is_extended: true }, Action::JudgeHello)
            }
            (state, command @ Ehlo(_)) if self.now.is_none() && profile.has(Keyword::FutureRelease) => {
                (State::AwaitingTime(Box::new((state, command))), Action::AskTime)
            }
            // A new EHLO drops the open transaction (RFC 5321 §4.1.4).
            (_, Ehlo(name)) => (State::JudgingHello { name, is_extended: true }, Action::JudgeHello),
            (_, Helo(name)) => (State::JudgingHello { name, is_extended: false }, Action::JudgeHello),
            (State::Greeted, Rset) => (State::Greeted, send(replies::OK)),
            (_, Rset) => (State::Ready, send(replies::OK)),
            (state, Help) => (state, send(replies::HELP)),
            (state, command @ (Vrfy(_) | Expn(_) | Etrn(_) | XClient(_) | XForward(_))) => {
                side_command(state, command, profile)
            }
            (state, StartTls) if self.tls => (state, send(replies::TLS_ACTIVE)),
            (state, StartTls) if !profile.has(Keyword::StartTls) => (state, send(replies::NO_TLS)),
            (state @ (State::Greeted | State::Ready), StartTls) => (state, Action::StartTls),
            (state, StartTls) => (state, send(replies::TLS_IN_TRANSACTION)),
            (state, Auth { .. }) if !profile.has(Keyword::Auth) => (state, send(replies::NOT_OFFERED)),
            (State::Greeted, Auth { .. }) => (State::Greeted, send(replies::HELLO_FIRST)),
            (State::Ready, Auth { mechanism, initial }) => self.auth(mechanism, initial.as_deref(), profile),
            (state, Auth { .. }) => (state, send(replies::AUTH_IN_TRANSACTION)),
            (state, Bdat { size_bytes, .. }) if !profile.has(Keyword::Chunking) => {
                (state, Action::SkipChunk(size_bytes, replies::NOT_OFFERED))
            }
            (State::Greeted, Bdat { size_bytes, .. }) => {
                (State::Greeted, Action::SkipChunk(size_bytes, replies::HELLO_FIRST))
            }
            (State::Greeted, _) => (State::Greeted, send(replies::HELLO_FIRST)),
            (state @ (State::Ready | State::ChunksFailed), Mail(envelope, declared)) => {
                self.mail(state, envelope, declared, limits, profile)
            }
            (State::ChunksFailed, Bdat { size_bytes, .. }) => {
                (State::ChunksFailed, Action::SkipChunk(size_bytes, replies::MAIL_FIRST))
            }
            (State::ChunksFailed, _) => (State::ChunksFailed, send(replies::CHUNKS_OPEN)),
            (State::Ready, Bdat { size_bytes, .. }) => {
                (State::Ready, Action::SkipChunk(size_bytes, replies::MAIL_FIRST))
            }
            (State::Ready, _) => (State::Ready, send(replies::MAIL_FIRST)),
            (State::Open(e), Mail(..)) => (State::Open(e), send(replies::NESTED_MAIL)),
            (State::Open(e), Rcpt(recipient)) if e.recipients.len() >= limits.recipients => {
                let mut about = Envelope::new(e.reverse_path.clone());
                about.recipients.push(recipient);
                (State::Open(e), Refused::by_limit("RCPT", replies::TOO_MANY_RECIPIENTS, about))
            }
            (State::Open(e), Rcpt(recipient)) if !profile.allows_recipient(&recipient) => {
                (State::Open(e), send(replies::UNKNOWN_PARAMETER))
            }
            (State::Open(e), Rcpt(recipient)) => {
                (State::JudgingRecipient(e, recipient), Action::JudgeRecipient)
            }
            (State::Open(e), Data) if e.recipients.is_empty() => (State::Open(e), send(self.no_recipients())),
            (State::Open(e), Data) if e.body == BodyType::Binary => {
                (State::Open(e), send(replies::BINARY_NEEDS_BDAT))
            }
            (State::Open(e), Data) => {
                self.content_recipients = e.recipients.len();
                (State::Content(e), Action::ReadData)
            }
            (State::Open(e), Bdat { size_bytes, .. }) if e.recipients.is_empty() => {
                let reply = self.no_recipients();
                (State::Open(e), Action::SkipChunk(size_bytes, reply))
            }
            (State::Open(e) | State::Chunks(e), Bdat { size_bytes, last }) => {
                self.content_recipients = e.recipients.len();
                chunk(e, size_bytes, last)
            }
            (State::Chunks(e), _) => (State::Chunks(e), send(replies::CHUNKS_OPEN)),
            (state, command) => unreachable!("driver sent {command:?} in {state:?}"),
        }
    }

    /// EHLO or HELO was judged. One that was refused leaves the session without a name (RFC 5321 §4.1.4).
    fn end_hello(
        &mut self,
        name: Box<str>,
        is_extended: bool,
        reply: Reply,
        limits: &Limits,
        profile: &Profile,
    ) -> (State, Action) {
        let now = self.now.take();
        if !reply.is_positive() {
            self.hello = None;
            return (State::Greeted, send_or_close(reply));
        }
        self.hello = Some(name);
        self.extended = is_extended;
        let text = if is_extended {
            let offered = profile.auth.mechanisms.iter().filter(|one| self.offers(one, profile));
            let mechanisms: Vec<&str> = offered.map(|one| &*one.name).collect();
            profile.hello_text(limits, self.tls, &mechanisms, now, &self.hidden)
        } else {
            profile.hostname.to_string()
        };
        (State::Ready, Action::Send(Reply::new(250, None, text)))
    }

    /// AUTH can be offered now.
    fn may_authenticate(&self, profile: &Profile) -> bool {
        !self.is_authenticated && (self.tls || profile.auth.in_clear_text)
    }

    /// Is the mechanism offered now?
    fn offers(&self, mechanism: &OfferedMechanism, profile: &Profile) -> bool {
        self.may_authenticate(profile)
            && match mechanism.needs {
                MechanismNeed::Nothing => true,
                MechanismNeed::Tls => self.tls,
                MechanismNeed::Certificate => self.has_certificate,
            }
    }

    fn auth(&mut self, mechanism: Box<str>, initial: Option<&str>, profile: &Profile) -> (State, Action) {
        let refusal = if self.is_authenticated {
            replies::AUTHENTICATED_ALREADY
        } else if !self.may_authenticate(profile) {
            replies::AUTH_NEEDS_TLS
        } else if !profile
            .auth
            .mechanisms
            .iter()
            .any(|one| one.name == mechanism && self.offers(one, profile))
        {
            replies::UNKNOWN_MECHANISM
        } else if let Ok(initial) = initial.map(|text| decode_initial(text).ok_or(())).transpose() {
            let begin = AuthInput::Begin { mechanism, initial };
            return (State::Authenticating, Action::Authenticate(begin));
        } else {
            replies::BAD_BASE64
        };
        (State::Ready, Action::Send(refusal))
    }

    fn mail(
        &mut self,
        state: State,
        mut envelope: Envelope,
        declared: Declared,
        limits: &Limits,
        profile: &Profile,
    ) -> (State, Action) {
        if !profile.allows(&envelope, &declared, self.tls) {
            return (State::Ready, Action::Send(replies::UNKNOWN_PARAMETER));
        }
        if profile.needs_login && !self.is_authenticated {
            return (State::Ready, Action::Send(replies::LOGIN_FIRST));
        }
        if declared.schedule.is_some() && self.now.is_none() {
            let waiting = Box::new((state, Command::Mail(envelope, declared)));
            return (State::AwaitingTime(waiting), Action::AskTime);
        }
        // A submitter whom nobody vouches for is not passed on (RFC 4954 §5). A login is judged by its sender, and by no other
        // address.
        if let Some(options) = &mut envelope.options
            && let Some(submitter) = &options.auth
            && !(self.is_authenticated && *submitter == envelope.reverse_path)
        {
            options.auth = Some(ReversePath::Null);
        }
        self.refused_in_transaction = false;
        if let (Some(schedule), Some(now)) = (&declared.schedule, self.now.take()) {
            let mut options = envelope.options.take().map_or_else(Default::default, |options| *options);
            let (hold_max, by_min) =
                (profile.extensions.hold_max_seconds, profile.extensions.deliver_by_min_seconds);
            if let Err(reply) = schedule.resolve(now, hold_max, by_min, &mut options) {
                return (State::Ready, Action::Send(reply));
            }
            envelope.options = options.boxed();
        }
        if declared.size.is_some_and(|s| s > limits.message_bytes) {
            return (State::Ready, Refused::by_limit("MAIL", replies::TOO_LARGE, envelope));
        }
        self.counts.transactions += 1;
        if self.counts.transactions > limits.transactions {
            return (State::Closed, Action::Close(replies::TOO_MANY_TRANSACTIONS));
        }
        (State::JudgingSender(Box::new(envelope)), Action::JudgeSender)
    }

    fn no_recipients(&self) -> Reply {
        // LMTP has 503 for both (RFC 2033 §4.2).
        if self.refused_in_transaction && !self.is_lmtp {
            replies::NO_RECIPIENTS
        } else {
            Reply::fixed(503, mail::Enhanced(5, 5, 1), "Send RCPT first")
        }
    }

    /// Ends a transaction with the reply to its content: one for each recipient in LMTP.
    fn end_content(&self, reply: Reply) -> Action {
        match send_or_close(reply) {
            Action::Send(reply) | Action::Close(reply) if self.is_lmtp => {
                Action::SendEach(reply, self.content_recipients)
            }
            action => action,
        }
    }

    fn answer(&mut self, state: State, reply: Reply) -> (State, Action) {
        let good = reply.is_positive();
        match state {
            State::JudgingSender(e) if good => (State::Open(e), Action::Send(reply)),
            State::JudgingSender(_) => (State::Ready, send_or_close(reply)),
            State::JudgingRecipient(mut e, recipient) if good => {
                e.recipients.push(recipient);
                (State::Open(e), Action::Send(reply))
            }
            State::JudgingRecipient(e, _) => {
                self.refused_in_transaction = true;
                // One that is too many may come in the next transaction.
                self.counts.refused += u32::from(reply.code != 452);
                (State::Open(e), send_or_close(reply))
            }
            State::Authenticating => {
                self.is_authenticated = good;
                (State::Ready, send_or_close(reply))
            }
            State::JudgingContent(_) => (State::Ready, self.end_content(reply)),
            State::Committing => {
                if good {
                    // A client that brings mail may err now and then, however long its session is.
                    self.counts.errors = 0;
                    self.counts.refused = 0;
                }
                (State::Ready, self.end_content(reply))
            }
            state => unreachable!("driver answered in {state:?}"),
        }
    }

    /// Counts what the action shows and turns it into a close at a limit.
    fn limit(&mut self, action: Action, junk: bool, limits: &Limits) -> Action {
        let error = match &action {
            Action::Send(reply) | Action::SendEach(reply, _) | Action::SkipChunk(_, reply) => {
                (500..=504).contains(&reply.code) || matches!(reply.code, 530 | 535 | 538 | 555)
            }
            _ => false,
        };
        self.counts.errors += u32::from(error);
        self.counts.junk = if junk {
            self.counts.junk + 1
        } else if matches!(action, Action::JudgeContent) {
            0
        } else {
            self.counts.junk
        };
        let close_with = if self.counts.errors > limits.errors {
            replies::TOO_MANY_ERRORS
        } else if self.counts.refused > limits.refused_recipients {
            replies::TOO_MANY_REFUSED
        } else if self.counts.junk > limits.junk_commands {
            replies::TOO_MUCH_JUNK
        } else {
            return action;
        };
        match action {
            Action::Send(_) | Action::SendEach(..) | Action::SkipChunk(..) => {
                self.state = State::Closed;
                Action::Close(close_with)
            }
            action => action,
        }
    }
}

/// Commands that move no mail: many in a row are a probe or an attack.
fn is_junk(input: &Input) -> bool {
    use Command::{Ehlo, Etrn, Expn, Helo, Help, Lhlo, Noop, Rset, Vrfy, XClient};
    matches!(
        input,
        Input::Command(
            Noop | Rset | Vrfy(_) | Expn(_) | Etrn(_) | XClient(_) | Help | Ehlo(_) | Helo(_) | Lhlo(_)
        )
    )
}

/// Commands that are no part of a transaction.
fn side_command(state: State, command: Command, profile: &Profile) -> (State, Action) {
    use Command::{Etrn, Expn, Vrfy, XClient, XForward};
    let query = |before, query| (State::Querying(Box::new(before)), Action::Query(query));
    let send = Action::Send;
    match (state, command) {
        (state, Vrfy(_)) if !profile.has(Keyword::Vrfy) => (state, send(replies::CANNOT_VERIFY)),
        (state, Vrfy(user)) => query(state, Query::Verify(user)),
        (state, Expn(_)) if !profile.has(Keyword::Expn) => (state, send(replies::NOT_OFFERED)),
        (state, Expn(list)) => query(state, Query::Expand(list)),
        (state, Etrn(_)) if !profile.has(Keyword::Etrn) => (state, send(replies::NOT_OFFERED)),
        (State::Ready, Etrn(node)) => query(State::Ready, Query::StartQueue(node)),
        (state, XClient(_)) if !profile.has(Keyword::XClient) => (state, send(replies::NOT_LISTED)),
        (State::Greeted | State::Ready, XClient(attributes)) => {
            (State::ChangingClient, Action::ChangeClient(attributes))
        }
        (state, XForward(_)) if !profile.has(Keyword::XForward) => (state, send(replies::NOT_LISTED)),
        (State::Ready, XForward(attributes)) => {
            (State::Querying(Box::new(State::Ready)), Action::NoteForwarded(attributes))
        }
        (State::Greeted, _) => (State::Greeted, send(replies::HELLO_FIRST)),
        (state, _) => (state, send(replies::NOT_IN_TRANSACTION)),
    }
}

fn chunk(envelope: Box<Envelope>, size_bytes: u64, last: bool) -> (State, Action) {
    if size_bytes == 0 && !last {
        return (State::ChunksFailed, Action::Send(replies::NULL_CHUNK));
    }
    (State::Chunks(envelope), Action::ReadChunk { size_bytes, last })
}

fn send_or_close(reply: Reply) -> Action {
    if closes(&reply) { Action::Close(reply) } else { Action::Send(reply) }
}

/// Returns whether the reply says that the server closes (421, 521: RFC 5321 §3.8, RFC 7504 §3).
pub(super) fn closes(reply: &Reply) -> bool {
    reply.closes() || reply.code == 521
}
