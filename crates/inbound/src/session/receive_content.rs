//! The content of a message: judged and stored while it arrives, and committed at its end.

use super::{SessionDriver, SessionIo};
use crate::{Draft, Service, StoreError, content::ContentReceiver, trace::Received};
use mail::{Origin, Reply, TransmissionType, content::chunk_ids};
use smtp::{forwarded::Attribute, server::replies};
use std::{io, time::Duration};
use tokio::time::Instant;

/// Longest time that content waits for a disk that is behind; then the content is refused with a temporary error.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);

impl<S: Service> SessionDriver<S> {
    pub(super) fn start_content(&mut self, io: &mut SessionIo<S>) {
        let session = io.connection.session();
        let envelope = session.envelope().expect("content has an envelope");
        let received = Received {
            client: if self.options.hide_client && session.is_authenticated() {
                None
            } else {
                Some(&self.client)
            },
            hello: session.hello().unwrap_or("unknown"),
            hostname: &self.settings.profile.hostname,
            protocol: session.protocol(envelope.smtputf8),
            id: self.service.next_id(),
            envelope,
            now: self.service.now(),
        };
        io.body = Some(ContentReceiver::begin(&received, &self.budget, &self.service));
    }

    /// Content that the disk is too slow for waits, and with it the client: nothing more is read. The inner error
    /// refuses the message.
    pub(super) async fn append_content(
        &self,
        io: &mut SessionIo<S>,
        bytes: &[u8],
    ) -> io::Result<Result<(), Reply>> {
        let Some(body) = &mut io.body else { return Ok(Ok(())) };
        let is_body = body.has_whole_header();
        if let Err(StoreError::Refused(reply)) = body.append(bytes, &self.settings) {
            return Ok(Err(reply));
        }
        let judged = if is_body {
            let (_, context, waiting) = io.split();
            let judged = self.resolve(self.service.body(context, bytes), waiting).await?;
            judged.unwrap_or(Err(replies::LOOKUP_TIMEOUT))
        } else {
            self.judge_header(io, false).await?
        };
        if judged.is_err() {
            return Ok(judged);
        }
        self.store_content(io).await
    }

    /// Asks about the header when it is complete, and about what has come of the body with it. `is_end`: the content
    /// is complete.
    async fn judge_header(&self, io: &mut SessionIo<S>, is_end: bool) -> io::Result<Result<(), Reply>> {
        let Some(mut body) = io.body.take_if(|body| body.has_unjudged_header(is_end)) else {
            return Ok(Ok(()));
        };
        let (session, context, waiting) = io.split();
        let envelope = session.envelope().expect("content has an envelope");
        let header = body.take_unjudged_header();
        let judged = self.resolve(self.service.header(context, envelope, header), waiting).await?;
        let mut judged = judged.unwrap_or(Err(replies::LOOKUP_TIMEOUT));
        if judged.is_ok() && !body.first_body().is_empty() {
            let (_, context, waiting) = io.split();
            let answer = self.service.body(context, body.first_body());
            judged = self.resolve(answer, waiting).await?.unwrap_or(Err(replies::LOOKUP_TIMEOUT));
        }
        io.body = Some(body);
        Ok(judged)
    }

    async fn store_content(&self, io: &mut SessionIo<S>) -> io::Result<Result<(), Reply>> {
        let SessionIo { connection, context, stream, body, sleep, transaction_ends, .. } = io;
        let Some(body) = body else { return Ok(Ok(())) };
        let (session, output) = connection.session_and_output();
        let envelope = session.envelope().expect("content has an envelope");
        let mut stored = body.store(context, envelope, &self.settings);
        if stored == Ok(()) {
            return Ok(Ok(()));
        }
        self.write(output, stream, sleep, *transaction_ends).await?;
        let until = Instant::now() + STORE_TIMEOUT;
        loop {
            match stored {
                Ok(()) => return Ok(Ok(())),
                Err(StoreError::Refused(reply)) => return Ok(Err(reply)),
                Err(StoreError::Busy) if Instant::now() > until => return Ok(Err(replies::SPOOL_BUSY)),
                Err(StoreError::Busy) => self.service.wait_for_space().await,
            }
            stored = body.retry_store(context, envelope);
        }
    }

    pub(super) async fn judge_content(&mut self, io: &mut SessionIo<S>) -> io::Result<()> {
        if let Err(reply) = self.judge_header(io, true).await? {
            io.body = None;
            return self.end_content(io, reply);
        }
        let body = io.body.take().expect("content was begun");
        let id = body.id;
        let (content, permit) = body.finish();
        let (session, context, waiting) = io.split();
        let envelope = session.envelope().expect("content has an envelope");
        let judged = self.resolve(self.service.content(context, envelope, &content), waiting).await;
        // A session that ends here takes its chunks with it.
        let discard = || {
            let chunk_ids = chunk_ids(content.parts());
            if !chunk_ids.is_empty() {
                self.service.discard_chunks(&chunk_ids);
            }
        };
        match judged.inspect_err(|_| discard())?.unwrap_or(Err(replies::LOOKUP_TIMEOUT)) {
            Err(reply) => {
                discard();
                self.end_content(io, reply)
            }
            Ok(()) => {
                self.flush(io).await.inspect_err(|_| discard())?;
                let envelope = io.connection.accept_content();
                let session = io.connection.session();
                let protocol = session.protocol(envelope.smtputf8);
                let origin = self.origin(session.hello().unwrap_or(""), protocol);
                let arrived = self.service.now();
                let shown = self.service.judges_at_commit(&io.context).then(|| envelope.clone());
                let draft = Draft { id, arrived, origin, envelope, content };
                let reply = self.service.commit(&mut io.context, draft).await;
                drop(permit);
                if !reply.is_positive() {
                    self.service.log_reject(&self.client, "DATA", shown.as_ref(), &reply);
                }
                io.connection.answer(reply);
                self.forget_source();
                Ok(())
            }
        }
    }

    /// The client from whom the message is, for the log: the one that XFORWARD named, if it did.
    fn origin(&self, hello: &str, protocol: TransmissionType) -> Origin {
        let Some(source) = self.client.source() else {
            return Origin::smtp(self.client.peer.ip(), hello, protocol);
        };
        let hello = match &source.hello {
            Attribute::Is(hello) => hello,
            Attribute::NotGiven | Attribute::Unavailable => hello,
        };
        let protocol = match source.is_extended {
            Some(true) => TransmissionType::Esmtp,
            Some(false) => TransmissionType::Smtp,
            None => protocol,
        };
        Origin::smtp(source.address.unwrap_or(self.client.peer.ip()), hello, protocol)
    }

    /// Ends a transaction whose content was not accepted.
    fn end_content(&self, io: &mut SessionIo<S>, reply: Reply) -> io::Result<()> {
        if !reply.is_positive() {
            self.service.log_reject(&self.client, "DATA", io.connection.session().envelope(), &reply);
        }
        io.connection.answer(reply);
        Ok(())
    }
}
