//! Asks a next hop whether a mailbox exists, by MAIL and RCPT without content.

use crate::{
    Courier,
    connect::{Connector, Ready},
    reply_rules::ClearTextRefusal,
};
use mail::{Destination, Enhanced, Mailbox, Outcome, Reply, ReplyStage};
use smtp::client::{ExpectedReply, OutputPiece};
use std::time::{Duration, Instant};

/// Time limit for the reply to QUIT, which changes nothing any more.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);

/// What a next hop answered to RCPT for a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existence {
    /// RCPT was accepted.
    Exists,
    /// The next hop refuses the mailbox for good, with this reply.
    Refused(Reply),
    /// The next hop does not say, for this reason.
    Unclear(Outcome),
}

impl Courier {
    /// Asks the next hop of a destination for a mailbox: MAIL with the null reverse-path, RCPT, and QUIT. No content is
    /// sent. The caller sets a deadline.
    pub async fn verify(&self, destination: &Destination, mailbox: &Mailbox) -> Existence {
        self.question(destination, mailbox).await.unwrap_or_else(Existence::Unclear)
    }

    async fn question(&self, destination: &Destination, mailbox: &Mailbox) -> Result<Existence, Outcome> {
        let (connector, mut hosts) = self.way(destination).await?;
        let (mut unclear, mut has_retried_tls, mut next) = (None, false, None);
        loop {
            let connected = match next.take() {
                Some(ready) => Ok(ready),
                None => hosts.next(&connector).await,
            };
            let mut ready = match connected {
                Ok(ready) => ready,
                Err(outcome) => return Ok(Existence::Unclear(unclear.unwrap_or(outcome))),
            };
            let (asked, refusal) = ask_server(&connector, &mut ready, mailbox).await;
            let may_want_tls = refusal != ClearTextRefusal::Verdict && !has_retried_tls;
            if let Some(server) =
                ready.address.filter(|server| may_want_tls && !self.tls_faults.is_confirmed(*server))
            {
                has_retried_tls = true;
                self.tls_faults.retry(server, Instant::now());
                tokio::spawn(end(ready));
                match hosts.again(&connector).await {
                    Ok(ready) => next = Some(ready),
                    Err(outcome) => unclear = Some(outcome),
                }
                continue;
            }
            match asked {
                // As for a delivery, which waits for TLS.
                Ok(Existence::Refused(reply)) if refusal == ClearTextRefusal::Wish => {
                    unclear = Some(self::unclear(&ready.relay, "RCPT TO", &reply));
                }
                // A server that does not say leaves it to the next one.
                Ok(Existence::Unclear(outcome)) | Err(outcome) => unclear = Some(outcome),
                Ok(existence) => {
                    end(ready).await;
                    return Ok(existence);
                }
            }
            if !hosts.has_next() {
                end(ready).await;
                return Ok(Existence::Unclear(unclear.take().expect("the server did not say")));
            }
            tokio::spawn(end(ready));
        }
    }
}

/// Returns also what a refusal says if the server does not get TLS, because that broke before.
async fn ask_server(
    connector: &Connector<'_>,
    ready: &mut Ready,
    mailbox: &Mailbox,
) -> (Result<Existence, Outcome>, ClearTextRefusal) {
    let mut refused = None;
    let asked = ask_for(connector, ready, mailbox, &mut refused).await;
    let refused = refused.filter(|_| ready.is_clear_instead);
    let refusal = refused.map_or(ClearTextRefusal::Verdict, |(stage, reply)| {
        ClearTextRefusal::of(stage, reply.code, reply.enhanced)
    });
    (asked, refusal)
}

async fn ask_for(
    connector: &Connector<'_>,
    ready: &mut Ready,
    mailbox: &Mailbox,
    refused: &mut Option<(ReplyStage, Reply)>,
) -> Result<Existence, Outcome> {
    let needs_utf8 = mailbox.needs_smtputf8();
    if needs_utf8 && !ready.connection.capabilities().smtputf8 {
        let text = "the next hop does not offer SMTPUTF8, which the address needs";
        return Ok(Existence::Refused(Reply::new(553, Enhanced(5, 6, 7), text)));
    }
    let mail = if needs_utf8 { "MAIL FROM:<> SMTPUTF8" } else { "MAIL FROM:<>" };
    let reply = ask(connector, ready, mail, ExpectedReply::Mail).await?;
    if !reply.is_positive() {
        *refused = Some((ReplyStage::Mail, reply.clone()));
        return Ok(Existence::Unclear(unclear(&ready.relay, "MAIL FROM:<>", &reply)));
    }
    let reply = ask(connector, ready, &format!("RCPT TO:<{mailbox}>"), ExpectedReply::Rcpt).await?;
    if !reply.is_positive() {
        *refused = Some((ReplyStage::Rcpt, reply.clone()));
    }
    Ok(of_recipient(&ready.relay, reply))
}

fn of_recipient(relay: &str, reply: Reply) -> Existence {
    match reply.code {
        200..300 => Existence::Exists,
        // Without an enhanced code it may mean "too many recipients" (RFC 5321 §4.5.3.1.10): deliveries ask the next server, too.
        552 if reply.enhanced.is_none_or(|code| code.1 == 0) => {
            Existence::Unclear(unclear(relay, "RCPT TO", &reply))
        }
        500..600 => Existence::Refused(reply),
        _ => Existence::Unclear(unclear(relay, "RCPT TO", &reply)),
    }
}

/// Returns the deferral of a reply that does not say whether the mailbox exists.
fn unclear(relay: &str, command: &str, reply: &Reply) -> Outcome {
    let status = reply.enhanced.map_or(Enhanced(4, 4, 1), |enhanced| Enhanced(4, enhanced.1, enhanced.2));
    Outcome::deferred(status, format!("{relay} replied to {command}: {}", reply.excerpt()))
}

async fn ask(
    connector: &Connector<'_>,
    ready: &mut Ready,
    line: &str,
    command: ExpectedReply,
) -> Result<Reply, Outcome> {
    ready.connection.ask(line, command);
    connector.answer(ready).await
}

/// Ends the transaction and the connection.
async fn end(mut ready: Ready) {
    ready.connection.quit();
    while let Some(piece) = ready.connection.next_piece() {
        if let OutputPiece::Text(text) = piece {
            ready.stream.push(text.into());
        }
    }
    if ready.stream.flush(QUIT_TIMEOUT).await.is_ok() {
        let _ = ready.stream.read(QUIT_TIMEOUT).await;
    }
    ready.stream.shutdown(QUIT_TIMEOUT).await;
}
