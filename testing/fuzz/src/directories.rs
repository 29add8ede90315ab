//! Files of queue directories, which anybody who may write there may have written.

/// The first words of lines and what may stand behind them: random bytes hardly ever spell one.
const WORDS: &[&str] = &[
    "postrider-message 1 0000000000001\n",
    "postrider-intent 1 0000000000000001\n",
    "arrived 99\n",
    "origin text=x\n",
    "from path=a@b body=7bit",
    "from path= body=binary smtputf8 ret=full envid=%25",
    "to path=c@d",
    "to path=postmaster notify=success,explicit orcpt=rfc822;x",
    "options login=a auth=b@c priority=-3 colour=red\n",
    "require tls by=99,return,trace release=7\n",
    "to path=c@d original=l@b through=m@b\n",
    "facts dot-line 8bit\n",
    "content 6 00000000\n",
    "chunk 6 00000000 0000000000000007\n",
    "accepted\n",
    "outcome @0 #1 5",
    "outcome @400 #2 5",
    " 0:delivered:remote:2.0.0:",
    " 1:deferred:local:4.2.1:full%20up",
    "hold @0 #1\n",
    "release @300 #3\n",
    "past @0 #1 0 open 2 99 0:deferred:local:4.0.0:x\n",
    "finish 0000000000009\n",
    "append 0000000000009 10 bytes=x%0A\n",
    "remove 0000000000009\n",
    "whole 0\n",
    "whole 2\n",
    "\n",
    " ",
    "%",
    "=",
    "@",
];

fn spell(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for b in bytes {
        match WORDS.get(usize::from(*b) % (WORDS.len() + 4)) {
            Some(word) => out.extend_from_slice(word.as_bytes()),
            None => out.push(*b),
        }
    }
    out
}

/// A whole envelope, so that what is appended is reached.
const ENVELOPE: &str = "postrider-message 1 0000000000001\narrived 99\norigin text=x\nfrom path=a@b body=7bit\n\
                        to path=c@d\nto path=e@f\nfacts\ncontent 6 00000000\naccepted\n";

/// Reads bytes as an envelope file.
pub fn spool_envelope(bytes: &[u8]) {
    let spelt = spell(bytes);
    for file in [bytes, &spelt, &[ENVELOPE.as_bytes(), &spelt].concat()] {
        spool::fuzz::directory_envelope(file);
    }
}

/// The totals: bytes as they are, and numbers behind the first words.
pub fn spool_totals(bytes: &[u8]) {
    spool::fuzz::directory_totals(&String::from_utf8_lossy(bytes));
    let numbers: String =
        bytes.chunks(3).map(|some| format!(" {}", u32::from(some[0]) << some.len())).collect();
    spool::fuzz::directory_totals(&format!("postrider-totals 1{numbers}"));
}

/// Reads bytes as an intent.
pub fn spool_intent(bytes: &[u8]) {
    let spelt = spell(bytes);
    for file in [bytes, &spelt, &[b"postrider-intent 1 0000000000000001\n", &spelt[..]].concat()] {
        spool::fuzz::directory_intent(file);
    }
}
