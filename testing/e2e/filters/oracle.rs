//! The same sessions with the same filter, by Debian's Postfix and by Postrider: replies, what the filter is told, and what arrives.

use super::{
    Planned,
    cases::{Case, Say, cases},
    compile,
};
use crate::common::{Postrider, client::Client, free_address, postfix::Postfix, sink::Sink, until};
use mail::header::ContentScanner;
use std::{collections::BTreeMap, fmt::Write as _, fs, net::SocketAddr, path::Path};

/// Both know the same addresses, add no missing fields, and convert nothing.
const MAIN: &str = "myhostname = mx.test\nmydestination =\nmynetworks = 127.0.0.0/8\nlocal_header_rewrite_clients =\n\
    smtp_dns_support_level = disabled\nsmtputf8_enable = yes\nmilter_protocol = 6\nmilter_default_action = tempfail\n\
    smtpd_peername_lookup = no\nvirtual_alias_domains = alias.test\nsmtpd_error_sleep_time = 0\nmessage_size_limit = 50000000\n\
    virtual_alias_maps = inline:{{one@alias.test=real@b.test},{two@alias.test=x@b.test,y@b.test}}\n";
const ALIASES: &str = "one@alias.test real@b.test\ntwo@alias.test x@b.test, y@b.test\n";

/// What is compared.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// One for each command.
    replies: Vec<String>,
    /// What the filter was told.
    told: Vec<String>,
    /// Messages at the next hop.
    arrived: Vec<String>,
    /// Messages that a filter has put on hold.
    held: usize,
}

/// Returns a reply as far as both servers should say the same: all of a refusal, and the first digit of the rest.
fn comparable(lines: &[String]) -> String {
    match lines[0].as_bytes()[0] {
        // Each has words of its own for what comes out of turn.
        b'5' if ["503", "554"].contains(&&lines[0][..3]) && lines[0][4..].starts_with("5.5.1") => {
            lines[0][..9].to_owned()
        }
        b'4' | b'5' => lines.join("|"),
        first => char::from(first).to_string(),
    }
}

fn talk(address: SocketAddr, session: &[Say]) -> Vec<String> {
    // This address has no name in /etc/hosts.
    let mut client = Client::begin_from("127.0.0.3", address).unwrap();
    let mut replies = Vec::new();
    let mut hear = |client: &mut Client| {
        let reply = client.lines().map_or_else(|_| "closed".to_owned(), |lines| comparable(&lines));
        replies.push(reply.clone());
        reply
    };
    if !hear(&mut client).starts_with('2') {
        return replies;
    }
    let mut last = String::new();
    for say in session {
        let said = match say {
            Say::Line(line) => client.write(format!("{line}\r\n").as_bytes()),
            Say::Content(_) if last != "3" => continue,
            Say::Content(content) => {
                let mut wire = Vec::with_capacity(content.len() + 5);
                for line in content.split_inclusive(|byte| *byte == b'\n') {
                    if line[0] == b'.' {
                        wire.push(b'.');
                    }
                    wire.extend_from_slice(line);
                }
                wire.extend_from_slice(b".\r\n");
                client.write(&wire)
            }
        };
        last = if said.is_ok() { hear(&mut client) } else { "closed".to_owned() };
        if last == "closed" {
            break;
        }
    }
    replies
}

/// Returns a message for people: its envelope, and its content with the trace fields of this server as one word.
fn arrived(sink: &Sink) -> Vec<String> {
    // One message may come in several transactions.
    let mut all: BTreeMap<(String, Vec<u8>), Vec<String>> = BTreeMap::new();
    for message in sink.take() {
        let content = without_trace(&message.content);
        all.entry((message.from, content)).or_default().extend(message.to);
    }
    let named = all.into_iter().map(|((from, content), mut to)| {
        to.sort();
        let text = if content.len() > 5000 {
            let sum = content
                .iter()
                .fold(0_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211));
            let begin = content[..400].escape_ascii();
            format!("{begin}… {} octets, {sum:x}", content.len())
        } else {
            content.escape_ascii().to_string()
        };
        format!("<{from}> to {to:?}: {text}")
    });
    named.collect()
}

pub(super) fn without_trace(content: &[u8]) -> Vec<u8> {
    let mut scanner = ContentScanner::default();
    scanner.scan(content);
    let (header, body) = content.split_at(scanner.final_header_bytes());
    let (mut out, mut is_trace) = (Vec::new(), false);
    for line in header.split_inclusive(|byte| *byte == b'\n') {
        let is_folded = matches!(line[0], b' ' | b'\t');
        if !is_folded {
            let text = String::from_utf8_lossy(line);
            is_trace = text.starts_with("Received: from client.test")
                || text.starts_with("Received: from second.test");
            if is_trace {
                out.extend_from_slice(b"TRACE\r\n");
            }
        }
        if !is_trace {
            out.extend_from_slice(line);
        }
    }
    out.extend_from_slice(body);
    out
}

/// Macros of the server itself; and the next hop, which Postrider chooses when the message is queued: until then, it is the domain.
const OWN_MACROS: [&str; 8] = [
    "v",
    "{daemon_name}",
    "{daemon_port}",
    "{client_port}",
    "{daemon_addr}",
    "{mail_host}",
    "{rcpt_host}",
    "{rcpt_mailer}",
];

/// What the filter noted, without the end of the connection, which nobody waits for.
fn told(filter: &Planned) -> Vec<String> {
    let is_meant = |line: &String| {
        let mut words = line.split('\t');
        match words.next() {
            Some("close") => false,
            Some("macro") => !words.nth(1).is_some_and(|name| OWN_MACROS.contains(&name)),
            _ => true,
        }
    };
    let mut told: Vec<String> = filter.notes().into_iter().filter(is_meant).collect();
    while told.last().is_some_and(|last| last == "abort") {
        told.pop();
    }
    told
}

/// Postfix with a filter and a next hop, to be compared with.
struct Theirs {
    postfix: Postfix,
    filter: Planned,
    hop: Sink,
    dir: tempfile::TempDir,
}

impl Theirs {
    fn start(program: &Path) -> Option<Self> {
        let (dir, hop) = (tempfile::tempdir().unwrap(), Sink::start());
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let filter = Planned::start(program, &dir.path().join("filter"));
        let main = format!(
            "{MAIN}relayhost = [127.0.0.1]:{}\nsmtpd_milters = unix:{}\n",
            hop.address.port(),
            filter.socket().display()
        );
        let files = dir.path().join("postfix");
        fs::create_dir(&files).unwrap();
        let postfix = Postfix::start(&files, &main, "", &[])?;
        Some(Self { postfix, filter, hop, dir })
    }

    fn run(&self, case: &Case) -> Seen {
        self.filter.plan(&case.plan);
        let before = self.held();
        let replies = talk(self.postfix.address, &case.session);
        self.postfix.wait_until_idle();
        let held = self.held() - before;
        Seen { replies, told: told(&self.filter), arrived: arrived(&self.hop), held }
    }

    fn held(&self) -> usize {
        fs::read_dir(self.dir.path().join("postfix/queue/hold")).map_or(0, Iterator::count)
    }
}

struct Ours {
    daemon: Postrider,
    filter: Planned,
    hop: Sink,
}

impl Ours {
    fn start(program: &Path) -> Self {
        let (dir, hop) = (tempfile::tempdir().unwrap(), Sink::start());
        let filter = Planned::start(program, &dir.path().join("filter"));
        fs::write(dir.path().join("virtual"), ALIASES).unwrap();
        let more = format!(
            "[dns]\nnameservers = [\"{}\"]\ntimeout = \"100ms\"\nattempts = 1\n[limits]\nmax_message_size = \"50MB\"\n[local]\ndomains = [\"mx.test\", \"alias.test\"]\n[addresses]\nvirtual = [\"text:virtual\"]\n{}{}",
            // Nobody listens there: clients have no names.
            free_address(),
            hop.route(),
            filter.section("planned", "")
        );
        Self { daemon: Postrider::start_in(dir, free_address(), &more), filter, hop }
    }

    fn run(&self, case: &Case) -> Seen {
        self.filter.plan(&case.plan);
        let before = self.count(&["--status", "held"]);
        let replies = talk(self.daemon.address, &case.session);
        let mut held = 0;
        until("all but what is held is delivered", || {
            held = self.count(&["--status", "held"]);
            self.count(&[]) == held
        });
        let held = usize::try_from(held - before).unwrap();
        Seen { replies, told: told(&self.filter), arrived: arrived(&self.hop), held }
    }

    fn count(&self, which: &[&str]) -> u64 {
        let said = self.daemon.ask(&[&["queue", "count"], which].concat());
        said.split_whitespace().next().unwrap().parse().unwrap()
    }
}

/// An aspect of what is compared, with the lines that only one of the two has.
struct Difference {
    aspect: &'static str,
    text: String,
}

fn differences(theirs: &Seen, ours: &Seen) -> Vec<Difference> {
    let mut all = Vec::new();
    let mut compare = |aspect: &'static str, theirs: &[String], ours: &[String]| {
        if theirs == ours {
            return;
        }
        let (mut text, mut rest) = (String::new(), ours.iter().collect::<Vec<_>>());
        for line in theirs {
            match rest.iter().position(|other| *other == line) {
                Some(at) => _ = rest.remove(at),
                None => _ = writeln!(text, "  Postfix   {line}"),
            }
        }
        rest.iter().for_each(|line| _ = writeln!(text, "  Postrider {line}"));
        all.push(Difference { aspect, text });
    };
    compare("replies", &theirs.replies, &ours.replies);
    compare("told", &theirs.told, &ours.told);
    compare("arrived", &theirs.arrived, &ours.arrived);
    compare("held", &[theirs.held.to_string()], &[ours.held.to_string()]);
    all
}

/// Differences with reasons: the beginning of the names of the cases, the aspect, and the reason.
const KNOWN: [(&str, &str, &str); 25] = [
    ("content: header that ends without an empty line, seen", "arrived", NO_FIELD),
    ("content: header that ends without an empty line, added to", "arrived", NO_FIELD),
    ("content: header that ends without an empty line, with spaces", "arrived", NO_FIELD),
    ("edit: add folded with CR", "arrived", "Postfix sends CR CR LF"),
    ("edit: add a line break at the end", "arrived", "Postfix sends a line that is a tab"),
    ("edit: add a long value", "arrived", "Postfix folds lines of more than 998 octets when it sends them"),
    ("envelope: add one that is there", "arrived", "nobody gets the message twice"),
    ("envelope: add one that is there, in another case", "arrived", "nobody gets the message twice"),
    ("envelope: add the target of an alias", "arrived", "nobody gets the message twice"),
    ("envelope: delete one in another case", "arrived", "no two mailboxes differ in letter case"),
    ("verdict: connect reject", "replies", AT_MAIL),
    ("verdict: connect reply", "replies", AT_MAIL),
    ("verdict: connect reply without an enhanced code", "replies", AT_MAIL),
    ("verdict: connect reply of several lines", "replies", AT_MAIL),
    ("verdict: connect reply with percent signs", "replies", AT_MAIL),
    ("verdict: connect reply that closes", "replies", AT_MAIL),
    ("verdict: helo reply that closes", "replies", AT_MAIL),
    ("verdict: data reject", "replies", AT_CONTENT),
    ("verdict: data tempfail", "replies", AT_CONTENT),
    ("verdict: data reply", "replies", AT_CONTENT),
    ("parameters of MAIL", "told", "of the parameters, those that stay with the message are told"),
    ("no sender", "told", "a macro without a value is left out"),
    ("unknown command", "replies", UNKNOWN),
    ("unknown command", "told", UNKNOWN),
    ("HELO twice", "told", "a HELO that another one replaces is not told"),
];
const NO_FIELD: &str = "a line that is no field stays where it is between fields, filters or not";
const AT_MAIL: &str =
    "filters are told of the connection with the first MAIL: clients without mail cost them nothing";
const AT_CONTENT: &str = "filters are told of DATA when the content is there";
const UNKNOWN: &str = "filters are not told of unknown commands: no filter in use asks for them";

#[test]
fn a_filter_has_the_same_effect_as_with_postfix() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compile(dir.path()) else { return };
    let Some(theirs) = Theirs::start(&program) else { return };
    let ours = Ours::start(&program);
    let (mut found, mut known) = (String::new(), Vec::new());
    for case in cases() {
        let (theirs, ours) = std::thread::scope(|scope| {
            let running = scope.spawn(|| theirs.run(&case));
            let ours = ours.run(&case);
            (running.join().unwrap(), ours)
        });
        for Difference { aspect, text } in differences(&theirs, &ours) {
            // All verdicts on DATA are one difference.
            let is_meant = |(name, of, _): &(&str, &str, &str)| {
                (case.name == *name || *name == "verdict: data reply" && case.name.starts_with(name))
                    && *of == aspect
            };
            match KNOWN.iter().position(is_meant) {
                Some(at) => known.push(at),
                None => _ = write!(found, "{}, {aspect}:\n{text}", case.name),
            }
        }
    }
    for (at, (name, aspect, _)) in KNOWN.iter().enumerate().filter(|(at, _)| !known.contains(at)) {
        let _ = writeln!(found, "{name}, {aspect}: no difference any more ({at})");
    }
    assert!(found.is_empty(), "{found}");
}
