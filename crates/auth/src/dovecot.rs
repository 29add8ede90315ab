//! The protocol of Dovecot's auth socket, from the side of a mail server (Dovecot's documentation, "Authentication Protocol", version 1.2).
//! Lines of fields with tabs between them; the exchange itself is Dovecot's.

use data_encoding::BASE64;
use std::net::SocketAddr;

/// The first lines that a mail server sends. `pid` tells Dovecot's log who it is.
pub fn hello(pid: u32) -> String {
    format!("VERSION\t1\t2\nCPID\t{pid}\n")
}

/// The first lines of Dovecot, read one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Greeting {
    /// Names of mechanisms that Dovecot offers and that need nothing of the connection.
    pub mechanisms: Vec<Box<str>>,
    /// True once `DONE`, the last line, has come.
    pub is_complete: bool,
    /// The other side is not Dovecot's auth, or of another major version.
    pub is_foreign: bool,
}

impl Greeting {
    /// Takes a line, without its end.
    pub fn line(&mut self, line: &str) {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["VERSION", major, ..] => self.is_foreign |= major != "1",
            ["MECH", name, ref flags @ ..] => {
                // A certificate or channel bindings are not passed on, and nobody is anonymous.
                let is_usable =
                    !flags.contains(&"anonymous") && name != "EXTERNAL" && !name.ends_with("-PLUS");
                let is_name = !name.is_empty()
                    && name
                        .bytes()
                        .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b"-_".contains(&b));
                if is_usable && is_name {
                    self.mechanisms.push(name.into());
                }
            }
            ["DONE"] => self.is_complete = true,
            _ => {}
        }
    }
}

/// The facts that Dovecot is told about a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientFacts {
    /// Address and port of the client.
    pub peer: SocketAddr,
    /// The address and port to which the client connected.
    pub local: SocketAddr,
    /// Without TLS, Dovecot may refuse mechanisms that send a clear-text password.
    pub is_secured: bool,
}

/// Returns the request that begins an exchange.
pub fn request(id: u32, mechanism: &str, client: &ClientFacts, initial: Option<&[u8]>) -> String {
    let ClientFacts { peer, local, is_secured } = client;
    let mut line = format!(
        "AUTH\t{id}\t{mechanism}\tservice=smtp\tlip={}\trip={}\tlport={}\trport={}",
        local.ip().to_canonical(),
        peer.ip().to_canonical(),
        local.port(),
        peer.port()
    );
    if *is_secured {
        line.push_str("\tsecured");
    }
    // It has to be the last field.
    if let Some(initial) = initial {
        line.push_str("\tresp=");
        line.push_str(&BASE64.encode(initial));
    }
    line.push('\n');
    line
}

/// Returns the line that carries the client's response to a challenge.
pub fn response(id: u32, response: &[u8]) -> String {
    format!("CONT\t{id}\t{}\n", BASE64.encode(response))
}

/// What Dovecot says to a message of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DovecotAnswer {
    /// To be sent to the client, which answers it.
    Challenge(Vec<u8>),
    /// Authenticated. The name is Dovecot's, which may differ from what the client gave.
    Ok(Box<str>),
    /// Not authenticated.
    Fail {
        /// For the log; `None` if Dovecot does not say.
        user: Option<Box<str>>,
        /// Dovecot cannot ask its own store now.
        is_temporary: bool,
    },
}

/// Reads a line, without its end; none if it is not about this exchange, or makes no sense.
pub fn answer(id: u32, line: &str) -> Option<DovecotAnswer> {
    let mut fields = line.split('\t');
    let kind = fields.next()?;
    (fields.next()?.parse() == Ok(id)).then_some(())?;
    let user = |mut fields: std::str::Split<'_, char>| {
        let named = fields.find_map(|field| field.strip_prefix("user="));
        named.map(unescaped).filter(|user| !user.is_empty())
    };
    match kind {
        "CONT" => Some(DovecotAnswer::Challenge(BASE64.decode(fields.next().unwrap_or("").as_bytes()).ok()?)),
        "OK" => user(fields).map(|user| DovecotAnswer::Ok(user.into())),
        "FAIL" => {
            let is_temporary = fields.clone().any(|field| field == "temp" || field == "code=temp_fail");
            Some(DovecotAnswer::Fail { user: user(fields).map(Into::into), is_temporary })
        }
        _ => None,
    }
}

/// Undoes Dovecot's escapes of tab, line ends and NUL; they cannot be part of a name, and become `?`.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1}' => {
                chars.next();
                out.push('?');
            }
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_names_mechanisms_that_need_nothing_of_the_connection() {
        let mut greeting = Greeting::default();
        let lines = "VERSION\t1\t2\nMECH\tPLAIN\tplaintext\nMECH\tANONYMOUS\tanonymous\nMECH\tEXTERNAL\nMECH\tSCRAM-SHA-256\t\
                     mutual-auth\nMECH\tSCRAM-SHA-256-PLUS\nMECH\tEVIL\u{7}\nSPID\t1\nCUID\t2\nCOOKIE\tabc\nDONE";
        for line in lines.lines() {
            assert!(!greeting.is_complete);
            greeting.line(line);
        }
        assert!(greeting.is_complete && !greeting.is_foreign);
        assert_eq!(greeting.mechanisms, ["PLAIN".into(), "SCRAM-SHA-256".into()]);
        greeting.line("VERSION\t2\t0");
        assert!(greeting.is_foreign);
    }

    #[test]
    fn a_request_has_the_response_at_its_end() {
        let client = ClientFacts {
            peer: "[::ffff:192.0.2.1]:1234".parse().unwrap(),
            local: "192.0.2.2:587".parse().unwrap(),
            is_secured: true,
        };
        assert_eq!(
            request(7, "PLAIN", &client, Some(b"\0jane\0secret")),
            "AUTH\t7\tPLAIN\tservice=smtp\tlip=192.0.2.2\trip=192.0.2.1\tlport=587\trport=1234\tsecured\t\
             resp=AGphbmUAc2VjcmV0\n"
        );
        let clear = ClientFacts { is_secured: false, ..client };
        assert!(request(7, "LOGIN", &clear, None).ends_with("rport=1234\n"));
        assert!(request(7, "LOGIN", &clear, Some(b"")).ends_with("\tresp=\n"));
        assert_eq!(response(7, b"x"), "CONT\t7\teA==\n");
    }

    #[test]
    fn answers_are_read_for_their_own_exchange() {
        let fail = |user: Option<&str>, is_temporary| {
            Some(DovecotAnswer::Fail { user: user.map(Into::into), is_temporary })
        };
        for (line, expected) in [
            ("CONT\t7\teA==", Some(DovecotAnswer::Challenge(b"x".to_vec()))),
            ("CONT\t7\t", Some(DovecotAnswer::Challenge(Vec::new()))),
            ("CONT\t7\t!", None),
            ("OK\t7\tuser=jane\toriginal_user=x", Some(DovecotAnswer::Ok("jane".into()))),
            ("OK\t7\tuser=ja\u{1}tne", Some(DovecotAnswer::Ok("ja?ne".into()))),
            ("OK\t7\tuser=", None),
            ("OK\t7", None),
            ("OK\t8\tuser=jane", None),
            ("FAIL\t7\tuser=jane", fail(Some("jane"), false)),
            ("FAIL\t7\tuser=jane\ttemp", fail(Some("jane"), true)),
            ("FAIL\t7\tcode=temp_fail", fail(None, true)),
            ("FAIL\t7", fail(None, false)),
            ("FAIL", None),
            ("", None),
        ] {
            assert_eq!(answer(7, line), expected, "{line}");
        }
    }
}
