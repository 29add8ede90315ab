//! Channel bindings: bytes that both ends of one TLS connection have, and nobody between them.

/// What of a TLS connection a SCRAM exchange is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChannelKind {
    /// Exported keying material (RFC 9266); TLS 1.3, and TLS 1.2 with the extended master secret.
    TlsExporter,
    /// The hash of the server's certificate (RFC 5929 §4).
    TlsServerEndPoint,
}

impl ChannelKind {
    /// Returns the registered name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TlsExporter => "tls-exporter",
            Self::TlsServerEndPoint => "tls-server-end-point",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::TlsExporter, Self::TlsServerEndPoint].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// The channel bindings of a connection; none without TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelBindings {
    /// Of `tls-exporter` (RFC 9266).
    pub exporter: Option<Box<[u8]>>,
    /// Of `tls-server-end-point`.
    pub end_point: Option<Box<[u8]>>,
}

impl ChannelBindings {
    /// Returns the bytes to bind to; `None` if the connection has none of this kind.
    pub fn of(&self, kind: ChannelKind) -> Option<&[u8]> {
        match kind {
            ChannelKind::TlsExporter => self.exporter.as_deref(),
            ChannelKind::TlsServerEndPoint => self.end_point.as_deref(),
        }
    }

    /// Returns the best kind that the connection has, with its bytes.
    pub fn best(&self) -> Option<(ChannelKind, &[u8])> {
        let kinds = [ChannelKind::TlsExporter, ChannelKind::TlsServerEndPoint];
        kinds.into_iter().find_map(|kind| Some((kind, self.of(kind)?)))
    }
}
