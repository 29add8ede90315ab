//! The source of a draft: a client, a program of this machine, or this server itself.

use mail::{ClientCertificate, ListenerKind};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// The source of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A client that connected to a listener.
    Smtp {
        /// Address and port of the client.
        peer: SocketAddr,
        /// The address and port to which the client connected.
        local: SocketAddr,
        /// The kind of the listener.
        listener: ListenerKind,
    },
    /// A program on this machine.
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
    /// The source of the draft.
    pub source: Source,
    /// The name in EHLO or HELO.
    pub hello: Option<Box<str>>,
    /// TLS version and cipher suite, when TLS is active.
    pub tls: Option<Box<str>>,
    /// The client's certificate, where the listener asks for one.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// The name by which the client has logged in.
    pub login: Option<Box<str>>,
    /// The SASL mechanism of the login.
    pub mechanism: Option<Box<str>>,
    /// A login that a peer named by XCLIENT. It permits nothing, and narrows the senders as a login does.
    pub named_login: Option<Box<str>>,
    /// The host name that a peer gave by XCLIENT.
    pub named_host: NamedHost,
}

/// The host name of a client as a listed peer gave it (XCLIENT).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NamedHost {
    /// The peer said nothing about it: DNS is asked.
    #[default]
    NotGiven,
    /// The peer found no name.
    None,
    /// The name that the peer verified.
    Name(Box<str>),
}

impl SessionFacts {
    /// The facts before anything was said.
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
