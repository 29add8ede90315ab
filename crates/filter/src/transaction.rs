//! The envelope and the client, for filters that see a whole message at once.

/// A message that waits for its verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The queue id, which the log of the other program can name.
    pub id: String,
    /// The name of this server.
    pub server: String,
    /// The kind of the listener, or `local`.
    pub listener: String,
    /// The IP address of the client; that of this machine for its programs.
    pub client: Option<String>,
    /// The verified name of the client.
    pub client_name: Option<String>,
    /// What the client said in EHLO or HELO.
    pub hello: Option<String>,
    /// By which the client has logged in.
    pub login: Option<String>,
    /// The version of TLS, and the cipher suite.
    pub tls: Option<(String, String)>,
    /// Empty for `<>`.
    pub sender: String,
    /// As given in RCPT.
    pub recipients: Vec<String>,
}
