//! The forms of paths in MAIL and RCPT that Postfix takes by default (`strict_rfc821_envelopes = no`), and those of a trusted client
//! here.

use crate::common::{Postrider, client::Client, postfix::Postfix};
use std::{collections::BTreeMap, net::SocketAddr};

/// What stands behind the colon. `A` is an address.
const FORMS: [&str; 33] = [
    "<A>",
    "A",
    "<<A>>",
    "<A",
    "A>",
    "<A>>",
    "<<A>",
    "< A>",
    "<A >",
    "< A >",
    "<A> ",
    "A ",
    "<>",
    "",
    "A SIZE=10",
    "<A> SIZE=10",
    "<A>SIZE=10",
    "<@far.test:A>",
    "@far.test:A",
    "<@far.test,@b.test:A>",
    "Joe <A>",
    "\"Joe\" <A>",
    "<A> <A>",
    "A A",
    "<A,A>",
    "<A> (Joe)",
    "A (Joe)",
    "(Joe) A",
    "<A (Joe)>",
    "'A'",
    "<'A'>",
    "<mailto:A>",
    "\"A\"",
];
const ADDRESSES: [&str; 3] = ["joe@mx.test", "\"j oe\"@mx.test", "joe"];
const BLANKS: [&str; 2] = ["", " "];

/// Returns the first digit of the reply to each line.
fn replies(address: SocketAddr) -> BTreeMap<String, u16> {
    let mut all = BTreeMap::new();
    let mut client = Client::connect(address).unwrap();
    for (verb, blank) in
        ["MAIL FROM:", "RCPT TO:"].into_iter().flat_map(|verb| BLANKS.map(|blank| (verb, blank)))
    {
        for form in FORMS {
            for path in ADDRESSES {
                let line = format!("{verb}{blank}{}", form.replace('A', path));
                if all.contains_key(&line) {
                    continue;
                }
                client.say("RSET").unwrap();
                if verb == "RCPT TO:" {
                    client.say("MAIL FROM:<joe@mx.test>").unwrap();
                }
                let code = client.say(&line).unwrap().0;
                all.insert(line, code / 100);
            }
        }
        // Both count errors and commands without mail.
        client = Client::connect(address).unwrap();
    }
    all
}

#[test]
fn a_trusted_client_writes_paths_as_it_may_to_postfix_but_for_what_the_document_explains() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let more = "myhostname = mx.test\nmydestination = mx.test, localhost\nmynetworks = 127.0.0.0/8\nalias_maps =\nsmtpd_error_sleep_time = 0\nsmtpd_hard_error_limit = 100000\nsmtpd_junk_command_limit = 100000\nlocal_recipient_maps =\n";
    let Some(postfix) = Postfix::start(dir.path(), more, "", &[]) else {
        return;
    };
    let daemon = Postrider::start(
        "[local]\ndomains = [\"mx.test\", \"localhost\"]\n[limits]\nmax_errors = 100000\nmax_rejected_recipients = 100000\nmax_junk_commands = 100000\n",
    );
    let (theirs, ours) = (replies(postfix.address), replies(daemon.address));
    // A name without a domain, which Postfix completes, comments, and `mailto:`, which it takes for a source route.
    let explained = |line: &str| {
        line.contains("(Joe)")
            || line.contains("mailto:")
            || !line.contains("@mx.test")
            || line.contains(":\"joe@")
            || line.ends_with(" \"joe@mx.test\"")
    };
    let differ: Vec<_> = theirs.iter().filter(|(line, code)| ours[*line] != **code).collect();
    let wrong: Vec<_> = differ.iter().filter(|(line, code)| **code != 2 || !explained(line)).collect();
    assert!(wrong.is_empty() && theirs.len() > 350 && differ.len() < theirs.len() / 2, "{wrong:?}");
    // Strangers, and clients of a site that wants it so, are told how to write it.
    daemon.reconfigure("[local]\ndomains = [\"mx.test\"]\n[limits]\nloose_paths = \"nobody\"\n");
    daemon.ask(&["reload"]);
    let mut client = Client::connect(daemon.address).unwrap();
    let (code, text) = client.say("MAIL FROM:joe@mx.test").unwrap();
    assert!(code == 501 && text.ends_with("write MAIL FROM:<user@example.com>"), "{text}");
    client.say("MAIL FROM:<joe@mx.test>").unwrap();
    assert!(client.say("RCPT TO:joe@mx.test").unwrap().1.starts_with("501 5.1.3"));
}
