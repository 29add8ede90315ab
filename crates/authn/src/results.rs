//! Authentication-Results fields (RFC 8601).

use crate::{DkimOutcome, DkimResult, DmarcOutcome, DmarcResult, Name, Spf, SpfOutcome};
use std::net::IpAddr;

/// The column before which lines are folded (RFC 5322 §2.1.1).
const LINE_BYTES: usize = 78;
/// Octets of a value that others wrote.
const VALUE_BYTES_MAX: usize = 320;

/// A result of the check that a client's address has a name which has that address (RFC 8601 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IprevResult {
    /// One of its names leads back to the address.
    Pass,
    /// None of its names has the address.
    Fail,
    /// The names could not be looked up now.
    TempError,
    /// The address has no PTR record.
    PermError,
}

impl IprevResult {
    /// Returns the word for an Authentication-Results field (RFC 8601 §2.7.3), such as `pass`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::TempError => "temperror",
            Self::PermError => "permerror",
        }
    }
}

/// Writes the value of an Authentication-Results field: one for a message, with all results.
#[derive(Debug, Clone)]
pub struct AuthenticationResults {
    value: String,
    /// Octets of the last line, to fold before it is too long.
    column: usize,
    has_results: bool,
}

impl AuthenticationResults {
    /// Begins with the authserv-id: the name by which this server's fields are known. Fields that arrive with it are to be removed
    /// ([`has_server_id`]).
    pub fn new(server: &str) -> Self {
        let value = quoted(server);
        let column = "Authentication-Results: ".len() + value.len();
        Self { value, column, has_results: false }
    }

    /// Adds the result of the reverse name of a client.
    #[must_use]
    pub fn iprev(self, result: IprevResult, client: IpAddr) -> Self {
        self.method("iprev", result.as_str()).property("policy.iprev", &client.to_canonical().to_string())
    }

    /// Adds what SPF found, with the identity that it checked.
    #[must_use]
    pub fn spf(self, question: &Spf<'_>, outcome: &SpfOutcome) -> Self {
        let this = self.method("spf", outcome.result.as_str()).reason(outcome.error.as_deref());
        match (question.sender, &outcome.domain) {
            (None, _) => this.property("smtp.helo", question.hello),
            // The field cannot say what a local part outside ASCII is, except in internationalised mail.
            (Some(sender), Some(domain)) if !sender.is_ascii() => {
                this.property("smtp.mailfrom", &domain.to_string())
            }
            (Some(sender), _) => this.property("smtp.mailfrom", sender),
        }
    }

    /// Adds the outcomes of the signatures; `none` if there are none.
    #[must_use]
    pub fn dkim(mut self, outcomes: &[DkimOutcome]) -> Self {
        if outcomes.is_empty() {
            return self.method("dkim", "none");
        }
        for outcome in outcomes {
            self = self.method("dkim", outcome.result.as_str()).reason(outcome.reason);
            // Another identity counts only if the signature does.
            let identity = outcome.identity.clone().filter(|identity| {
                let domain = identity.strip_prefix('@').and_then(Name::new);
                outcome.result == DkimResult::Pass && domain != outcome.domain
            });
            // A quoted value stands last: some readers lose what follows it.
            for (name, value) in [
                ("header.d", outcome.domain.as_ref().map(Name::to_string)),
                ("header.s", outcome.selector.as_ref().map(Name::to_string)),
                ("header.a", outcome.algorithm.clone()),
                ("header.i", identity),
                ("header.b", Some(outcome.signature_start.clone()).filter(|start| !start.is_empty())),
            ] {
                if let Some(value) = value {
                    self = self.property(name, &value);
                }
            }
        }
        self
    }

    /// Adds the outcome of DMARC for the domain of From, and the policy of its record.
    #[must_use]
    pub fn dmarc(self, outcome: &DmarcOutcome, from: &Name) -> Self {
        let this = self.method("dmarc", outcome.result.as_str()).reason(outcome.error.as_deref());
        let this = this.property("header.from", &from.to_string());
        if outcome.result == DmarcResult::None || outcome.record_domain.is_none() {
            return this;
        }
        this.property("policy.dmarc", outcome.policy.as_str())
    }

    /// Returns the value, folded with CRLF, without a line end at its end.
    pub fn into_value(mut self) -> String {
        if !self.has_results {
            self.value.push_str("; none");
        }
        self.value
    }

    /// Begins a result on a line of its own.
    fn method(mut self, method: &str, result: &str) -> Self {
        self.has_results = true;
        let text = format!("{method}={result}");
        self.column = 1 + text.len();
        self.value.extend([";\r\n\t", &text]);
        self
    }

    fn reason(self, reason: Option<&str>) -> Self {
        match reason {
            Some(reason) => self.property("reason", reason),
            None => self,
        }
    }

    fn property(mut self, name: &str, value: &str) -> Self {
        let text = format!("{name}={}", quoted(value));
        if self.column + 1 + text.len() > LINE_BYTES {
            self.value.push_str("\r\n\t");
            self.column = 1 + text.len();
        } else {
            self.value.push(' ');
            self.column += 1 + text.len();
        }
        self.value.push_str(&text);
        self
    }
}

/// A value as it is, if it is a token or an address of such; otherwise a quoted string (RFC 8601 §2.2). What no field can have
/// becomes `?`, and the end of what is too long is left out.
fn quoted(value: &str) -> String {
    let is_token = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte);
    let parts = value.rsplit_once('@').map_or(["", value], |(local, domain)| [local, domain]);
    let has_domain = !parts[1].is_empty();
    if has_domain && value.len() <= VALUE_BYTES_MAX && parts.iter().all(|part| part.bytes().all(is_token)) {
        return value.to_owned();
    }
    let mut text = String::from("\"");
    for character in value.chars().take(VALUE_BYTES_MAX) {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            ' '..='~' => text.push(character),
            _ => text.push('?'),
        }
    }
    text.push('"');
    text
}

/// Returns whether the value of an Authentication-Results field that arrived claims to be of a server: its authserv-id is that
/// name, in any case and form. Such a field is forged unless the server wrote it, and is to be removed (RFC 8601 §5). One that
/// breaks the grammar claims it if it has the name anywhere.
pub fn has_server_id(value: &[u8], server: &str) -> bool {
    let value = String::from_utf8_lossy(value);
    let Some(rest) = after_comments(&value) else {
        return value.to_ascii_lowercase().contains(&server.to_ascii_lowercase());
    };
    let id: String = match rest.strip_prefix('"') {
        None => rest.chars().take_while(|it| !it.is_whitespace() && !";(/,=\"".contains(*it)).collect(),
        Some(quoted) => {
            let mut id = String::new();
            let mut characters = quoted.chars();
            while let Some(character) = characters.next().filter(|it| *it != '"') {
                match character {
                    '\\' => id.extend(characters.next()),
                    '\r' | '\n' => {}
                    _ => id.push(character),
                }
            }
            id.trim().to_owned()
        }
    };
    let is_name = Name::new(&id).is_some_and(|id| Some(id) == Name::new(server));
    is_name || id.eq_ignore_ascii_case(server)
}

/// Returns what follows white space and comments (RFC 5322 §3.2.2); `None` if a comment does not end.
fn after_comments(value: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let mut is_escaped = false;
    for (at, character) in value.char_indices() {
        match character {
            _ if std::mem::take(&mut is_escaped) => {}
            '\\' if depth > 0 => is_escaped = true,
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            _ if depth > 0 || character.is_whitespace() => {}
            _ => return Some(&value[at..]),
        }
    }
    (depth == 0).then_some("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DmarcPolicy, SpfResult};
    use proptest::prelude::*;

    fn name(text: &str) -> Option<Name> {
        Name::new(text)
    }

    fn spf_outcome(result: SpfResult, domain: &str) -> SpfOutcome {
        SpfOutcome { result, domain: name(domain), mechanism: None, error: None, explanation: None }
    }

    fn spf<'a>(hello: &'a str, sender: Option<&'a str>) -> Spf<'a> {
        Spf { client: [192, 0, 2, 1].into(), hello, sender, receiver: "mx.test", now: 0 }
    }

    fn signature(result: DkimResult, reason: Option<&'static str>) -> DkimOutcome {
        DkimOutcome {
            result,
            reason,
            domain: name("a.test"),
            selector: name("s1"),
            algorithm: Some("rsa-sha256".into()),
            identity: Some("@a.test".into()),
            signature_start: "dzdVyOf/".into(),
            unsigned_bytes: 0,
            is_testing: false,
        }
    }

    fn dmarc(result: DmarcResult) -> DmarcOutcome {
        DmarcOutcome {
            result,
            policy: DmarcPolicy::Reject,
            is_testing: false,
            record_domain: name("a.test"),
            is_spf_aligned: true,
            aligned_signature: Some(0),
            error: None,
        }
    }

    #[test]
    fn all_results_stand_in_one_field_with_short_lines() {
        let mut unlike = signature(DkimResult::Pass, None);
        unlike.identity = Some("ann@news.a.test".into());
        let sender = spf("mail.a.test", Some("ann@a.test"));
        let value = AuthenticationResults::new("mx.test")
            .iprev(IprevResult::Pass, "2001:db8::1".parse().unwrap())
            .spf(&spf("mail.a.test", None), &spf_outcome(SpfResult::None, "mail.a.test"))
            .spf(&sender, &spf_outcome(SpfResult::Pass, "a.test"))
            .dkim(&[unlike, signature(DkimResult::Fail, Some("the body was changed"))])
            .dmarc(&dmarc(DmarcResult::Pass), &name("a.test").unwrap())
            .into_value();
        let expected = [
            "mx.test;",
            "\tiprev=pass policy.iprev=\"2001:db8::1\";",
            "\tspf=none smtp.helo=mail.a.test;",
            "\tspf=pass smtp.mailfrom=ann@a.test;",
            "\tdkim=pass header.d=a.test header.s=s1 header.a=rsa-sha256",
            "\theader.i=ann@news.a.test header.b=\"dzdVyOf/\";",
            "\tdkim=fail reason=\"the body was changed\" header.d=a.test header.s=s1",
            "\theader.a=rsa-sha256 header.b=\"dzdVyOf/\";",
            "\tdmarc=pass header.from=a.test policy.dmarc=reject",
        ];
        assert_eq!(value, expected.join("\r\n"));
    }

    #[test]
    fn a_message_without_checks_or_signatures_says_none() {
        assert_eq!(AuthenticationResults::new("mx.test").into_value(), "mx.test; none");
        assert_eq!(AuthenticationResults::new("mx.test").dkim(&[]).into_value(), "mx.test;\r\n\tdkim=none");
    }

    #[test]
    fn values_that_others_wrote_are_quoted() {
        for (value, expected) in [
            ("a.test", "a.test"),
            ("ann+x@a.test", "ann+x@a.test"),
            ("@a.test", "@a.test"),
            ("", "\"\""),
            ("ann@", "\"ann@\""),
            ("a b@a.test", "\"a b@a.test\""),
            ("a@b@a.test", "\"a@b@a.test\""),
            ("\"a\\\"b\"@a.test", "\"\\\"a\\\\\\\"b\\\"@a.test\""),
            ("[192.0.2.1]", "\"[192.0.2.1]\""),
            ("x;\r\n\tdmarc=pass", "\"x;???dmarc=pass\""),
            ("x\u{e4}\0", "\"x??\""),
        ] {
            assert_eq!(quoted(value), expected, "{value:?}");
        }
        let outcome = spf_outcome(SpfResult::Fail, "a.test");
        let value = AuthenticationResults::new("mx.test")
            .spf(&spf("h", Some("j\u{f6}rg@a.test")), &outcome)
            .into_value();
        assert_eq!(value, "mx.test;\r\n\tspf=fail smtp.mailfrom=a.test");
    }

    #[test]
    fn fields_that_claim_our_name_are_found_in_any_form() {
        for value in [
            " mx.test; none",
            "MX.Test;spf=pass",
            " mx.test. 1; dkim=pass",
            "\r\n\t(by us \\) (nested)) mx.test(x); dkim=pass",
            " \"mx.test\"; dkim=pass",
            " \"m\\x.test\" 1; dkim=pass",
            " mx.test",
            " mx.test/1; x",
            " (unfinished mx.test; spf=pass",
        ] {
            assert!(has_server_id(value.as_bytes(), "mx.test"), "{value:?}");
        }
        for value in [
            "",
            " ",
            " a.mx.test; none",
            " mx.test.a; none",
            " x; mx.test",
            " (mx.test) x; none",
            " (unfinished",
        ] {
            assert!(!has_server_id(value.as_bytes(), "mx.test"), "{value:?}");
        }
        assert!(has_server_id("b\u{fc}cher.test; none".as_bytes(), "xn--bcher-kva.test"));
        assert!(has_server_id(b"gateway; none", "Gateway"));
    }

    proptest! {
        #[test]
        fn no_value_breaks_out_of_its_field(hello in any::<String>(), sender in any::<String>(), error in "\\PC{0,400}") {
            let mut outcome = spf_outcome(SpfResult::PermError, "a.test");
            outcome.error = Some(error);
            let value = AuthenticationResults::new("mx.test")
                .spf(&spf(&hello, None), &outcome)
                .spf(&spf("h", Some(&sender)), &outcome)
                .into_value();
            prop_assert!(value.is_ascii());
            prop_assert!(value.split("\r\n").skip(1).all(|line| line.starts_with('\t') && line.len() < 998 && line.len() > 1));
            // Outside quoted strings there are two results.
            let (mut is_quoted, mut is_escaped, mut results) = (false, false, 0);
            for character in value.chars() {
                match character {
                    _ if std::mem::take(&mut is_escaped) => {}
                    '\\' if is_quoted => is_escaped = true,
                    '"' => is_quoted = !is_quoted,
                    ';' if !is_quoted => results += 1,
                    '\0'..='\x08' | '\x0b'..='\x0c' | '\x0e'..='\x1f' => prop_assert!(false, "{:?}", value),
                    _ => {}
                }
            }
            prop_assert!(!is_quoted && results == 2, "{}", value);
            prop_assert!(has_server_id(value.as_bytes(), "mx.test"));
        }

        #[test]
        fn any_octets_have_an_answer(value in prop::collection::vec(any::<u8>(), 0..60)) {
            has_server_id(&value, "mx.test");
        }
    }
}
