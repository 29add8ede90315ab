//! Values that are one of a few words.

use super::value::{Context, Found, Value, text, text_value};
use delivery::EightBit;
use history::Addresses;
use inbound::{ClientCertificates, ListenTls};
use mail::{ListenerKind, TlsMode};
use queue::SortOrder;
use smtp::{LoosePaths, server::BareLf};
use spool::Placement;

/// An enum whose values are words.
macro_rules! choice {
    ($(#[doc = $doc:literal])+ $name:ident: $hint:literal { $($(#[doc = $vdoc:literal])+ $variant:ident = $word:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[doc = $vdoc])+ $variant,)+ }

        impl $name {
            /// Returns the word that is written in the file.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        words! { $name: $hint { $($variant = $word,)+ }, Self::as_str }
    };
}

/// The words of an enum of another crate.
macro_rules! words {
    ($name:ident: $hint:literal { $($variant:ident = $word:literal,)+ }) => {
        words! { $name: $hint { $($variant = $word,)+ }, |v| match v { $($name::$variant => $word,)+ } }
    };
    // With the function that returns the word of a value.
    ($name:ident: $hint:literal { $($variant:ident = $word:literal,)+ }, $as_str:expr) => {
        text_value!(
            $name,
            $hint,
            $hint,
            |t, _| match t {
                $($word => Ok($name::$variant),)+
                _ => Err((format!("no such choice{}", $crate::choice::nearest(t, &[$($word),+])), None)),
            },
            |v| {
                let as_str: fn($name) -> &'static str = $as_str;
                as_str(*v).to_owned()
            },
            $crate::json_schema::Schema::OneOf(&[$($word),+])
        );
    };
}

pub(crate) use {choice, words};

/// Words that have a new name, and that name.
const FORMER_WORDS: &[(&str, &str)] = &[("directories", "queue-dirs"), ("fewest", "least-used")];

/// Words of other mail servers, and ours.
const OTHER_WORDS: &[(&str, &str)] = &[("smtp", "mx"), ("smtpd", "mx"), ("smtps", "submissions")];

/// `: did you mean "may"?`, when one of the words is near; the new name of a former word.
pub(crate) fn nearest(given: &str, words: &[&str]) -> String {
    let new = FORMER_WORDS.iter().find(|(former, new)| *former == given && words.contains(new));
    if let Some((former, new)) = new {
        return format!(": \"{former}\" has a new name: write \"{new}\"");
    }
    let ours = OTHER_WORDS.iter().find(|(other, ours)| *other == given && words.contains(ours));
    // Of two numbers that look alike, none is meant by the other.
    let is_number = !given.contains(|c: char| c.is_ascii_alphabetic());
    let near = || did_you_mean(given, words.iter().copied()).filter(|_| !is_number);
    ours.map(|(_, ours)| *ours)
        .or_else(near)
        .map_or(String::new(), |word| format!(": did you mean \"{word}\"?"))
}

/// The word that was most likely meant.
pub fn did_you_mean<'w>(given: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let given = given.to_ascii_lowercase();
    let scored = words.into_iter().map(|word| (strsim::jaro_winkler(&given, word), word));
    scored.filter(|(score, _)| *score > 0.8).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, word)| word)
}

words! {
    ListenTls: "one of \"off\", \"starttls\", \"required\" and \"implicit\"" {
        Off = "off",
        StartTls = "starttls",
        Required = "required",
        Implicit = "implicit",
    }
}

words! {
    ListenerKind: "one of \"mx\", \"relay\", \"submission\", \"submissions\" and \"lmtp\"" {
        Mx = "mx",
        Relay = "relay",
        Submission = "submission",
        Submissions = "submissions",
        Lmtp = "lmtp",
    }
}

words! {
    ClientCertificates: "one of \"off\", \"ask\" and \"require\"" {
        Off = "off",
        Ask = "ask",
        Require = "require",
    }
}

choice! {
    /// A SASL mechanism that listeners can offer.
    SaslMechanism: "one of \"plain\", \"login\", \"scram-sha-256\", \"scram-sha-256-plus\", \"scram-sha-1\", \"scram-sha-1-plus\", \"external\", \"oauthbearer\" and \"xoauth2\"" {
        /// RFC 7677, bound to the TLS connection.
        ScramSha256Plus = "scram-sha-256-plus",
        /// RFC 7677.
        ScramSha256 = "scram-sha-256",
        /// RFC 5802, bound to the TLS connection.
        ScramSha1Plus = "scram-sha-1-plus",
        /// RFC 5802.
        ScramSha1 = "scram-sha-1",
        /// The client's certificate (RFC 4422, appendix A).
        External = "external",
        /// RFC 7628.
        OauthBearer = "oauthbearer",
        /// Google's form of the same.
        Xoauth2 = "xoauth2",
        /// RFC 4616.
        Plain = "plain",
        /// The name and the password as two responses.
        Login = "login",
    }
}

choice! {
    /// The clients that may use a command.
    ForClients: "one of \"nobody\", \"trusted\" and \"everybody\"" {
        /// None.
        Nobody = "nobody",
        /// Clients in `relay.networks`, and logins.
        Trusted = "trusted",
        /// All.
        Everybody = "everybody",
    }
}

words! {
    LoosePaths: "one of \"nobody\", \"trusted\" and \"everybody\"" {
        Nobody = "nobody",
        Trusted = "trusted",
        Everybody = "everybody",
    }
}

words! {
    BareLf: "one of \"reject\" and \"normalize\"" {
        Reject = "reject",
        Normalize = "normalize",
    }
}

choice! {
    /// A keyword of EHLO's reply that a listener can withhold.
    EhloKeyword: "one of \"8bitmime\", \"binarymime\", \"chunking\", \"deliverby\", \"dsn\", \"futurerelease\", \"limits\", \"mt-priority\", \"pipelining\", \"requiretls\", \"size\" and \"smtputf8\"" {
        /// RFC 6152.
        EightBitMime = "8bitmime",
        /// RFC 3030.
        BinaryMime = "binarymime",
        /// RFC 3030.
        Chunking = "chunking",
        /// RFC 2852.
        DeliverBy = "deliverby",
        /// RFC 3461.
        Dsn = "dsn",
        /// RFC 4865.
        FutureRelease = "futurerelease",
        /// RFC 9422.
        Limits = "limits",
        /// RFC 6710.
        MtPriority = "mt-priority",
        /// RFC 2920.
        Pipelining = "pipelining",
        /// RFC 8689.
        RequireTls = "requiretls",
        /// RFC 1870.
        Size = "size",
        /// RFC 6531.
        SmtpUtf8 = "smtputf8",
    }
}

choice! {
    /// The use of TLS by a route.
    RouteTls: "one of \"off\", \"may\", \"require\", \"verify\" and \"implicit\"" {
        /// Mail is sent in clear text.
        Off = "off",
        /// STARTTLS, if the server offers it.
        May = "may",
        /// STARTTLS in any case.
        Require = "require",
        /// STARTTLS, and a trusted certificate.
        Verify = "verify",
        /// TLS from the first byte, and a trusted certificate.
        Implicit = "implicit",
    }
}

impl RouteTls {
    /// Returns what is required of connections.
    pub fn mode(self) -> TlsMode {
        match self {
            Self::Off => TlsMode::Off,
            Self::May => TlsMode::May,
            Self::Require => TlsMode::Require,
            Self::Verify | Self::Implicit => TlsMode::Verify,
        }
    }
}

words! {
    EightBit: "one of \"auto\", \"convert\", \"send\" and \"return\"" {
        Auto = "auto",
        Convert = "convert",
        Send = "send",
        Return = "return",
    }
}

choice! {
    /// The oldest TLS version that is spoken.
    TlsVersion: "one of \"1.2\" and \"1.3\"" {
        /// RFC 5246.
        V12 = "1.2",
        /// RFC 8446.
        V13 = "1.3",
    }
}

choice! {
    /// The format of the delivery log.
    LogFormat: "one of \"json\", \"postfix\", \"both\" and \"syslog\"" {
        /// One JSON object on each line.
        Json = "json",
        /// Lines as Postfix writes them, for existing tools.
        Postfix = "postfix",
        /// JSON in `file`, Postfix lines in `postfix_file`.
        Both = "both",
        /// Lines as Postfix writes them, for the system log only.
        Syslog = "syslog",
    }
}

choice! {
    /// The treatment of what the daemon's process may not do.
    SandboxMode: "one of \"enforce\", \"log\" and \"off\"" {
        /// A call that is not permitted fails.
        Enforce = "enforce",
        /// A call that is not permitted is recorded.
        Log = "log",
        /// Everything is permitted that the user of the process may do.
        Off = "off",
    }
}

choice! {
    /// The backend that stores messages.
    Backend: "one of \"log\", \"queue-dirs\" and \"null\"" {
        /// The log of segments.
        Log = "log",
        /// Queue directories with files for every message.
        QueueDirs = "queue-dirs",
        /// Keeps nothing: for the laboratory, and only in its builds.
        Null = "null",
    }
}

choice! {
    /// The time at which mail of a route is acknowledged.
    RouteDurability: "one of \"durable\" and \"deliver-first\"" {
        /// When it is synced.
        Durable = "durable",
        /// When the next hop has it, or when it is synced.
        DeliverFirst = "deliver-first",
    }
}

choice! {
    /// The time at which a message is acknowledged, by what a crash can lose.
    Durability: "one of \"durable\", \"after-checks\", \"deliver-first\" and \"none\"" {
        /// When it is synced.
        Durable = "durable",
        /// When it is synced, too: checks come first anyway.
        AfterChecks = "after-checks",
        /// When the next hop has it, or when it is synced.
        DeliverFirst = "deliver-first",
        /// Before it is written: a crash loses acknowledged mail.
        None = "none",
    }
}

words! {
    Addresses: "one of \"full\", \"domain\" and \"hashed\"" {
        Full = "full",
        Domain = "domain",
        Hashed = "hashed",
    }
}

words! {
    SortOrder: "one of \"fair\", \"none\", \"priority\", \"filename\", \"host\", \"modification\", \"random\", \"time\", \"deadline\" and \"smallest\"" {
        Fair = "fair",
        None = "none",
        Priority = "priority",
        Filename = "filename",
        Host = "host",
        Modification = "modification",
        Random = "random",
        Time = "time",
        Deadline = "deadline",
        Smallest = "smallest",
    }
}

words! {
    Placement: "one of \"round-robin\", \"random\" and \"least-used\"" {
        RoundRobin = "round-robin",
        Random = "random",
        LeastUsed = "least-used",
    }
}
