//! XCLIENT and XFORWARD: a listed peer speaks for another client.

use super::{SessionDriver, SessionIo};
use crate::{Client, NamedClient, Service, listener::is_in};
use mail::Reply;
use smtp::{
    forwarded::{Attribute, ClientAttributes},
    server::{Query, replies},
};
use std::{io, net::SocketAddr};

impl<S: Service> SessionDriver<S> {
    /// Begins the session anew for the client that the peer names.
    pub(super) async fn change_client(
        &mut self,
        io: &mut SessionIo<S>,
        attributes: ClientAttributes,
    ) -> io::Result<()> {
        let hello = match &attributes.hello {
            Attribute::Is(name) => Some((name.clone(), attributes.is_extended != Some(false))),
            Attribute::NotGiven | Attribute::Unavailable => None,
        };
        apply(&mut self.client, attributes);
        io.body = None;
        let connected = {
            let (_, _, waiting) = io.split();
            let answer = self.service.connected(&self.client);
            self.resolve(answer, waiting).await?.unwrap_or(Err(replies::LOOKUP_TIMEOUT_CLOSING))
        };
        match connected {
            Ok(context) => io.context = context,
            Err(reply) => {
                self.service.log_reject(&self.client, "XCLIENT", None, &reply);
                io.connection.close_with(&reply);
                return Ok(());
            }
        }
        // As with Postfix, the right is now that of the named client, who may speak to us through the peer.
        for (_, keyword) in self.options.peer_lists().filter(|(list, _)| !is_in(list, self.client.peer.ip()))
        {
            io.connection.withdraw(keyword);
        }
        let is_trusted = self.service.is_trusted(&self.client);
        io.connection.set_bare_lf(self.options.bare_lf_of(is_trusted));
        io.connection.set_trusted(is_trusted);
        let hello = match hello {
            Some((name, is_extended)) => {
                let (_, context, waiting) = io.split();
                let answer = self.resolve(self.service.hello(context, &name), waiting).await?;
                let reply = answer.unwrap_or(replies::LOOKUP_TIMEOUT);
                if !reply.is_positive() {
                    self.service.log_reject(&self.client, "XCLIENT", None, &reply);
                }
                reply.is_positive().then_some((name, is_extended))
            }
            None => None,
        };
        io.connection.restart(hello);
        Ok(())
    }

    /// Notes from whom the peer has its next message.
    pub(super) fn note_source(&mut self, io: &mut SessionIo<S>, attributes: ClientAttributes) {
        let named = self.client.named.get_or_insert_default();
        named.source.get_or_insert_default().update(attributes);
        io.connection.answer(replies::XFORWARD_OK);
    }

    /// Forgets the source of a message whose transaction is over.
    pub(super) fn forget_source(&mut self) {
        if let Some(named) = &mut self.client.named {
            named.source = None;
        }
    }

    /// Answers VRFY, EXPN and ETRN.
    pub(super) async fn answer_query(&mut self, io: &mut SessionIo<S>, query: Query) -> io::Result<()> {
        let answer: Option<Reply> = self.ask(io, |service, context, _| service.query(context, query)).await?;
        io.connection.answer(answer.unwrap_or(replies::LOOKUP_TIMEOUT));
        Ok(())
    }
}

/// Forgets the name and the login, which were said in clear text (RFC 3207 §4.2). The address stays that of the named
/// client: it must not get the rights of the peer who spoke for it.
pub(super) fn forget_names(client: &mut Client) {
    if let Some(named) = &mut client.named {
        **named = NamedClient::default();
    }
}

/// Makes the client the one that the peer names. Its address and port stay if the peer does not give others; name and
/// login do not.
fn apply(client: &mut Client, attributes: ClientAttributes) {
    // The certificate is the peer's own.
    if let Some(tls) = &mut client.tls {
        tls.certificate = None;
    }
    let ip = attributes.address.unwrap_or(client.peer.ip());
    let port = attributes.port.or(Some(client.peer.port())).unwrap_or(0);
    client.peer = SocketAddr::new(ip, port);
    let ip = attributes.local_address.unwrap_or(client.local.ip());
    client.local = SocketAddr::new(ip, attributes.local_port.unwrap_or(client.local.port()));
    let (name, login) = (attributes.name, attributes.login.or(None));
    client.named = Some(Box::new(NamedClient { name, login, source: None }));
}
