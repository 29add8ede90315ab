//! What to do about replies by which large providers refuse mail of those who send much.

/// A code of RFC 3463, RFC 7372 or a provider, and what to do. Of the class, 4 or 5, only those digits count that stand here.
const BY_CODE: [(&str, &str); 13] = [
    (
        "7.26",
        "the provider could not authenticate the message: `postrider check` of the sender's domain says what is missing",
    ),
    ("7.20", SIGN),
    ("7.21", SIGN),
    ("7.22", "sign as the domain in From: a [[sign]] section for it without `domain`"),
    ("7.30", SIGN),
    ("7.23", SPF),
    ("7.24", SPF),
    (
        "7.25",
        "the address that sends has no name that leads back to it: ask your provider for a reverse name; `postrider doctor` shows it",
    ),
    (
        "7.28",
        "too much mail from this address or domain in a short time: send slower (`max_connections` and a [[route]] for the provider) \
         and only to those who asked for it",
    ),
    ("7.29", "the provider takes mail over TLS only: remove `tls = \"off\"` from its [[route]]"),
    (
        "7.32",
        "From is not aligned with SPF or DKIM: sign as its domain, or send with a reverse-path of that domain",
    ),
    ("7.40", DMARC),
    (
        "7.515",
        "the provider wants SPF, DKIM and DMARC of those who send much: `postrider check` of the sender's domain says what is missing",
    ),
];

const SIGN: &str =
    "the provider wants a valid DKIM signature: `postrider check` of the sender's domain shows the key";
const SPF: &str = "SPF does not permit the address that sends: `postrider check` of the sender's domain has the record to write";
const DMARC: &str = "the domain has no DMARC record: `postrider check` has the one to write";

/// Words of a reply, and what to do.
const BY_WORD: [(&str, &str); 6] = [
    // 5.7.27 is Gmail's code for it, and that of a null MX in RFC 7505.
    ("SPF authentication", SPF),
    ("spamhaus", LISTED),
    ("block list", LISTED),
    ("blocklist", LISTED),
    ("blacklist", LISTED),
    (
        "[TSS",
        "Yahoo defers what its users complain of: send slower, only to those who asked for it, and look at its complaint feedback",
    ),
];

const LISTED: &str = "the address that sends is on a block list: find out what was sent from it, stop that, and ask the list to remove it";

/// Returns what to do about a reply of a next hop; none where the reply says all.
pub(super) fn advice(reply: &str) -> Option<&'static str> {
    let codes = reply.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|word| {
        let word = word.trim_end_matches('.');
        word.strip_prefix("4.").or_else(|| word.strip_prefix("5."))
    });
    let by_code = codes.filter_map(|code| BY_CODE.iter().find(|(known, _)| *known == code)).next();
    let has = |word: &str| reply.to_ascii_lowercase().contains(&word.to_ascii_lowercase());
    by_code.or_else(|| BY_WORD.iter().find(|(word, _)| has(word))).map(|(_, advice)| *advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_large_providers_are_explained_and_others_are_not() {
        let gmail = "failed 5.7.26: mx.example.com[192.0.2.1] said: 550-5.7.26 Your email has been blocked because the \
                     sender is unauthenticated. Gmail requires all senders to authenticate with either SPF or DKIM.";
        assert!(advice(gmail).unwrap().contains("postrider check"));
        let slow = "deferred 4.7.28: gmail-smtp-in.example.com said: 421-4.7.28 Gmail has detected an unusual rate of mail";
        assert!(advice(slow).unwrap().contains("send slower"));
        let microsoft = "550 5.7.515 Access denied, sending domain A.TEST does not meet the required authentication level.";
        assert!(advice(microsoft).unwrap().contains("DMARC"));
        assert!(
            advice("421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred")
                .unwrap()
                .contains("Yahoo")
        );
        assert!(
            advice("554 5.7.1 Service unavailable; blocked using zen.spamhaus.org")
                .unwrap()
                .contains("block list")
        );
        for other in [
            "550 5.1.1 no such user",
            "delivered 2.0.0: 250 ok 15.7.26",
            "connection refused",
            "550 5.7.27 Sender address has null MX",
            "",
        ] {
            assert_eq!(advice(other), None, "{other}");
        }
    }
}
