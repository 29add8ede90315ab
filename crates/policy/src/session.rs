//! The source of a draft: a client, a program of this machine, or this server itself.

use mail::{ClientCertificate, ListenerKind};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// Where a draft comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A client that connected to a listener.
    Smtp {
        /// Address and port of the client.
        peer: SocketAddr,
        /// The address and port to which the client connected.
        local: SocketAddr,
        /// Tells submission from mail exchange.
        listener: ListenerKind,
    },
    /// A program on this machine, such as `sendmail`.
    Local {
        /// The user whose process handed the message in.
        uid: u32,
    },
    /// A bounce or another notification that this server sends.
    Report,
}

/// What is known of a client, or of another source. Within a session these facts outlive a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFacts {
    /// A client, a program, or this server.
    pub source: Source,
    /// `None` before EHLO or HELO, and again after STARTTLS.
    pub hello: Option<Box<str>>,
    /// TLS version and cipher suite, when TLS is active.
    pub tls: Option<Box<str>>,
    /// The client's certificate, where the listener asks for one.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// The name by which the client has logged in.
    pub login: Option<Box<str>>,
    /// For the Received field and rules; `None` without a login.
    pub mechanism: Option<Box<str>>,
    /// A login that a peer named by XCLIENT. It permits nothing, and narrows the senders as a login does.
    pub named_login: Option<Box<str>>,
    /// `NAME` of XCLIENT.
    pub named_host: NamedHost,
}

/// The host name of a client as a listed peer gave it (XCLIENT).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NamedHost {
    /// The peer said nothing about it: DNS is asked.
    #[default]
    NotGiven,
    /// The peer found none for the address.
    None,
    /// As the peer verified it.
    Name(Box<str>),
}

impl SessionFacts {
    /// Returns facts without a name, TLS or login.
    pub const fn new(source: Source) -> Self {
        Self {
            source,
            hello: None,
            tls: None,
            certificate: None,
            login: None,
            mechanism: None,
            named_login: None,
            named_host: NamedHost::NotGiven,
        }
    }

    /// The client's address; none if the source is no client.
    pub fn client(&self) -> Option<IpAddr> {
        match &self.source {
            Source::Smtp { peer, .. } => Some(peer.ip()),
            Source::Local { .. } | Source::Report => None,
        }
    }

    /// The kind of the listener to which the client connected.
    pub fn listener(&self) -> Option<ListenerKind> {
        match &self.source {
            Source::Smtp { listener, .. } => Some(*listener),
            Source::Local { .. } | Source::Report => None,
        }
    }

    /// Can the draft be refused? This server's own notifications can't: there is no client to tell.
    pub fn can_be_refused(&self) -> bool {
        self.source != Source::Report
    }
}
