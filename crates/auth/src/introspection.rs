//! Token introspection (RFC 7662): the request about a token, and what the answer says.

use crate::{secret::Secret, tokens::VerifiedToken};
use serde_json::Value;
use std::time::Duration;

/// What the answer has to say of a token, so that it counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenDemands {
    /// The member of the answer that has the login.
    pub claim: Box<str>,
    /// Each must be in the scope of the token.
    pub scopes: Vec<Box<str>>,
    /// Must be in the audience of the token.
    pub audience: Option<Box<str>>,
}

/// What an answer of the introspection endpoint means (RFC 7662 §2.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Introspected {
    /// It fulfils the demands, and has not expired.
    Active {
        /// The login of the token, and whether it has the scopes.
        token: VerifiedToken,
        /// The time until it expires, if the answer says.
        expires_in: Option<Duration>,
    },
    /// The token is not valid here, for this reason.
    Refused(Box<str>),
}

/// Returns the body of a request: a form (RFC 7662 §2.1).
pub fn request_form(token: &Secret) -> Secret {
    let mut form = b"token=".to_vec();
    push_encoded(&mut form, token.bytes());
    form.extend_from_slice(b"&token_type_hint=access_token");
    Secret::new(form)
}

/// Returns the value of `Authorization` with which this server says who it is (RFC 6749 §2.3.1).
pub fn basic_authorization(client_id: &str, client_secret: &Secret) -> Secret {
    let mut pair = Vec::new();
    push_encoded(&mut pair, client_id.as_bytes());
    pair.push(b':');
    push_encoded(&mut pair, client_secret.bytes());
    Secret::new(format!("Basic {}", data_encoding::BASE64.encode(Secret::new(pair).bytes())))
}

/// Appends bytes as `application/x-www-form-urlencoded`.
fn push_encoded(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(*byte),
            byte => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
}

/// Reads an answer (RFC 7662 §2.2). `now`: seconds since 1970.
///
/// # Errors
/// The answer is none, in words.
pub fn read_answer(body: &[u8], demands: &TokenDemands, now: u64) -> Result<Introspected, String> {
    let answer: Value = serde_json::from_slice(body).map_err(|e| format!("the answer is not JSON: {e}"))?;
    let is_active = answer.get("active").and_then(Value::as_bool);
    let refused = |why: String| Ok(Introspected::Refused(why.into()));
    match is_active {
        None => return Err("the answer does not say whether the token is active".to_owned()),
        Some(false) => return refused("it is not active".to_owned()),
        Some(true) => {}
    }
    let expires = seconds(&answer, "exp")?;
    if expires.is_some_and(|expires| expires <= now) {
        return refused("it has expired".to_owned());
    }
    if seconds(&answer, "nbf")?.is_some_and(|begins| begins > now) {
        return refused("it is not valid yet".to_owned());
    }
    if let Some(audience) = demands.audience.as_deref().filter(|wanted| !has_audience(&answer, wanted)) {
        return refused(format!("it is not for the audience {audience}"));
    }
    let login = answer.get(&*demands.claim).and_then(Value::as_str);
    let Some(login) = login.filter(|login| is_login(login)) else {
        return refused(format!("the answer has no login in `{}`", demands.claim));
    };
    let scope = answer.get("scope").and_then(Value::as_str).unwrap_or_default();
    let is_for_mail = demands.scopes.iter().all(|wanted| scope.split(' ').any(|one| one == &**wanted));
    Ok(Introspected::Active {
        token: VerifiedToken { login: login.into(), is_for_mail },
        expires_in: expires.map(|expires| Duration::from_secs(expires - now)),
    })
}

/// Seconds since 1970, if the answer has the field; a fraction is cut off. Another value could be meant to end the token.
fn seconds(answer: &Value, field: &str) -> Result<Option<u64>, String> {
    let Some(value) = answer.get(field) else { return Ok(None) };
    let of_fraction = || value.as_f64().filter(|seconds| *seconds >= 0.0).map(|seconds| seconds as u64);
    let seconds = value.as_u64().or_else(of_fraction);
    seconds.map(Some).ok_or_else(|| format!("`{field}` of the answer is no time: {value}"))
}

/// The audience is one name, or a list (RFC 7519 §4.1.3).
fn has_audience(answer: &Value, wanted: &str) -> bool {
    match answer.get("aud") {
        Some(Value::String(one)) => one == wanted,
        Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(wanted)),
        _ => false,
    }
}

/// A login goes into the log and into keys of maps.
fn is_login(login: &str) -> bool {
    (1..=256).contains(&login.len()) && !login.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn demands() -> TokenDemands {
        TokenDemands {
            claim: "username".into(),
            scopes: vec!["mail".into()],
            audience: Some("mx.example.com".into()),
        }
    }

    fn read(body: &str) -> Result<Introspected, String> {
        read_answer(body.as_bytes(), &demands(), NOW)
    }

    #[test]
    fn the_answer_names_login_scope_and_expiry() {
        let body = r#"{"active":true,"username":"jane","scope":"openid mail","exp":1800000060,"aud":["x","mx.example.com"]}"#;
        let token = VerifiedToken { login: "jane".into(), is_for_mail: true };
        let expires_in = Some(Duration::from_secs(60));
        assert_eq!(read(body), Ok(Introspected::Active { token, expires_in }));
        let body = r#"{"active":true,"username":"jane","scope":"mailing","aud":"mx.example.com"}"#;
        let token = VerifiedToken { login: "jane".into(), is_for_mail: false };
        assert_eq!(read(body), Ok(Introspected::Active { token, expires_in: None }));
    }

    #[test]
    fn tokens_that_are_not_valid_here_are_refused_with_the_reason() {
        for (body, why) in [
            (r#"{"active":false}"#, "it is not active"),
            (r#"{"active":true,"exp":1800000000}"#, "it has expired"),
            (r#"{"active":true,"exp":1799999999.9}"#, "it has expired"),
            (r#"{"active":true,"nbf":1800000001}"#, "it is not valid yet"),
            (r#"{"active":true,"username":"jane"}"#, "it is not for the audience mx.example.com"),
            (r#"{"active":true,"aud":["x"],"username":"jane"}"#, "it is not for the audience mx.example.com"),
            (r#"{"active":true,"aud":"mx.example.com"}"#, "the answer has no login in `username`"),
            (
                r#"{"active":true,"aud":"mx.example.com","username":"a\nb"}"#,
                "the answer has no login in `username`",
            ),
        ] {
            assert_eq!(read(body), Ok(Introspected::Refused(why.into())), "{body}");
        }
    }

    #[test]
    fn answers_that_are_none_are_errors_and_refuse_nobody_for_good() {
        for body in [
            "",
            "<html>",
            "[]",
            "{}",
            r#"{"active":"true"}"#,
            r#"{"active":true"#,
            r#"{"active":true,"exp":"1000000000"}"#,
            r#"{"active":true,"exp":null}"#,
            r#"{"active":true,"exp":-1}"#,
            r#"{"active":true,"nbf":"soon"}"#,
        ] {
            assert!(read(body).is_err(), "{body}");
        }
    }

    #[test]
    fn a_request_is_a_form() {
        let form = request_form(&Secret::new("a+b/c=="));
        assert_eq!(form.bytes(), b"token=a%2Bb%2Fc%3D%3D&token_type_hint=access_token");
        let basic = basic_authorization("mx", &Secret::new("s:t"));
        assert_eq!(basic.bytes(), b"Basic bXg6cyUzQXQ=");
    }
}
