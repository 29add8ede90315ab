//! Sessions of clients: each stage of a transaction, up to its commit.

use crate::{
    accept_config::AcceptConfig,
    acceptor::authenticate::LoginSession,
    acceptor::{Acceptor, BEHIND},
    check::View,
    decisions::Decisions,
    intake::Intake,
    pipeline::SessionMemory,
};
use auth::ChannelBindings;
use bytes::Bytes;
use inbound::{Answer, AuthAnswer, Client, ConnectionEvent, Draft, Service, StoreError, UNIX_CLIENT};
use mail::{ChunkId, Envelope, ListenerKind, QueueId, ReceivedContent, Recipient, Reply, UnixMillis};
use policy::{NamedHost, SessionFacts, Source, Stage};
use smtp::{
    forwarded::Attribute,
    server::{AuthInput, Keyword, Query, replies},
};
use spool::Refused;
use std::sync::Arc;

/// What the acceptor keeps for one client connection.
pub struct SessionContext {
    /// By which the transaction is judged, whatever is reloaded meanwhile.
    pub(super) config: Arc<AcceptConfig>,
    pub(super) facts: SessionFacts,
    /// What was decided when the client connected; HELO and STARTTLS begin again from there.
    pub(super) connected: Decisions,
    /// The decisions of the stages before MAIL, with which each transaction begins.
    pub(super) connection: Decisions,
    /// Of the open transaction.
    pub(crate) decisions: Decisions,
    /// The client's attempts to log in; none before the first.
    pub(super) login: Option<Box<LoginSession>>,
    /// For logins; none without TLS, or without AUTH.
    pub(super) bindings: Option<Box<ChannelBindings>>,
    /// What each check remembers of this session.
    pub(super) memory: SessionMemory,
}

impl SessionContext {
    fn new(config: Arc<AcceptConfig>, facts: SessionFacts) -> Self {
        let [connected, connection, decisions] = Default::default();
        let memory = config.pipeline.begin(SessionMemory::default());
        Self { config, facts, connected, connection, decisions, login: None, bindings: None, memory }
    }

    /// A transaction is judged by one configuration, the current one at its begin.
    fn begin_transaction(&mut self, config: Arc<AcceptConfig>) {
        self.decisions.clone_from(&self.connection);
        if !Arc::ptr_eq(&self.config, &config) {
            self.memory = config.pipeline.begin(std::mem::take(&mut self.memory));
            self.config = config;
        }
        self.memory.begin_transaction();
    }

    /// Asks the checks of a stage. `complete` adds what they see.
    pub(crate) fn run<'a>(
        &'a mut self,
        stage: Stage,
        complete: impl FnOnce(View<'a>) -> View<'a>,
    ) -> Answer<'a, Result<(), Reply>> {
        let view = complete(View::new(stage, self.config.rules(), &self.facts));
        let decisions = if stage < Stage::Mail { &mut self.connection } else { &mut self.decisions };
        let judged = self.config.pipeline.run(view, &mut self.memory, decisions);
        if !self.config.settings.queue.soft_bounce {
            return judged;
        }
        judged.map(|judged: Result<(), Reply>| judged.map_err(Reply::softened))
    }
}

fn bindings_of(client: &Client) -> Option<Box<ChannelBindings>> {
    client.tls.as_ref().and_then(|tls| tls.bindings.clone())
}

/// The reply of a stage that says no more than yes.
fn or_positive(positive: Reply) -> impl FnOnce(Result<(), Reply>) -> Reply + Send {
    move |judged| judged.err().unwrap_or(positive)
}

impl<I: Intake> Acceptor<I> {
    /// Counts a rejected command, where a limit is set for that.
    pub(super) fn count_failure(&self, facts: &SessionFacts) {
        let config = self.intake.config();
        // Failures belong to the client, whoever has logged in.
        let client = SessionFacts::new(facts.source.clone());
        config.sources.count_failure(&config.settings, &policy::Facts::new(&client));
    }
}

impl<I: Intake> Service for Acceptor<I> {
    type Context = SessionContext;

    fn connected<'a>(&'a self, client: &'a Client) -> Answer<'a, Result<SessionContext, Reply>> {
        if self.spool.pressure().poisoned {
            return Answer::Ready(Err(replies::LOCAL_ERROR_CLOSING));
        }
        let Client { peer, local, listener, .. } = *client;
        let facts = SessionFacts {
            tls: client.cipher().map(Box::from),
            certificate: client.certificate().cloned(),
            ..SessionFacts::new(Source::Smtp { peer, local, listener })
        };
        let mut context = SessionContext::new(self.intake.config(), facts);
        if listener == ListenerKind::Relay && !context.config.policy.may_relay(peer.ip()) {
            return Answer::Ready(Err(replies::NO_ACCESS));
        }
        context.bindings = bindings_of(client);
        if let Some(named) = &client.named {
            context.facts.named_login.clone_from(&named.login);
            context.facts.named_host = match &named.name {
                Attribute::NotGiven => NamedHost::NotGiven,
                Attribute::Unavailable => NamedHost::None,
                Attribute::Is(name) => NamedHost::Name(name.clone()),
            };
        }
        if !context.config.pipeline.has(Stage::Connect) {
            return Answer::Ready(Ok(context));
        }
        Answer::later(async move {
            let judged = context.run(Stage::Connect, |view| view).wait().await;
            context.connected.clone_from(&context.connection);
            judged.map(|()| context)
        })
    }

    fn tls_established(&self, context: &mut SessionContext, client: &Client) {
        let Client { peer, local, listener, .. } = *client;
        let source = Source::Smtp { peer, local, listener };
        let (tls, certificate) = (client.cipher().map(Box::from), client.certificate().cloned());
        context.facts = SessionFacts { tls, certificate, ..SessionFacts::new(source) };
        context.bindings = bindings_of(client);
        // What was decided of the connection itself still holds; a name in clear text does not count any more.
        context.connection.clone_from(&context.connected);
        context.decisions = Decisions::default();
        context.memory.begin_hello();
    }

    fn is_trusted(&self, client: &Client) -> bool {
        client.peer == UNIX_CLIENT || self.intake.config().policy.may_relay(client.peer.ip())
    }

    fn hello<'a>(&'a self, context: &'a mut SessionContext, name: &'a str) -> Answer<'a, Reply> {
        context.facts.hello = Some(name.into());
        context.memory.begin_hello();
        context.connection.clone_from(&context.connected);
        context.run(Stage::Hello, |view| view).map(or_positive(replies::OK))
    }

    fn authenticate<'a>(
        &'a self,
        context: &'a mut SessionContext,
        input: AuthInput,
    ) -> Answer<'a, AuthAnswer> {
        self.log_in(context, input)
    }

    fn sender<'a>(&'a self, context: &'a mut SessionContext, envelope: &'a Envelope) -> Answer<'a, Reply> {
        let room = if context.is_stranger() { self.room_for_strangers() } else { self.room() };
        if let Err(reply) = room {
            return Answer::Ready(reply);
        }
        context.begin_transaction(self.intake.config());
        let lowered = context.lowers_priority(envelope);
        let positive = if lowered { replies::PRIORITY_LOWERED } else { replies::SENDER_OK };
        let judged = context.run(Stage::Mail, |view| view.with_envelope(envelope));
        judged.map(or_positive(positive))
    }

    fn offers(&self, context: &SessionContext, keyword: Keyword) -> bool {
        context.offers(keyword)
    }

    fn query<'a>(&'a self, context: &'a mut SessionContext, query: Query) -> Answer<'a, Reply> {
        self.answer_query(context, query)
    }

    fn recipient<'a>(
        &'a self,
        context: &'a mut SessionContext,
        envelope: &'a Envelope,
        recipient: &'a Recipient,
    ) -> Answer<'a, Reply> {
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::KeepRefused {
            return self.keep_refused(context, envelope, recipient);
        }
        let view = |view: View<'a>| View { recipient: Some(recipient), ..view.with_envelope(envelope) };
        context.run(Stage::Rcpt, view).map(or_positive(replies::RECIPIENT_OK))
    }

    fn now(&self) -> UnixMillis {
        self.intake.now()
    }

    fn next_id(&self) -> QueueId {
        self.ids.next(self.intake.now().0)
    }

    fn header<'a>(
        &'a self,
        context: &'a mut SessionContext,
        envelope: &'a Envelope,
        header: &'a [u8],
    ) -> Answer<'a, Result<(), Reply>> {
        context.run(Stage::Header, |view| View { header, ..view.with_envelope(envelope) })
    }

    fn body<'a>(&'a self, context: &'a mut SessionContext, piece: &'a [u8]) -> Answer<'a, Result<(), Reply>> {
        context.run(Stage::Body, |view| View { body: piece, ..view })
    }

    fn content<'a>(
        &'a self,
        context: &'a mut SessionContext,
        envelope: &'a Envelope,
        content: &'a ReceivedContent,
    ) -> Answer<'a, Result<(), Reply>> {
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::FollowReload {
            context.config = self.intake.config();
        }
        let view = |view: View<'a>| View {
            header: content.header(),
            content: Some(content),
            ..view.with_envelope(envelope)
        };
        context.run(Stage::Content, view)
    }

    fn judges_at_commit(&self, context: &SessionContext) -> bool {
        context.config.pipeline.has_filters()
    }

    async fn commit(&self, context: &mut SessionContext, draft: Draft) -> Reply {
        let Draft { id, arrived, origin, mut envelope, mut content } = draft;
        let _entering = match self.enter(context.is_stranger(), content.size_bytes()) {
            Ok(entering) => entering,
            Err(reply) => {
                self.forget(content.parts());
                return reply;
            }
        };
        context.set_priority(&mut envelope, &mut content);
        if let Some(login) = context.facts.login.as_ref().or(context.facts.named_login.as_ref()) {
            envelope.options.get_or_insert_default().login = Some(login.clone());
        }
        let (config, mut decisions) = (&context.config, std::mem::take(&mut context.decisions));
        if decisions.replaces_body() || config.pipeline.has_filters() || config.pipeline.has(Stage::Seal) {
            let view = View::new(Stage::Content, config.rules(), &context.facts).with_envelope(&envelope);
            let memory = &mut context.memory;
            let finished = self.finish_content(config, view, memory, id, &mut content, &mut decisions);
            if let Err(reply) = Box::pin(finished).await {
                self.forget(content.parts());
                return if config.settings.queue.soft_bounce { reply.softened() } else { reply };
            }
        } else {
            #[cfg(feature = "mutants")]
            if self.mutant == crate::Mutant::ApplyTwice {
                decisions.clone().change(&mut content);
            }
            decisions.change(&mut content);
        }
        let finished = decisions.finish(id, arrived, origin, envelope, content);
        self.accept(config, finished).await
    }

    fn store(
        &self,
        context: &SessionContext,
        envelope: &Envelope,
        chunk: Bytes,
    ) -> Result<ChunkId, StoreError> {
        if context.is_stranger() {
            self.space_for_strangers(chunk.len() as u64).map_err(StoreError::Refused)?;
        }
        self.spool.store_for(envelope, chunk).map_err(|refused| match refused {
            Refused::Busy => StoreError::Busy,
            refused => StoreError::Refused(Self::refusal(refused)),
        })
    }

    async fn wait_for_space(&self) {
        tokio::time::sleep(BEHIND).await;
    }

    fn discard_chunks(&self, chunk_ids: &[ChunkId]) {
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::KeepChunks {
            return;
        }
        self.spool.discard_chunks(chunk_ids);
    }

    fn log_reject(&self, client: &Client, stage: &'static str, envelope: Option<&Envelope>, reply: &Reply) {
        self.intake.log().rejected(client, stage, envelope, reply);
        let Client { peer, local, listener, .. } = *client;
        self.count_failure(&SessionFacts::new(Source::Smtp { peer, local, listener }));
    }

    fn log_connection(&self, client: &Client, event: ConnectionEvent<'_>) {
        self.intake.log().connection(client, &event);
    }
}
