//! Kinds of values that only rules have.

pub(crate) use super::compile::ReadCondition;
use super::compile::condition;
use crate::{
    choice::{choice, words},
    domain::DomainPattern,
    json_schema::Schema,
    value::{Context, Found, Value, text, text_value, this_is},
};
use limits::Rate;
use mail::Field;
use policy::{
    AddressPattern, Audience, CertificatePattern, DnsList, HeaderPattern, Per, ReplyClass, ReplyText, Stage,
};
use std::net::IpAddr;

words! {
    Stage: "one of \"connect\", \"hello\", \"mail\", \"rcpt\" and \"content\"" {
        Connect = "connect",
        Hello = "hello",
        Mail = "mail",
        Rcpt = "rcpt",
        Content = "content",
    }, |stage| stage.as_str()
}

words! {
    Audience: "one of \"untrusted\", \"users\" and \"all\"" {
        Untrusted = "untrusted",
        Users = "users",
        All = "all",
    }
}

words! {
    Per: "one of \"client\", \"login\", \"sender\", \"sender-domain\" and \"recipient-domain\"" {
        Client = "client",
        Login = "login",
        Sender = "sender",
        SenderDomain = "sender-domain",
        RecipientDomain = "recipient-domain",
    }
}

/// A score that a rule asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeastScore(pub(crate) i32);

impl Value for LeastScore {
    const HINT: &'static str = "a number without quotes, from 1 to 1000";

    fn kind() -> String {
        Score::kind()
    }

    fn schema() -> Schema {
        Schema::Number
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        let Score(least) = Score::read(found, cx)?;
        if least < 1 {
            cx.wrong::<Self>(found, "holds for all mail", None);
        }
        (least > 0).then_some(Self(least))
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(self.0.into())
    }
}

/// A part of a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Score(pub(crate) i32);

/// The highest one that a rule gives or asks for.
const SCORE_MAX: i32 = 1000;

impl Value for Score {
    const HINT: &'static str = "a number without quotes, from -1000 to 1000";

    fn kind() -> String {
        "a whole number".to_owned()
    }

    fn schema() -> Schema {
        Schema::Integer
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        if !found.get_ref().is_integer() {
            cx.wrong::<Self>(found, this_is(found), None);
            return None;
        }
        let value = found
            .get_ref()
            .as_integer()
            .and_then(|number| i32::from_str_radix(number.as_str(), number.radix()).ok());
        let value = value.filter(|value| value.abs() <= SCORE_MAX);
        if value.is_none() {
            cx.wrong::<Self>(found, "out of range", None);
        }
        value.map(Self)
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(self.0.into())
    }
}

choice! {
    /// The use of a check.
    CheckMode: "one of \"off\", \"tag\" and \"enforce\"" {
        /// Not made.
        Off = "off",
        /// Sets a tag.
        Tag = "tag",
        /// Rejects.
        Enforce = "enforce",
    }
}

choice! {
    /// Whose mail has to come again.
    GreylistMode: "one of \"off\", \"suspects\" and \"all\"" {
        /// Nobody's.
        Off = "off",
        /// That of clients without SPF or without a name.
        Suspects = "suspects",
        /// That of all clients that are not trusted.
        All = "all",
    }
}

choice! {
    /// The verdict where a policy server does not answer.
    OnFailure: "one of \"defer\" and \"pass\"" {
        /// A temporary error.
        Defer = "defer",
        /// None.
        Pass = "pass",
    }
}

text_value!(
    Rate,
    "a rate",
    "\"500/h\", \"3000/min\", \"100/10min\" or \"1GiB/d\"",
    |t, _| Rate::parse(t).ok_or_else(|| {
        let is_zero = t.trim_start().starts_with('0');
        (if is_zero { "a rate is at least 1" } else { "not a rate" }.to_owned(), None)
    }),
    Rate::to_string
);

text_value!(
    AddressPattern,
    "an address pattern",
    "\"user@example.com\", \"user@*\", \"example.com\", \"*.example.com\", \"*\" or \"<>\"",
    |t, _| AddressPattern::parse(t).map_err(|help| ("not such a pattern".to_owned(), Some(help))),
    AddressPattern::to_string
);

text_value!(
    DnsList,
    "a list in DNS",
    "\"zen.example.org\", \"zen.example.org=127.0.0.2\" or \"zen.example.org=127.0.0.2-11\"",
    |t, _| DnsList::parse(t).map_err(|why| (why, None)),
    DnsList::to_string
);

text_value!(
    CertificatePattern,
    "a certificate pattern",
    "\"*\", \"none\", \"sha256:FINGERPRINT\", \"jane@example.com\", \"*.example.com\" or \"cn:NAME\"",
    |t, _| CertificatePattern::parse(t).map_err(|help| ("not such a pattern".to_owned(), Some(help))),
    CertificatePattern::to_string
);

text_value!(
    HeaderPattern,
    "a header pattern",
    "\"X-Spam-Flag\" or \"Subject: /lottery/\"",
    |t, _| HeaderPattern::parse(t).map_err(|why| ("not such a pattern".to_owned(), Some(why))),
    HeaderPattern::to_string
);

/// A pattern of the client's verified name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientNamePattern {
    None,
    Name(DomainPattern),
}

text_value!(
    ClientNamePattern,
    "a name pattern",
    "\"mail.example.com\", \"*.example.com\", \"*\", or \"none\" for clients without a name",
    |t, _| match t {
        "none" => Ok(ClientNamePattern::None),
        t if t.parse::<IpAddr>().is_ok() => {
            let help = format!("write client = [\"{t}\"], which is for addresses");
            Err(("an address, and not a name".to_owned(), Some(help)))
        }
        t => DomainPattern::parse(t)
            .map(ClientNamePattern::Name)
            .map_err(|help| ("not such a pattern".to_owned(), Some(help))),
    },
    |name| match name {
        ClientNamePattern::None => "none".to_owned(),
        ClientNamePattern::Name(pattern) => pattern.to_string(),
    }
);

/// A login in lower case, or `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginName(pub(crate) Box<str>);

text_value!(
    LoginName,
    "a login",
    "a login such as \"jane\", or \"*\" for all",
    |t, _| if t.is_empty() || t.contains(char::is_control) {
        Err(("not a login".to_owned(), None))
    } else if t != "*" && t.contains('*') {
        let help = "write the whole login, \"*\" for all, or a map such as \"regex:FILE\" with a line `/@example\\.com$/ x`";
        Err(("there are no patterns of logins".to_owned(), Some(help.to_owned())))
    } else {
        Ok(LoginName(t.to_lowercase().into()))
    },
    |login| login.0.to_string()
);

/// Fields that are added to a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) Vec<AddedField>);

/// A field, and how it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddedField {
    pub(crate) field: Field,
    shown: String,
}

text_value!(
    AddedField,
    "a header field",
    "a field such as \"X-Checked: yes\"",
    |t, _| {
        let (name, value) = t.split_once(':').ok_or_else(|| ("without a colon".to_owned(), None))?;
        let field = Field::new(name.trim(), value.trim()).map_err(|why| (why.to_string(), None))?;
        Ok(AddedField { field, shown: t.to_owned() })
    },
    |field| field.shown.clone()
);

impl Value for Fields {
    const HINT: &'static str = "a list in square brackets";

    fn kind() -> String {
        Vec::<AddedField>::kind()
    }

    fn schema() -> Schema {
        Vec::<AddedField>::schema()
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        Vec::read(found, cx).map(Self)
    }

    fn to_toml(&self) -> Option<toml::Value> {
        self.0.to_toml()
    }
}

/// `true`, or a text.
fn true_or<T: Value>(
    found: &Found<'_>,
    cx: &mut Context,
    usual: impl FnOnce() -> T,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    match found.get_ref().as_bool() {
        Some(true) => Some(usual()),
        Some(false) => {
            cx.wrong::<T>(found, "this is false", Some("leave the key out".to_owned()));
            None
        }
        None if found.get_ref().is_str() => text(found, cx, |t, _| {
            parse(t).map_err(|help| ("not a text of this form".to_owned(), Some(help)))
        }),
        None => {
            cx.wrong::<T>(found, this_is(found), None);
            None
        }
    }
}

/// Defines a verdict with a reply of one class.
macro_rules! verb {
    ($(#[doc = $doc:literal])+ $name:ident: $class:ident not $other:ident in $key:literal, $usual:literal, $kind:literal, $hint:literal) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) ReplyText);

        impl Value for $name {
            const HINT: &'static str = $hint;

            fn kind() -> String {
                $kind.to_owned()
            }

            fn schema() -> Schema {
                Schema::AnyOf(vec![Schema::True, Schema::Text])
            }

            fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
                let is_verb = !cx.key.ends_with(".reply");
                let parse = |text: &str| {
                    // A reply of the other kind has a key of its own.
                    let is_other = is_verb && ReplyText::parse(text, ReplyClass::$other).is_ok();
                    let of_other = |usual| {
                        if is_other { format!("write `{} = {text:?}`", $key) } else { usual }
                    };
                    ReplyText::parse(text, ReplyClass::$class).map($name).map_err(of_other)
                };
                true_or(found, cx, || parse($usual).expect("the usual reply is one"), parse)
            }

            fn to_toml(&self) -> Option<toml::Value> {
                Some(self.0.to_string().into())
            }
        }
    };
}

verb! {
    /// A 5yz.
    RejectVerb: Permanent not Transient in "defer", "550 5.7.1 Rejected by a rule of this server", "true or a reply that rejects",
    "true or a reply such as \"550 5.7.1 {from} is not welcome here\""
}

verb! {
    /// A 4yz.
    DeferVerb: Transient not Permanent in "reject", "450 4.7.1 Try again later", "true or a reply with a temporary error",
    "true or a reply such as \"450 4.7.1 Try again later\""
}

/// A reason for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason(pub(crate) Box<str>);

impl Value for Reason {
    const HINT: &'static str = "true or a reason for the log";

    fn kind() -> String {
        "true or a text".to_owned()
    }

    fn schema() -> Schema {
        Schema::AnyOf(vec![Schema::True, Schema::Text])
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        let is_text = |text: &str| !text.is_empty() && text.len() <= 400 && !text.contains(char::is_control);
        true_or(
            found,
            cx,
            || Self("".into()),
            |text| if is_text(text) { Ok(Self(text.into())) } else { Err(format!("write {}", Self::HINT)) },
        )
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(if self.0.is_empty() { true.into() } else { self.0.to_string().into() })
    }
}

/// Conditions of which none may hold, as they were read.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Unless {
    pub(crate) conditions: Vec<ReadCondition>,
    shown: toml::Table,
}

// It has no fractions.
impl Eq for Unless {}

impl Value for Unless {
    const HINT: &'static str = "{ client = [\"192.0.2.0/24\"] }";

    fn kind() -> String {
        "conditions in braces".to_owned()
    }

    fn schema() -> Schema {
        Schema::AnyTable
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        let Some(table) = found.get_ref().as_table() else {
            cx.wrong::<Self>(found, this_is(found), None);
            return None;
        };
        if table.is_empty() {
            cx.wrong::<Self>(
                found,
                "no condition",
                Some("write a condition, or leave `unless` out".to_owned()),
            );
            return None;
        }
        let of = cx.key.clone();
        let mut unless = Self::default();
        for (name, value) in table {
            cx.key = format!("{of}.{}", name.get_ref());
            if let Some((condition, shown)) = condition(name, value, cx) {
                unless.conditions.push(condition);
                unless.shown.insert(name.get_ref().to_string(), shown);
            }
        }
        cx.key = of;
        Some(unless)
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(toml::Value::Table(self.shown.clone()))
    }
}
