//! Filters. They come after the other checks: milters at MAIL, RCPT and the end of the content, the others only there, and all of
//! them see the content as the checks have changed it. A milter hears of the connection with the first MAIL, so clients that
//! send no mail cost it nothing.

mod apply;
mod asked;
mod told;

use super::rules::client_name;
use crate::{
    check::{View, is_trusted_client},
    decisions::Decisions,
};
use apply::apply;
use asked::HookPeer;
pub use asked::reach_hook;
use bytes::Bytes;
use config::FilterServer;
use filter::{Conversation, Failure};
use inbound::UNIX_CLIENT;
use mail::{ChunkId, Enhanced, Part, QueueId, ReceivedContent, Reply};
use maps::Server;
use milter::{Command, Edit, Macro};
use policy::{Audience, ClientName, Source, Stage, Verdict};
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;
use told::{Texts, macros};

/// A filter gives no verdict (the log says why): the sender tries again.
const FILTER_FAILED: Reply =
    Reply::fixed(451, Enhanced(4, 7, 1), "A filter of this server failed, try again later");
/// As Postfix and Sendmail have it.
const REJECTED: Reply = Reply::fixed(550, Enhanced(5, 7, 1), "Command rejected");
const TRY_AGAIN: Reply = Reply::fixed(451, Enhanced(4, 7, 1), "Service unavailable - try again later");
const CLOSING: Reply = Reply::fixed(421, Enhanced(4, 7, 0), "Service unavailable, closing connection");

/// A failure of one filter is logged at most so often.
const FAILURE_INTERVAL: Duration = Duration::from_secs(10);

/// Reads a piece of content back from the spool.
pub(crate) type Load<'a> =
    &'a (dyn Fn(ChunkId) -> Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send + 'a>> + Send + Sync);

/// The content of a message that filters are shown, and may change.
pub struct ShownContent<'a> {
    pub id: QueueId,
    pub content: &'a mut ReceivedContent,
    /// Parts that another body has taken the place of: their chunks are to be given back, also if a later filter refuses the
    /// message.
    pub replaced: Vec<Part>,
    pub load: Load<'a>,
}

/// All filters that are configured, in the order in which they are asked.
pub struct Filters(Vec<Filter>);

struct Filter {
    settings: config::Filter,
    speaks: Speaks,
    failures: Mutex<Failures>,
    /// The last message was not judged.
    is_failing: AtomicBool,
}

/// What a filter speaks.
enum Speaks {
    Milter(Server),
    Rspamd(Server),
    Hook(HookPeer),
}

/// How a filter has failed.
#[derive(Default)]
struct Failures {
    /// When a failure was logged.
    logged: Option<Instant>,
    /// Those that were not logged since.
    unlogged: u64,
    /// The last one, until the filter judges a message again.
    last: Option<String>,
}

/// What a session knows of its filters.
pub(crate) struct FilterStates {
    all: Vec<FilterState>,
    /// A filter wants the open message taken and delivered to nobody.
    discarded_by: Option<usize>,
}

/// What a session knows of one filter.
#[derive(Default)]
struct FilterState {
    /// None before the first message, and after a failure.
    conversation: Option<Conversation>,
    /// The filter knows what the client said in EHLO.
    is_greeted: bool,
    message: OpenMessage,
    /// The filter does not want this client.
    refused: Option<Reply>,
}

/// What a filter knows of the open message.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum OpenMessage {
    /// Nothing: it is not asked, or mail passes without it.
    #[default]
    Unseen,
    /// It was told of the sender, and sees what follows.
    Seen,
    /// It was told of the sender, and failed: no more of the message is taken, unless mail passes without it.
    Lost,
}

impl FilterStates {
    /// EHLO, or a TLS handshake.
    pub(crate) fn begin_hello(&mut self) {
        self.begin_transaction();
        self.all.iter_mut().for_each(|state| state.is_greeted = false);
    }

    /// MAIL: the transaction before is over.
    pub(crate) fn begin_transaction(&mut self) {
        self.discarded_by = None;
        self.all.iter_mut().for_each(|state| state.message = OpenMessage::Unseen);
    }
}

/// What follows from the verdict on a message, with the changes of its header and envelope, and another body.
type Judged = (Consequence, Vec<Edit>, Option<Vec<u8>>);

/// What follows from a verdict of a filter.
enum Consequence {
    GoOn,
    Refuse(Reply),
    Discard,
}

fn consequence(verdict: milter::Verdict) -> Consequence {
    match verdict {
        milter::Verdict::Continue | milter::Verdict::Accept | milter::Verdict::Skip => Consequence::GoOn,
        milter::Verdict::Reject => Consequence::Refuse(REJECTED),
        milter::Verdict::TempFail => Consequence::Refuse(TRY_AGAIN),
        milter::Verdict::Reply(reply) => Consequence::Refuse(reply),
        milter::Verdict::Discard => Consequence::Discard,
        milter::Verdict::Shutdown | milter::Verdict::DropConnection => Consequence::Refuse(CLOSING),
    }
}

impl Filters {
    /// Returns `None` without a `[filter.NAME]`.
    ///
    /// # Errors
    /// The secret or the authorities of a hook cannot be read; the text names them.
    pub fn new(settings: &config::Settings) -> Result<Option<Self>, String> {
        let all = settings.filters.iter().map(|filter| Filter::new(filter.clone(), settings));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        Ok((!all.is_empty()).then_some(Self(all)))
    }

    /// Returns the filters that fail now, with what is wrong.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.0.iter().filter_map(|filter| filter.failures().last.clone()).collect()
    }

    /// Begins a session, or a draft of its own.
    pub(crate) fn begin(&self) -> FilterStates {
        FilterStates { all: self.0.iter().map(|_| FilterState::default()).collect(), discarded_by: None }
    }

    /// Returns whether any filter has to hear of the stage.
    pub(crate) fn are_told(&self, states: &FilterStates, view: &View<'_>) -> bool {
        match view.stage {
            Stage::Mail => self.0.iter().any(|filter| filter.is_for(view)),
            Stage::Rcpt => states.all.iter().any(|state| state.message != OpenMessage::Unseen),
            _ => false,
        }
    }

    /// Shows the filters the content, one after another; each sees the changes of the one before.
    ///
    /// # Errors
    /// The reply that refuses the message.
    pub(crate) async fn show_all(
        &self,
        states: &mut FilterStates,
        view: View<'_>,
        shown: &mut ShownContent<'_>,
        decisions: &mut Decisions,
    ) -> Result<(), Reply> {
        let Some(envelope) = view.envelope else { return Ok(()) };
        if let Some(number) = states.discarded_by {
            decisions.note(Stage::Content, Verdict::Discard(self.0[number].rule()), 0);
        }
        let body_max_bytes = view.rules.settings.limits.message_bytes;
        for (filter, state) in self.0.iter().zip(&mut states.all) {
            if decisions.is_discarded(envelope) {
                break;
            }
            match std::mem::take(&mut state.message) {
                OpenMessage::Unseen => continue,
                OpenMessage::Lost => {
                    filter.passes()?;
                    continue;
                }
                OpenMessage::Seen => {}
            }
            let (judged, edits, body) = match filter.show(state, &view, shown, body_max_bytes).await {
                Ok(judged) => judged,
                Err(failure) => {
                    filter.failed(&failure)?;
                    continue;
                }
            };
            filter.answered();
            match judged {
                Consequence::GoOn => {
                    let content = &mut *shown.content;
                    if let Some(fields) = apply(&filter.rule(), edits, view, content, decisions).await? {
                        content.set_fields(&fields);
                    }
                    let old = body.map(|body| content.replace_body(body.into()));
                    shown.replaced.extend(old.unwrap_or_default());
                }
                Consequence::Refuse(reply) => return Err(filter.named(reply)),
                Consequence::Discard => {
                    decisions.note(Stage::Content, Verdict::Discard(filter.rule()), 0);
                }
            }
        }
        Ok(())
    }

    /// Tells the filters of MAIL or RCPT, when no check has refused it.
    ///
    /// # Errors
    /// The reply that refuses.
    pub(crate) async fn tell(&self, states: &mut FilterStates, view: &View<'_>) -> Result<(), Reply> {
        let texts = view.recipient.map(Texts::of_recipient).unwrap_or_default();
        let (parameters, macros) = (texts.parameters(), macros(&texts.macros));
        let recipient =
            Command::Recipient { recipient: &texts.address, parameters: &parameters, is_rejected: false };
        for (number, (filter, state)) in self.0.iter().zip(&mut states.all).enumerate() {
            let told = match view.stage {
                Stage::Mail if !filter.is_for(view) => continue,
                Stage::Mail if view.observer.is_some() => {
                    view.note(&filter.rule(), || "not asked by this test".to_owned());
                    continue;
                }
                Stage::Mail => filter.begin_message(state, view).await,
                _ if state.message == OpenMessage::Unseen || !filter.is_milter() => continue,
                _ if state.message == OpenMessage::Lost => {
                    filter.passes()?;
                    continue;
                }
                _ => filter.tell(state, &recipient, &macros).await.map(consequence),
            };
            match told {
                Ok(Consequence::GoOn) => {}
                Ok(Consequence::Refuse(reply)) => return Err(filter.named(reply)),
                Ok(Consequence::Discard) => _ = states.discarded_by.get_or_insert(number),
                Err(failure) => filter.failed(&failure)?,
            }
        }
        Ok(())
    }
}

impl Filter {
    fn new(filter: config::Filter, settings: &config::Settings) -> Result<Self, String> {
        let speaks = match &filter.server {
            FilterServer::Milter(server) => Speaks::Milter(server.clone()),
            FilterServer::Rspamd(server) => Speaks::Rspamd(server.clone()),
            FilterServer::Hook(hook) => {
                let peer = HookPeer::new(hook, settings);
                Speaks::Hook(peer.map_err(|why| format!("filter {}: {why}", filter.name))?)
            }
        };
        Ok(Self { settings: filter, speaks, failures: Mutex::default(), is_failing: AtomicBool::new(false) })
    }

    /// Whether it sees each command; the others see only the whole message.
    fn is_milter(&self) -> bool {
        matches!(self.speaks, Speaks::Milter(_))
    }

    /// By which the log and verdicts name the filter.
    fn rule(&self) -> Box<str> {
        format!("filter {}", self.settings.name).into()
    }

    fn named(&self, reply: Reply) -> Reply {
        reply.with_rule(Some(self.rule()))
    }

    fn is_for(&self, view: &View<'_>) -> bool {
        match view.facts.source {
            Source::Smtp { peer, .. } => {
                let is_trusted = || peer == UNIX_CLIENT || is_trusted_client(view.facts, view.rules.policy);
                match self.settings.audience {
                    Audience::All => true,
                    Audience::Untrusted => !is_trusted(),
                    Audience::Users => is_trusted(),
                }
            }
            Source::Local { .. } => self.settings.is_local,
            Source::Report => false,
        }
    }

    /// Notes a failure.
    ///
    /// # Errors
    /// The reply for mail that does not pass without the filter.
    fn failed(&self, failure: &Failure) -> Result<(), Reply> {
        let result = if self.settings.passes_on_failure { "mail passes without it" } else { "mail gets 451" };
        let config::Filter { name, server, .. } = &self.settings;
        let text = format!("filter {name} ({server}): {failure}: {result}");
        let mut failures = self.failures();
        if failures.logged.is_none_or(|at| at.elapsed() >= FAILURE_INTERVAL) {
            let more = match failures.unlogged {
                0 => String::new(),
                count => format!(" ({count} more failures since the last line)"),
            };
            tracing::error!("{text}{more}");
            (failures.logged, failures.unlogged) = (Some(Instant::now()), 0);
        } else {
            failures.unlogged += 1;
        }
        failures.last = Some(text);
        self.is_failing.store(true, Ordering::Relaxed);
        self.passes()
    }

    /// Notes that the filter has judged a message.
    fn answered(&self) {
        if self.is_failing.swap(false, Ordering::Relaxed) {
            self.failures().last = None;
        }
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether mail passes without the filter.
    ///
    /// # Errors
    /// The reply for mail that does not.
    fn passes(&self) -> Result<(), Reply> {
        if self.settings.passes_on_failure { Ok(()) } else { Err(self.named(FILTER_FAILED)) }
    }

    /// Tells the filter of the client, if it does not know it yet, and of the sender.
    async fn begin_message(&self, state: &mut FilterState, view: &View<'_>) -> Result<Consequence, Failure> {
        let Speaks::Milter(server) = &self.speaks else {
            state.message = OpenMessage::Seen;
            return Ok(Consequence::GoOn);
        };
        if let Some(reply) = &state.refused {
            return Ok(Consequence::Refuse(reply.clone()));
        }
        // A conversation of an earlier message may have been ended by the filter: then it begins anew.
        if let Some(conversation) = state.conversation.take() {
            match self.try_begin(state, view, conversation).await {
                Err(Failure::Io(_) | Failure::Closed) => {}
                told => return told,
            }
        }
        state.is_greeted = false;
        let mut conversation = Conversation::open(server, self.settings.timeout).await?;
        let texts = Texts::of_client(view, verified_name(view).await);
        let command = Command::Connect { host: &texts.address, peer: texts.peer() };
        match consequence(self.send(&mut conversation, &command, &macros(&texts.macros)).await?) {
            Consequence::GoOn => self.try_begin(state, view, conversation).await,
            Consequence::Refuse(reply) => Ok(refuse_client(state, reply)),
            Consequence::Discard => Ok(Consequence::Discard),
        }
    }

    async fn try_begin(
        &self,
        state: &mut FilterState,
        view: &View<'_>,
        mut conversation: Conversation,
    ) -> Result<Consequence, Failure> {
        conversation.abort()?;
        if !state.is_greeted
            && let Some(name) = view.facts.hello.as_deref()
        {
            let texts = Texts::of_hello(view);
            let told = self.send(&mut conversation, &Command::Hello { name }, &macros(&texts.macros)).await?;
            if let Consequence::Refuse(reply) = consequence(told) {
                return Ok(refuse_client(state, reply));
            }
        }
        state.is_greeted = true;
        let texts = Texts::of_sender(view);
        let command = Command::Mail { sender: &texts.address, parameters: &texts.parameters() };
        let told = self.send(&mut conversation, &command, &macros(&texts.macros)).await?;
        state.conversation = Some(conversation);
        let told = consequence(told);
        if matches!(told, Consequence::GoOn) {
            state.message = OpenMessage::Seen;
        }
        Ok(told)
    }

    async fn send(
        &self,
        conversation: &mut Conversation,
        command: &Command<'_>,
        macros: &[Macro<'_>],
    ) -> Result<milter::Verdict, Failure> {
        let limit = self.settings.timeout;
        conversation.send(command, macros, limit, Instant::now() + self.settings.content_timeout).await
    }

    /// Tells a filter that sees the message of another stage. If that is given up, so is the conversation.
    async fn tell(
        &self,
        state: &mut FilterState,
        command: &Command<'_>,
        macros: &[Macro<'_>],
    ) -> Result<milter::Verdict, Failure> {
        state.message = OpenMessage::Lost;
        let Some(mut conversation) = state.conversation.take() else { return Err(Failure::Closed) };
        let told = self.send(&mut conversation, command, macros).await?;
        (state.conversation, state.message) = (Some(conversation), OpenMessage::Seen);
        Ok(told)
    }

    /// Shows the filter the content. A new body is of `body_max_bytes` at most.
    async fn show(
        &self,
        state: &mut FilterState,
        view: &View<'_>,
        shown: &ShownContent<'_>,
        body_max_bytes: u64,
    ) -> Result<Judged, Failure> {
        let (limit, until) = (self.settings.timeout, Instant::now() + self.settings.content_timeout);
        let judged = match &self.speaks {
            Speaks::Milter(_) => None,
            Speaks::Rspamd(server) => Some(asked::ask_rspamd(server, view, shown, limit, until).await?),
            Speaks::Hook(hook) => Some(hook.ask(view, shown, until).await?),
        };
        if let Some(filter::Judged { verdict, edits, body }) = judged {
            return Ok((consequence(verdict), edits, body));
        }
        let Some(mut conversation) = state.conversation.take() else { return Err(Failure::Closed) };
        let (content, id) = (&*shown.content, shown.id.to_string());
        let macros = [Macro { name: "i", value: &id }];
        let judged = 'judged: {
            let fields = content.fields();
            let header = fields.iter().map(|(name, value)| Command::Header { name, value });
            let before = [Command::Data].into_iter().chain(header).chain([Command::EndOfHeaders]);
            for command in before {
                let told = consequence(conversation.send(&command, &macros, limit, until).await?);
                if !matches!(told, Consequence::GoOn) {
                    break 'judged (told, Vec::new(), None);
                }
            }
            for (number, part) in content.parts().iter().enumerate() {
                if !conversation.wants(milter::Stage::Body) {
                    break;
                }
                let loaded;
                let piece = match part {
                    Part::Memory(_) if number == 0 => content.body_of_first_part(),
                    Part::Memory(piece) => piece,
                    Part::Stored { chunk_id, .. } => {
                        loaded = (shown.load)(*chunk_id).await.map_err(std::io::Error::other)?;
                        &loaded
                    }
                };
                for chunk in piece.chunks(conversation.chunk_max_bytes()) {
                    let told =
                        consequence(conversation.send(&Command::Body(chunk), &[], limit, until).await?);
                    if !matches!(told, Consequence::GoOn) {
                        break 'judged (told, Vec::new(), None);
                    }
                }
            }
            let body_max_bytes = usize::try_from(body_max_bytes).unwrap_or(usize::MAX);
            let filter::Judged { verdict, edits, body } =
                conversation.end_message(&macros, body_max_bytes, limit, until).await?;
            (consequence(verdict), edits, body)
        };
        state.conversation = Some(conversation);
        Ok(judged)
    }
}

/// Returns the name of the client, if it leads back to its address.
async fn verified_name(view: &View<'_>) -> Option<Box<str>> {
    match client_name(view).wait().await {
        ClientName::Verified(name) => Some(name),
        ClientName::None | ClientName::Unknown(_) => None,
    }
}

/// The client is refused for as long as it is connected.
fn refuse_client(state: &mut FilterState, reply: Reply) -> Consequence {
    state.refused = Some(reply.clone());
    Consequence::Refuse(reply)
}
