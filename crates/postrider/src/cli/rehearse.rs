//! `postrider test`: what the configuration decides about a message, and why. Nothing is stored or sent.

use super::{CliError, Ending, args::TestArgs};
use accept::{
    Observer,
    check::View,
    decisions::{Accepted, Decisions},
    duration, own_address,
    pipeline::SessionMemory,
    verp,
};
use config::Settings;
use console::{owner, runtime};
use control::Exit;
use mail::{
    ClientCertificate, Envelope, ForwardPath, ListenerKind, Origin, QueueId, ReceivedContent, Recipient,
    Reply, ReversePath, UnixMillis, header::ContentScanner,
};
use policy::{SessionFacts, Source, Stage};
use server::{connection::generic, snapshot::ConfigSnapshot, wiring};
use smtp::{command::without_source_route, server::replies};
use std::{
    fs,
    io::{self, Read as _, Write},
    net::SocketAddr,
    sync::Arc,
};

/// No message is longer.
const MESSAGE_BYTES_MAX: u64 = 1 << 30;

/// Runs `postrider test`.
pub(super) fn run(args: &TestArgs, settings: Settings, out: &mut dyn Write) -> Ending {
    let sender = sender_of(&args.from)?;
    let recipients = args.to.iter().map(|to| recipient_of(to)).collect::<Result<Vec<_>, _>>()?;
    let content = args.file.as_ref().map(|file| {
        let read = fs::File::open(file).and_then(|open| {
            let mut bytes = Vec::new();
            open.take(MESSAGE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            let is_too_long = bytes.len() as u64 > MESSAGE_BYTES_MAX;
            let too_long = || io::Error::other("it has more octets than any message");
            if is_too_long { Err(too_long()) } else { Ok(bytes) }
        });
        read.map_err(|e| CliError::new(Exit::NoInput, format!("read {}: {e}", file.display())))
    });
    let content = content.transpose()?.map(|bytes| crlf(&bytes));
    let runtime = runtime()?;
    // The parts of the daemon that judge, with connections to the servers of maps.
    let _guard = runtime.enter();
    let config = wiring::current(settings, None, None).map_err(|why| CliError::new(Exit::Config, why))?;
    // Files that the daemon may not read or write decide, and not what root may do.
    owner::become_owner(&config.settings)?;
    // From now on, look-ups are noted.
    config.maps.observe();
    let mut rehearsal = Rehearsal::new(&config, args);
    let exit = runtime.block_on(rehearsal.run(&sender, recipients, content))?;
    rehearsal.print(out)?;
    Ok(exit)
}

fn usage(what: String) -> CliError {
    CliError::new(Exit::Usage, what)
}

fn sender_of(text: &str) -> Result<ReversePath, CliError> {
    let text = text.trim_start_matches('<').trim_end_matches('>');
    ReversePath::parse(text, true).map_err(|e| usage(format!("--from {text}: {e}")))
}

fn recipient_of(text: &str) -> Result<Recipient, CliError> {
    let inner = text.trim_start_matches('<').trim_end_matches('>');
    let inner = without_source_route(inner)
        .ok_or_else(|| usage(format!("--to {text}: the source route is wrong")))?;
    ForwardPath::parse(inner, true).map(Recipient::new).map_err(|e| usage(format!("--to {text}: {e}")))
}

/// Makes the certificate that `--certificate` describes: a fingerprint, a common name, an address or a host.
fn certificate_of(name: &str) -> Arc<ClientCertificate> {
    let fingerprint = ClientCertificate::read_fingerprint(name);
    let mut certificate =
        ClientCertificate { is_trusted: fingerprint.is_none(), ..ClientCertificate::default() };
    match (fingerprint, name.strip_prefix("cn:")) {
        (Some(fingerprint), _) => certificate.fingerprint = fingerprint,
        (None, Some(common_name)) => certificate.common_name = Some(common_name.into()),
        (None, None) if name.contains('@') => certificate.addresses.push(name.into()),
        (None, None) => certificate.hosts.push(name.to_lowercase().into()),
    }
    Arc::new(certificate)
}

/// Content as a client sends it.
fn crlf(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 32);
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        out.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// What would become of a message.
#[derive(Debug, Default)]
pub(super) struct Disposition {
    /// The last reply that refuses the message or a recipient.
    pub(super) refusal: Option<Reply>,
    /// Why the message, or a recipient, is held or discarded instead of delivered.
    pub(super) kept: Vec<String>,
    /// As servers behind this one would see it.
    pub(super) sender: String,
    /// Each recipient, as others would see it.
    pub(super) recipients: Vec<Goal>,
}

/// A recipient as it would be queued, and where its mail would go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Goal {
    pub(super) recipient: String,
    /// True if it leaves by SMTP.
    pub(super) leaves: bool,
    /// The mailbox on this machine, or the next hop.
    pub(super) place: String,
}

/// Judges a message without content, as [`run`] does.
///
/// # Errors
/// An address is wrong.
pub(super) async fn disposition(config: &ConfigSnapshot, args: &TestArgs) -> Result<Disposition, CliError> {
    let sender = sender_of(&args.from)?;
    let recipients = args.to.iter().map(|to| recipient_of(to)).collect::<Result<Vec<_>, _>>()?;
    let mut rehearsal = Rehearsal::new(config, args);
    rehearsal.run(&sender, recipients, None).await?;
    Ok(rehearsal.disposition)
}

/// Runs one message through the checks without storing it.
struct Rehearsal<'c> {
    config: &'c ConfigSnapshot,
    facts: SessionFacts,
    observer: Observer,
    memory: SessionMemory,
    listener: ListenerKind,
    lines: Vec<[String; 3]>,
    disposition: Disposition,
    exit: Exit,
}

/// Returns the stage by which operators know it from the configuration.
fn shown(stage: Stage) -> &'static str {
    match stage {
        Stage::Auth => "hello",
        Stage::Header | Stage::Body | Stage::Seal => "content",
        stage => stage.as_str(),
    }
}

impl<'c> Rehearsal<'c> {
    fn new(config: &'c ConfigSnapshot, args: &TestArgs) -> Self {
        let listener = args.listener;
        let peer = SocketAddr::new(args.client, 12_345);
        let listening = config.settings.listen.iter().find(|listen| listen.kind == listener);
        let known = listening.and_then(|listen| listen.address.ip());
        let local = known.unwrap_or(SocketAddr::new(args.client, listener.port()));
        let facts = SessionFacts {
            hello: Some(args.hello.as_str().into()),
            tls: (args.tls || args.certificate.is_some()).then(|| "TLSv1.3:TLS_AES_256_GCM_SHA384".into()),
            certificate: args.certificate.as_deref().map(certificate_of),
            login: args.login.as_deref().map(Into::into),
            ..SessionFacts::new(Source::Smtp { peer, local, listener })
        };
        Self {
            config,
            facts,
            observer: Observer::default(),
            memory: config.pipeline.begin(SessionMemory::default()),
            listener,
            lines: Vec::new(),
            disposition: Disposition::default(),
            exit: Exit::Ok,
        }
    }

    fn view(&self, stage: Stage) -> View<'_> {
        View { observer: Some(&self.observer), ..View::new(stage, self.config.rules(), &self.facts) }
    }

    fn line(&mut self, stage: &str, what: &str, text: impl Into<String>) {
        self.lines.push([stage.to_owned(), what.to_owned(), text.into()]);
    }

    /// Notes a reply, and the exit code that it means.
    fn reply(&mut self, reply: &Reply, about: &str) {
        let rule = reply.rule().map(|rule| format!("   ({rule})")).unwrap_or_default();
        self.line("reply", about, format!("{reply}{rule}"));
        if !reply.is_positive() {
            self.disposition.refusal = Some(reply.clone());
        }
        // A refusal for good is the news, whatever else is only for now.
        self.exit = match (reply.is_positive(), reply.is_transient(), self.exit) {
            (true, _, exit) => exit,
            (_, true, Exit::Ok) => Exit::TempFail,
            (_, true, exit) => exit,
            _ => Exit::DataErr,
        };
    }

    async fn run(
        &mut self,
        sender: &ReversePath,
        recipients: Vec<Recipient>,
        content: Option<Vec<u8>>,
    ) -> Result<Exit, CliError> {
        let mut decisions = Decisions::default();
        let may_connect = match self.facts.source {
            Source::Smtp { peer, .. } => {
                self.listener != ListenerKind::Relay || self.config.policy.may_relay(peer.ip())
            }
            _ => true,
        };
        if !may_connect {
            self.reply(&replies::NO_ACCESS, "connect");
            return Ok(self.exit);
        }
        for (stage, name) in [(Stage::Connect, "connect"), (Stage::Hello, "hello")] {
            if let Err(reply) = self.judge(stage, None, None, &mut decisions).await {
                self.reply(&reply, name);
                return Ok(self.exit);
            }
        }
        if self.listener.needs_login() && self.facts.login.is_none() {
            self.reply(&replies::LOGIN_FIRST, "mail");
            return Ok(self.exit);
        }
        self.memory.begin_transaction();
        let mut envelope = Envelope::new(sender.clone());
        if let Err(reply) = self.judge(Stage::Mail, Some(&envelope), None, &mut decisions).await {
            self.reply(&reply, "mail");
            return Ok(self.exit);
        }
        for recipient in recipients {
            let about = recipient.path.to_string();
            self.relay(&recipient);
            match self.judge(Stage::Rcpt, Some(&envelope), Some(&recipient), &mut decisions).await {
                Ok(()) => {
                    self.reply(&replies::RECIPIENT_OK, &about);
                    envelope.recipients.push(recipient);
                }
                Err(reply) => self.reply(&reply, &about),
            }
        }
        if envelope.recipients.is_empty() {
            return Ok(self.exit);
        }
        if let Some(Err(reply)) = content.as_deref().map(|content| self.check_limits(content)) {
            self.reply(&reply, "content");
            return Ok(self.exit);
        }
        let has_content = content.is_some();
        let mut content = ReceivedContent::from_bytes(content.unwrap_or_else(|| b"\r\n".to_vec()), 0);
        if has_content {
            if let Err(reply) = self.judge_content(&envelope, &mut content, &mut decisions).await {
                self.reply(&reply, "content");
                return Ok(self.exit);
            }
        } else if self.config.pipeline.has(Stage::Content) {
            self.line("content", "", "not judged: name a message with --file");
        }
        self.result(decisions, envelope, content).await;
        Ok(self.exit)
    }

    /// Checks the header and the size of the content, as a session does while it reads them.
    ///
    /// # Errors
    /// The reply that refuses the message.
    fn check_limits(&self, content: &[u8]) -> Result<(), Reply> {
        let settings = &self.config.settings;
        let mut scanner = ContentScanner::default();
        scanner.scan(content);
        settings.limits.check_header(&scanner)?;
        let listening = settings.listen.iter().find(|listen| listen.kind == self.listener);
        let of_listener = listening.and_then(|listen| listen.max_message_size).map(|size| size.0);
        let most = of_listener.unwrap_or(settings.limits.message_bytes);
        if content.len() as u64 > most { Err(replies::TOO_LARGE) } else { Ok(()) }
    }

    /// Notes whether the client may send to the domain of a recipient: no rule decides that.
    fn relay(&mut self, recipient: &Recipient) {
        let Source::Smtp { local, .. } = self.facts.source else { return };
        let policy = &self.config.policy;
        if let Some(own) = own_address::resolve(&recipient.path, &self.config.settings, Some(local.ip())) {
            let text = format!("this is an address of this machine: {}", own.as_str());
            return self.line("rcpt", "relay", text);
        }
        let domain = recipient.path.mailbox().map(|mailbox| mailbox.domain().key().into_owned());
        let text = match domain {
            None => "postmaster is always accepted".to_owned(),
            Some(domain) if policy.is_local(&domain) => format!("{domain} is local"),
            Some(_) if policy.may_send_anywhere(&self.facts) => {
                "the client may send to all domains".to_owned()
            }
            Some(domain) if self.config.settings.local.domain_maps.is_empty() => {
                format!("{domain} is not local, and the client may not relay")
            }
            Some(domain) => format!("the maps of local domains are asked for {domain}"),
        };
        self.line("rcpt", "relay", text);
    }

    async fn judge(
        &mut self,
        stage: Stage,
        envelope: Option<&Envelope>,
        recipient: Option<&Recipient>,
        decisions: &mut Decisions,
    ) -> Result<(), Reply> {
        let mut memory = std::mem::take(&mut self.memory);
        let view = View { envelope, recipient, ..self.view(stage) };
        let judged = self.config.pipeline.run(view, &mut memory, decisions).wait().await;
        self.memory = memory;
        self.take_observed(stage);
        judged
    }

    async fn judge_content(
        &mut self,
        envelope: &Envelope,
        content: &mut ReceivedContent,
        decisions: &mut Decisions,
    ) -> Result<(), Reply> {
        let mut memory = std::mem::take(&mut self.memory);
        let view = self.view(Stage::Header).with_envelope(envelope);
        let judged = self.config.pipeline.judge_content(view, content, &mut memory, decisions).await;
        self.memory = memory;
        self.take_observed(Stage::Content);
        judged?;
        let mut memory = std::mem::take(&mut self.memory);
        let view = self.view(Stage::Seal).with_envelope(envelope);
        decisions.change(content);
        let sealed = self.config.pipeline.seal(view, &mut memory, content, decisions).await;
        self.memory = memory;
        self.take_observed(Stage::Seal);
        sealed
    }

    fn take_observed(&mut self, stage: Stage) {
        for one in self.config.maps.observe() {
            let text = match one.looked {
                Ok(Some(value)) if value.is_empty() => "found".to_owned(),
                Ok(Some(value)) => format!("\"{value}\""),
                Ok(None) => "not in it".to_owned(),
                Err(error) => format!("failed: {}", error.what),
            };
            let text = format!("{text}, {}", duration(one.took));
            self.line(shown(stage), &format!("{} {}", one.reference, one.key), text);
        }
        for (stage, what, text) in self.observer.take() {
            self.lines.push([shown(stage).to_owned(), what, text]);
        }
    }

    /// Notes the envelope that would be queued, and where it would go.
    async fn result(&mut self, decisions: Decisions, envelope: Envelope, content: ReceivedContent) {
        let finished =
            decisions.finish(QueueId(0), UnixMillis::now(), Origin::Local { uid: 0 }, envelope, content);
        match finished {
            Accepted::Discarded { reason, .. } => self.keep("discarded", reason.to_string()),
            Accepted::Message { mut message, held, discarded, .. } => {
                for (recipient, reason) in discarded {
                    self.keep("discarded", format!("{recipient}: {reason}"));
                }
                if let Some(reason) = held {
                    self.keep("held", reason.to_string());
                }
                verp::apply(&self.config.settings.addresses, &mut message.envelope);
                self.envelope(&message.envelope).await;
            }
        }
    }

    /// Notes that a message, or a recipient, is not delivered.
    fn keep(&mut self, what: &str, reason: String) {
        self.disposition.kept.push(format!("{what}: {reason}"));
        self.line("result", what, reason);
    }

    /// Notes an envelope with its destinations, and the addresses that others would see.
    async fn envelope(&mut self, envelope: &Envelope) {
        let seen = generic::envelope(self.config, envelope).await;
        if let Err(why) = &seen {
            self.line("result", "generic", format!("{why}; the mail would be deferred"));
        }
        let seen = seen.as_ref().unwrap_or(envelope);
        let mut sender = format!("<{}>", envelope.reverse_path.as_str());
        let routes: Vec<_> = self.config.routes.envelope(envelope).collect();
        if seen.reverse_path != envelope.reverse_path && routes.iter().any(|(to, _)| to.next_hop.is_smtp()) {
            sender += &format!(", outside <{}>", seen.reverse_path.as_str());
        }
        self.disposition.sender = seen.reverse_path.as_str().to_owned();
        self.line("result", "from", sender);
        let recipients = envelope.recipients.iter().zip(&seen.recipients);
        for ((own, seen), (destination, _)) in recipients.zip(routes) {
            let sent = if destination.next_hop.is_smtp() { seen } else { own };
            let mailboxes = self.view(Stage::Rcpt).with_envelope(envelope).mailboxes();
            let place = own.path.mailbox().map(|mailbox| mailboxes.place(&destination, mailbox));
            let place = place.unwrap_or_else(|| destination.to_string());
            let mut text = format!("{} by {place}", own.path);
            let leaves = destination.next_hop.is_smtp();
            let recipient = sent.path.to_string();
            self.disposition.recipients.push(Goal { recipient, leaves, place: place.clone() });
            if sent.path != own.path {
                text += &format!(", as {}", sent.path);
            }
            if let Some(path) = sent.return_path() {
                text += &format!(", from <{}>", path.path.as_str());
            }
            self.line("result", "to", text);
        }
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let width = self.lines.iter().map(|[_, what, _]| what.chars().count()).max().unwrap_or(0).min(48);
        for [stage, what, text] in &self.lines {
            writeln!(out, "{stage:<8} {what:<width$}  {text}")?;
        }
        Ok(())
    }
}
