//! Filters that are asked by HTTP, once about each message.

use super::{ShownContent, verified_name};
use crate::{check::View, http_peer::HttpPeer};
use auth::Secret;
use bytes::Bytes;
use config::{Hook, Settings};
use filter::{ANSWER_MAX_BYTES, Failure, Judged, Transaction, hook, rspamd};
use http_body_util::Full;
use hyper::{Method, StatusCode, header::CONTENT_TYPE};
use inbound::UNIX_CLIENT;
use mail::{Part, QueueId, UnixMillis};
use maps::Server;
use policy::Source;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// A hook, and how it knows this server.
pub(super) struct HookPeer {
    peer: HttpPeer,
    secret: Option<Secret>,
    content_max_bytes: u64,
}

impl HookPeer {
    /// # Errors
    /// The secret or the authorities cannot be read; the text names them.
    pub(super) fn new(hook: &Hook, settings: &Settings) -> Result<Self, String> {
        Ok(Self {
            peer: HttpPeer::new(hook.url.clone(), hook.ca_file.as_deref(), settings)?,
            secret: hook.secret.as_ref().map(config::SecretSource::secret).transpose()?,
            content_max_bytes: hook.content_max_bytes,
        })
    }

    /// Asks the hook about a message; it answers until `until`.
    pub(super) async fn ask(
        &self,
        view: &View<'_>,
        shown: &ShownContent<'_>,
        until: Instant,
    ) -> Result<Judged, Failure> {
        let of = transaction(view, shown.id).await;
        let mut pieces = ShownPieces::new(shown);
        let (names, size) = (std::mem::take(&mut pieces.names), pieces.bytes());
        let most = match self.content_max_bytes {
            0 => pieces.header.len(),
            most => usize::try_from(most).unwrap_or(usize::MAX),
        };
        let mut content = Vec::new();
        while content.len() < most
            && let Some(piece) = pieces.next().await?
        {
            content.extend_from_slice(&piece[..piece.len().min(most - content.len())]);
        }
        let body = hook::request(&of, size, &content);
        let mut request = self.peer.begin(Method::POST).header(CONTENT_TYPE, "application/json");
        if let Some(secret) = &self.secret {
            let now = UnixMillis::now().0 / 1000;
            request = request.header(hook::SIGNATURE, hook::signature(secret.bytes(), now, &body));
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| Failure::Http(e.to_string()))?;
        let answered = timeout_at(until, self.peer.ask(request, ANSWER_MAX_BYTES)).await;
        let response = answered.map_err(|_| Failure::Late)?.map_err(Failure::Http)?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(Judged { verdict: milter::Verdict::Accept, edits: Vec::new(), body: None });
        }
        hook::read_answer(&filter::ok(response)?, &names).map_err(Failure::Http)
    }
}

/// Asks a hook whether it is there: any answer will do.
///
/// # Errors
/// There is none.
pub async fn reach_hook(hook: &Hook, settings: &Settings) -> Result<(), Failure> {
    let peer = HttpPeer::new(hook.url.clone(), hook.ca_file.as_deref(), settings).map_err(Failure::Http)?;
    let request = peer.begin(Method::OPTIONS).body(Full::new(Bytes::new()));
    let request = request.map_err(|e| Failure::Http(e.to_string()))?;
    peer.ask(request, ANSWER_MAX_BYTES).await.map_err(Failure::Http).map(drop)
}

/// Asks a worker of rspamd about a message; connecting takes `limit` at most, and it answers until `until`.
pub(super) async fn ask_rspamd(
    server: &Server,
    view: &View<'_>,
    shown: &ShownContent<'_>,
    limit: Duration,
    until: Instant,
) -> Result<Judged, Failure> {
    let of = transaction(view, shown.id).await;
    let mut pieces = ShownPieces::new(shown);
    let names = std::mem::take(&mut pieces.names);
    let (sender, body) = filter::pieces(pieces.bytes());
    let sent = async move {
        while let Some(piece) = pieces.next().await? {
            // One that answers before it has everything reads no more.
            if sender.send(piece).await.is_err() {
                break;
            }
        }
        Ok::<_, Failure>(())
    };
    let (sent, answer) = tokio::join!(sent, filter::ask_rspamd(server, &of, body, limit, until));
    sent?;
    rspamd::read_answer(&answer?, &names).map_err(Failure::Http)
}

/// Returns what is known of a message beside its content.
async fn transaction(view: &View<'_>, id: QueueId) -> Transaction {
    let (client, client_name, listener) = match view.facts.source {
        Source::Smtp { peer, listener, .. } if peer != UNIX_CLIENT => {
            let name = verified_name(view).await.map(String::from);
            (peer.ip().to_canonical().to_string(), name, listener.as_str())
        }
        _ => ("127.0.0.1".to_owned(), Some("localhost".to_owned()), "local"),
    };
    let login = view.facts.login.as_deref().or(view.facts.named_login.as_deref());
    let tls = view.facts.tls.as_deref().and_then(|tls| tls.split_once(':'));
    let envelope = view.envelope;
    let recipients = envelope.map(|envelope| &envelope.recipients[..]).unwrap_or_default();
    Transaction {
        id: id.to_string(),
        server: view.rules.settings.hostname.clone(),
        listener: listener.to_owned(),
        client: Some(client),
        client_name,
        hello: view.facts.hello.as_deref().map(str::to_owned),
        login: login.map(str::to_owned),
        tls: tls.map(|(version, cipher)| (version.to_owned(), cipher.to_owned())),
        sender: envelope.map(|envelope| envelope.reverse_path.as_str().to_owned()).unwrap_or_default(),
        recipients: recipients.iter().map(|to| to.path.as_str().to_owned()).collect(),
    }
}

/// The content as filters are shown it, without this server's `Received`, piece by piece.
struct ShownPieces<'s, 'c> {
    shown: &'s ShownContent<'c>,
    header: Bytes,
    /// Of the fields, in their order.
    names: Vec<Vec<u8>>,
    /// Parts that were read; none before the header.
    read: Option<usize>,
}

impl<'s, 'c> ShownPieces<'s, 'c> {
    fn new(shown: &'s ShownContent<'c>) -> Self {
        let (mut header, mut names) = (Vec::new(), Vec::new());
        for (name, value) in shown.content.fields().iter() {
            names.push(name.to_vec());
            header.extend_from_slice(name);
            header.push(b':');
            header.extend_from_slice(value);
            header.extend_from_slice(b"\r\n");
        }
        header.extend_from_slice(b"\r\n");
        Self { shown, header: header.into(), names, read: None }
    }

    /// Octets of all pieces.
    fn bytes(&self) -> u64 {
        let content = &self.shown.content;
        let first = content.body_of_first_part().len() as u64;
        self.header.len() as u64 + first + content.parts().iter().skip(1).map(Part::len).sum::<u64>()
    }

    /// Returns the next piece, which is not empty.
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let Some(mut number) = self.read else {
            self.read = Some(0);
            return Ok(Some(self.header.clone()));
        };
        let content = &self.shown.content;
        while let Some(part) = content.parts().get(number) {
            let piece = match part {
                Part::Memory(first) if number == 0 => {
                    first.slice(first.len() - content.body_of_first_part().len()..)
                }
                Part::Memory(piece) => piece.clone(),
                Part::Stored { chunk_id, .. } => {
                    (self.shown.load)(*chunk_id).await.map_err(std::io::Error::other)?
                }
            };
            number += 1;
            self.read = Some(number);
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }
}
