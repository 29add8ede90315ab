//! rspamd over HTTP: the headers of the request, and what the answer means. An answer has the effect that it has through rspamd's own
//! milter.

use crate::{Judged, Transaction};
use milter::{Edit, Verdict};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use std::{fmt, marker::PhantomData};

/// The path of the request, whose body is the message.
pub const TARGET: &str = "/checkv2";

const REJECTED: &str = "Spam message rejected";
const LATER: &str = "Try again later";
const QUARANTINED: &str = "Quarantine message";
const SPAM_HEADER: &str = "X-Spam";
const ACTION_HEADER: &str = "X-Rspamd-Action";

/// Returns the header of the request, without that of HTTP itself.
pub fn header(of: &Transaction) -> Vec<(&'static str, String)> {
    let known = [
        ("Queue-Id", Some(&of.id)),
        ("IP", of.client.as_ref()),
        ("Hostname", of.client_name.as_ref()),
        ("Helo", of.hello.as_ref()),
        ("User", of.login.as_ref()),
        ("TLS-Version", of.tls.as_ref().map(|(version, _)| version)),
        ("TLS-Cipher", of.tls.as_ref().map(|(_, cipher)| cipher)),
        ("MTA-Name", Some(&of.listener)),
    ];
    let known = known.into_iter().filter_map(|(name, value)| Some((name, value?.clone())));
    let sender = [("From", format!("<{}>", of.sender))];
    let recipients = of.recipients.iter().map(|to| ("Rcpt", format!("<{to}>")));
    known.chain(sender).chain(recipients).chain([("Milter", "Yes".to_owned())]).collect()
}

/// Reads an answer. `names`: those of the header fields that rspamd was shown.
///
/// # Errors
/// It is not an answer of rspamd, or asks for what is not a header field, a reply or an address.
pub fn read_answer(answer: &[u8], names: &[Vec<u8>]) -> Result<Judged, String> {
    let answer: Answer =
        serde_json::from_slice(answer).map_err(|e| format!("the answer is not one of rspamd: {e}"))?;
    if let Some(error) = answer.error {
        return Err(format!("it answers: {error}"));
    }
    let action = answer.action.ok_or("the answer has no action")?;
    let milter = answer.milter;
    let header = Header(names);
    let mut edits = Vec::new();
    for (name, which) in &milter.remove_headers.0 {
        if let Value::Number(which) = which {
            header.remove(name, *which, &mut edits)?;
        }
    }
    for (name, added) in &milter.add_headers.0 {
        for one in added.all() {
            edits.extend(header.add(name, one)?);
        }
    }
    edits.extend(milter.change_from.as_deref().map(Edit::from).transpose()?);
    for to in &milter.add_rcpt {
        edits.push(Edit::to(to)?);
    }
    for to in &milter.del_rcpt {
        edits.push(Edit::not_to(to)?);
    }
    // rspamd places signatures below the first field, which is that of the server.
    for (at, signature) in (1..).zip(answer.dkim_signature.all()) {
        if let Value::Text(signature) = signature {
            edits.push(Edit::inserting(at, "DKIM-Signature", signature)?);
        }
    }
    let said = answer.messages.0.into_iter().find_map(|(name, text)| match text {
        Value::Text(text) if name == "smtp_message" => Some(text),
        _ => None,
    });
    let reply = |code: &str, usual: &str| {
        let text = said.as_deref().unwrap_or(usual);
        Verdict::replying(&format!("{code} {}", text.replace(['\r', '\n'], " ")))
    };
    if action == "add header" {
        let fields = match milter.spam_header {
            Some(Marks::Text(value)) => vec![(SPAM_HEADER.to_owned(), value)],
            Some(Marks::Fields(fields)) => fields.0,
            None if milter.no_action => Vec::new(),
            _ => vec![(SPAM_HEADER.to_owned(), "Yes".to_owned())],
        };
        for (name, value) in &fields {
            header.remove(name, 0, &mut edits)?;
            edits.push(Edit::changing(1, name, Some(value))?);
        }
        if !fields.is_empty() {
            return Ok(Judged { verdict: Verdict::Accept, edits, body: None });
        }
    }
    if milter.no_action {
        edits.push(Edit::adding(ACTION_HEADER, &action)?);
        return Ok(Judged { verdict: Verdict::Accept, edits, body: None });
    }
    let verdict = match (action.as_str(), milter.reject.as_deref()) {
        ("discard", _) | ("reject", Some("discard")) => Verdict::Discard,
        ("quarantine", _) | ("reject", Some("quarantine")) => {
            edits.push(Edit::holding(QUARANTINED));
            Verdict::Accept
        }
        ("reject", _) => reply("554 5.7.1", REJECTED)?,
        ("soft reject", _) => reply("451 4.7.1", LATER)?,
        ("rewrite subject", _) => {
            let subject = answer.subject.as_deref();
            edits.extend(subject.map(|subject| Edit::changing(1, "Subject", Some(subject))).transpose()?);
            Verdict::Accept
        }
        // `no action`, `greylist`, and those of the site.
        _ => Verdict::Accept,
    };
    Ok(Judged { verdict, edits, body: None })
}

/// The names of the fields that the filter was shown.
pub(crate) struct Header<'a>(pub(crate) &'a [Vec<u8>]);

impl Header<'_> {
    /// Removes a field by its number from 1, from the end by a negative one, or all by 0.
    pub(crate) fn remove(&self, name: &str, which: i64, edits: &mut Vec<Edit>) -> Result<(), &'static str> {
        let count = self.0.iter().filter(|known| known.eq_ignore_ascii_case(name.as_bytes())).count();
        let count = i64::try_from(count).unwrap_or(0);
        let numbers: Vec<i64> = match which {
            0 => (1..=count).rev().collect(),
            1.. => vec![which],
            _ if which >= -count => vec![count + which + 1],
            _ => Vec::new(),
        };
        for number in numbers.into_iter().filter(|_| count > 0) {
            edits.push(Edit::changing(u32::try_from(number).unwrap_or(u32::MAX), name, None)?);
        }
        Ok(())
    }

    fn add(&self, name: &str, added: &Added) -> Result<Option<Edit>, &'static str> {
        let (value, order) = match added {
            Added::Text(value) | Added::Placed { value, order: None } => {
                return Edit::adding(name, value).map(Some);
            }
            Added::Placed { value, order: Some(order) } => (value, *order),
            Added::Other(_) => return Ok(None),
        };
        let count = i64::try_from(self.0.len()).unwrap_or(0);
        let above = if order >= 0 { order } else { (count + order + 1).max(0) };
        Edit::inserting(u32::try_from(above).unwrap_or(u32::MAX), name, value).map(Some)
    }
}

#[derive(Deserialize)]
struct Answer {
    error: Option<String>,
    action: Option<String>,
    subject: Option<String>,
    #[serde(default)]
    messages: Pairs<Value>,
    #[serde(default)]
    milter: Milter,
    #[serde(default, rename = "dkim-signature")]
    dkim_signature: OneOrMore<Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Milter {
    remove_headers: Pairs<Value>,
    add_headers: Pairs<OneOrMore<Added>>,
    change_from: Option<String>,
    #[serde(deserialize_with = "texts")]
    add_rcpt: Vec<String>,
    #[serde(deserialize_with = "texts")]
    del_rcpt: Vec<String>,
    reject: Option<String>,
    no_action: bool,
    spam_header: Option<Marks>,
}

/// A value of which one kind means something at its place; the others are passed over, as rspamd does.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(i64),
    Text(String),
    Other(IgnoredAny),
}

/// A header field to add.
#[derive(Deserialize)]
#[serde(untagged)]
enum Added {
    Text(String),
    Placed {
        value: String,
        #[serde(alias = "index")]
        order: Option<i64>,
    },
    Other(IgnoredAny),
}

/// What marks spam: the value of the usual field, or fields.
#[derive(Deserialize)]
#[serde(untagged)]
enum Marks {
    Text(String),
    Fields(Pairs<String>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    More(Vec<T>),
    One(T),
}

impl<T> OneOrMore<T> {
    fn all(&self) -> &[T] {
        match self {
            Self::More(all) => all,
            Self::One(one) => std::slice::from_ref(one),
        }
    }
}

impl<T> Default for OneOrMore<T> {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let all = OneOrMore::<Value>::deserialize(from)?;
    let OneOrMore::More(all) = all else { return Ok(Vec::new()) };
    Ok(all
        .into_iter()
        .filter_map(|one| if let Value::Text(text) = one { Some(text) } else { None })
        .collect())
}

/// The members of an object in their order, which is that of the fields. An empty table of Lua may be an array.
struct Pairs<T>(Vec<(String, T)>);

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Pairs<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Pairs<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(member) = members.next_entry()? {
                    all.push(member);
                }
                Ok(Pairs(all))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Pairs<T>, A::Error> {
                while elements.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Pairs::default())
            }
        }

        from.deserialize_any(Entries(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that were shown: two `X`, then `Subject`.
    fn judged(answer: &str) -> Result<Judged, String> {
        read_answer(answer.as_bytes(), &[b"X".to_vec(), b"x".to_vec(), b"Subject".to_vec()])
    }

    fn edits(answer: &str) -> Vec<Edit> {
        judged(answer).unwrap().edits
    }

    fn reply(answer: &str) -> String {
        match judged(answer).unwrap().verdict {
            Verdict::Reply(reply) => reply.to_string(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn actions_are_what_they_are_to_rspamds_milter() {
        for (action, expected) in [
            ("no action", "Accept"),
            ("greylist", "Accept"),
            ("reject", "554 5.7.1 Spam message rejected"),
            ("soft reject", "451 4.7.1 Try again later"),
            ("discard", "Discard"),
            ("quarantine", "Accept"),
            ("of the site", "Accept"),
        ] {
            assert_eq!(reply(&format!("{{\"action\": \"{action}\"}}")).trim_end(), expected, "{action}");
        }
        let said = "{\"action\": \"reject\", \"messages\": {\"smtp_message\": \"100% spam\\r\\n250 ok\"}}";
        assert_eq!(reply(said).trim_end(), "554 5.7.1 100% spam  250 ok");
        for (how, expected) in
            [("discard", "Discard"), ("quarantine", "Accept"), ("", "554 5.7.1 Spam message rejected")]
        {
            let answer = format!("{{\"action\": \"reject\", \"milter\": {{\"reject\": \"{how}\"}}}}");
            assert_eq!(reply(&answer).trim_end(), expected);
        }
        assert_eq!(edits("{\"action\": \"quarantine\"}"), [Edit::holding(QUARANTINED)]);
    }

    #[test]
    fn spam_is_marked_and_earlier_marks_go() {
        let marked = edits("{\"action\": \"add header\"}");
        assert_eq!(marked, [Edit::changing(1, "X-Spam", Some("Yes")).unwrap()]);
        let own = edits("{\"action\": \"add header\", \"milter\": {\"spam_header\": {\"X\": \"very\"}}}");
        let gone = |number| Edit::changing(number, "X", None).unwrap();
        assert_eq!(own, [gone(2), gone(1), Edit::changing(1, "X", Some("very")).unwrap()]);
        let subject = edits("{\"action\": \"rewrite subject\", \"subject\": \"*** SPAM *** hello\"}");
        assert_eq!(subject, [Edit::changing(1, "Subject", Some("*** SPAM *** hello")).unwrap()]);
        let none = edits("{\"action\": \"reject\", \"milter\": {\"no_action\": true}}");
        assert_eq!(none, [Edit::adding("X-Rspamd-Action", "reject").unwrap()]);
    }

    #[test]
    fn fields_come_in_the_order_of_the_answer_and_at_their_places() {
        let answer = r#"{"action": "no action", "score": 0.1, "symbols": {"A": {"score": 0}}, "messages": [],
            "milter": {
                "remove_headers": {"x": 0, "Subject": -1, "X": -3, "None": 1, "Y": "all"},
                "add_headers": {
                    "Z": "1", "A": ["2", {"value": "3"}, 4],
                    "T": {"value": "top", "order": 0}, "U": {"value": "u", "order": -1}, "V": {"value": "v", "index": -9}
                },
                "change_from": "<a@b.test>", "add_rcpt": ["c@d.test"], "del_rcpt": []
            },
            "dkim-signature": ["one", "two"]}"#;
        let gone = |number, name| Edit::changing(number, name, None).unwrap();
        let added = |name, value| Edit::adding(name, value).unwrap();
        let placed = |at, name, value| Edit::inserting(at, name, value).unwrap();
        let expected = [
            gone(2, "x"),
            gone(1, "x"),
            gone(1, "Subject"),
            added("Z", "1"),
            added("A", "2"),
            added("A", "3"),
            placed(0, "T", "top"),
            placed(3, "U", "u"),
            placed(0, "V", "v"),
            Edit::from("a@b.test").unwrap(),
            Edit::to("c@d.test").unwrap(),
            placed(1, "DKIM-Signature", "one"),
            placed(2, "DKIM-Signature", "two"),
        ];
        assert_eq!(edits(answer), expected);
        let one = edits(
            "{\"action\": \"no action\", \"dkim-signature\": \"one\", \"milter\": {\"add_headers\": []}}",
        );
        assert_eq!(one, [placed(1, "DKIM-Signature", "one")]);
    }

    #[test]
    fn what_is_no_answer_is_told() {
        for (answer, expected) in [
            ("<html>", "the answer is not one of rspamd"),
            ("{}", "no action"),
            ("{\"error\": \"invalid command\"}", "it answers: invalid command"),
            ("{\"action\": \"no action\", \"milter\": {\"add_headers\": {\"a b\": \"c\"}}}", "a field name"),
            (
                "{\"action\": \"no action\", \"milter\": {\"add_headers\": {\"a\": \"c\\nX: 1\"}}}",
                "a line break",
            ),
            ("{\"action\": \"no action\", \"milter\": {\"add_rcpt\": [\"\"]}}", "empty recipient"),
        ] {
            let told = judged(answer).unwrap_err();
            assert!(told.contains(expected), "{answer}: {told}");
        }
    }

    #[test]
    fn the_request_names_what_is_known() {
        let known = Transaction {
            id: "1".to_owned(),
            listener: "mx".to_owned(),
            client: Some("192.0.2.1".to_owned()),
            tls: Some(("TLSv1.3".to_owned(), "X".to_owned())),
            recipients: vec!["a@b.test".to_owned(), "c@d.test".to_owned()],
            ..Transaction::default()
        };
        let lines: Vec<String> =
            header(&known).iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected = [
            "Queue-Id: 1",
            "IP: 192.0.2.1",
            "TLS-Version: TLSv1.3",
            "TLS-Cipher: X",
            "MTA-Name: mx",
            "From: <>",
            "Rcpt: <a@b.test>",
            "Rcpt: <c@d.test>",
            "Milter: Yes",
        ];
        assert_eq!(lines, expected);
    }
}
