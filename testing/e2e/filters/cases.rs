//! Sessions with a plan for the filter.

use std::fmt::Write as _;

/// What a client says.
pub(super) enum Say {
    /// A command, without its CRLF.
    Line(String),
    /// Content, without its last line; left out when DATA was refused.
    Content(Vec<u8>),
}

/// What a client says, and how the filter answers.
pub(super) struct Case {
    pub(super) name: String,
    /// See `planned.c`.
    pub(super) plan: String,
    pub(super) session: Vec<Say>,
}

fn line(text: impl Into<String>) -> Say {
    Say::Line(text.into())
}

/// Returns the commands of one message in a session that has begun.
fn message(from: &str, to: &[&str], content: &[u8]) -> Vec<Say> {
    let mut session = vec![line(format!("MAIL FROM:<{from}>"))];
    session.extend(to.iter().map(|to| line(format!("RCPT TO:<{to}>"))));
    session.extend([line("DATA"), Say::Content(content.to_vec())]);
    session
}

fn hello() -> Say {
    line("EHLO client.test")
}

/// Returns the commands of a session with one message.
fn session(from: &str, to: &[&str], content: &[u8]) -> Vec<Say> {
    let mut session = vec![hello()];
    session.extend(message(from, to, content));
    session.push(line("QUIT"));
    session
}

const PLAIN: &[u8] = b"From: a@a.test\r\nSubject: s\r\nTo: b@b.test\r\n\r\nbody\r\n";
const REPEATED: &[u8] = b"Received: from far\r\n\tby near\r\nX-A: 1\r\nSubject: s\r\nX-A: 2\r\nx-a: 3\r\nX-A:4\r\nX-B:  two  \r\nTo: b@b.test\r\n\r\nbody\r\n";
const TO: &[&str] = &["b@b.test", "c@b.test"];

/// Content of every shape, which the filter leaves alone or adds a field to.
pub(super) fn shapes() -> Vec<(&'static str, Vec<u8>)> {
    let lines = |count: usize| {
        let mut content = b"Subject: large\r\n\r\n".to_vec();
        (0..count).for_each(|number| content.extend(format!("line {number} of many\r\n").bytes()));
        content
    };
    let mut long_header = b"Subject: x\r\n".to_vec();
    (0..300).for_each(|number| {
        long_header.extend(format!("X-Number-{number}: {}\r\n", "v".repeat(number)).bytes());
    });
    long_header.extend(b"\r\nbody\r\n");
    let mut folded = b"Subject: x".to_vec();
    (0..40).for_each(|number| folded.extend(format!("\r\n\tpart {number}").bytes()));
    folded.extend(b"\r\n\r\nbody\r\n");
    vec![
        ("plain", PLAIN.to_vec()),
        ("repeated fields", REPEATED.to_vec()),
        ("no header", b"\r\nbody\r\n".to_vec()),
        ("no header and no empty line", b"body without a header\r\nand more\r\n".to_vec()),
        ("nothing at all", Vec::new()),
        ("one empty line", b"\r\n".to_vec()),
        ("two empty lines", b"\r\n\r\n".to_vec()),
        ("header only", b"Subject: s\r\nTo: b@b.test\r\n".to_vec()),
        ("header and an empty line", b"Subject: s\r\n\r\n".to_vec()),
        ("header that ends without an empty line", b"Subject: s\r\nno field\r\nX: y\r\n\r\nbody\r\n".to_vec()),
        ("more than 64 KiB", lines(4_000)),
        ("more than 256 KiB", lines(16_000)),
        ("more than 1 MiB", lines(60_000)),
        ("octets above 127", b"Subject: gr\xfcn\r\nX: \xff\xfe\r\n\r\ngr\xfcn \x80\r\n".to_vec()),
        ("UTF-8 in the header", "Subject: gr\u{fc}n \u{2713}\r\n\r\n\u{2713}\r\n".as_bytes().to_vec()),
        ("multipart", b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\npre\r\n--x\r\nContent-Type: text/plain\r\n\r\none\r\n--x\r\n\r\ntwo\r\n--x--\r\nend\r\n".to_vec()),
        ("long lines", [b"Subject: x\r\n\r\n", "y".repeat(900).as_bytes(), b"\r\n", "z".repeat(998).as_bytes(), b"\r\n"].concat()),
        ("dots", b"Subject: x\r\n\r\n.\r\n..\r\n.a\r\n".to_vec()),
        ("many fields", long_header),
        ("a field of many lines", folded),
        ("fields without a space", b"A:b\r\nC:  d\r\nE:\tf\r\nG:\r\nH: \r\nI:\r\n j\r\n\r\nx\r\n".to_vec()),
        ("a separator of an mbox", b"From joe Mon Nov 23 10:00:00 2026\r\nSubject: x\r\n\r\nx\r\n".to_vec()),
        ("a folded first line", b" folded\r\nSubject: x\r\n\r\nx\r\n".to_vec()),
        ("blanks at the end of lines", b"Subject: x  \r\n\ty \r\nTo: b \r\n\r\nx  \r\n\t\r\n".to_vec()),
    ]
}

/// Edits of the header and the body.
const EDITS: [(&str, &str); 47] = [
    ("add", "eom\tadd\tX-New\tv\n"),
    ("add two", "eom\tadd\tX-New\tv\neom\tadd\tX-New\tw\n"),
    ("add folded", "eom\tadd\tX-New\tone\\n\\ttwo\\n three\n"),
    ("add folded with CR", "eom\tadd\tX-New\tone\\r\\n\\ttwo\n"),
    ("add empty", "eom\tadd\tX-New\t\n"),
    ("add 8-bit", "eom\tadd\tX-New\tgr\\xfcn\n"),
    ("add UTF-8", "eom\tadd\tX-New\tgr\\xc3\\xbcn\n"),
    ("add with spaces", "eom\tadd\tX-New\t  v  \n"),
    ("add a line break at the end", "eom\tadd\tX-New\tv\\n\n"),
    ("add what is there", "eom\tadd\tSubject\tv\n"),
    ("add a long value", "eom\tadd\tX-New\tLONG\n"),
    ("insert 0", "eom\tinsert\t0\tX-New\tv\n"),
    ("insert 1", "eom\tinsert\t1\tX-New\tv\n"),
    ("insert 2", "eom\tinsert\t2\tX-New\tv\n"),
    ("insert 3", "eom\tinsert\t3\tX-New\tv\n"),
    ("insert 8", "eom\tinsert\t8\tX-New\tv\n"),
    ("insert 9", "eom\tinsert\t9\tX-New\tv\n"),
    ("insert 99", "eom\tinsert\t99\tX-New\tv\n"),
    ("insert twice at 0", "eom\tinsert\t0\tX-New\tv\neom\tinsert\t0\tX-New\tw\n"),
    ("insert twice at 1", "eom\tinsert\t1\tX-New\tv\neom\tinsert\t1\tX-New\tw\n"),
    ("insert at 0 and 1", "eom\tinsert\t0\tX-New\tv\neom\tinsert\t1\tX-New\tw\n"),
    ("insert folded", "eom\tinsert\t1\tX-New\tone\\n\\ttwo\n"),
    ("insert a trace field", "eom\tinsert\t0\tReceived\tfrom me\n"),
    ("insert and change", "eom\tinsert\t0\tX-A\tv\neom\tchange\t1\tX-A\tw\n"),
    ("change 0", "eom\tchange\t0\tX-A\tv\n"),
    ("change 1", "eom\tchange\t1\tX-A\tv\n"),
    ("change 2", "eom\tchange\t2\tX-A\tv\n"),
    ("change 3, in another case", "eom\tchange\t3\tX-a\tv\n"),
    ("change 4", "eom\tchange\t4\tx-A\tv\n"),
    ("change 5, which is not there", "eom\tchange\t5\tX-A\tv\n"),
    ("change what is not there", "eom\tchange\t1\tX-New\tv\n"),
    ("change to a folded value", "eom\tchange\t1\tSubject\tone\\n\\ttwo\n"),
    ("change to an empty value", "eom\tchange\t1\tSubject\t\n"),
    ("change 1 of Received", "eom\tchange\t1\tReceived\tv\n"),
    ("change 2 of Received", "eom\tchange\t2\tReceived\tv\n"),
    ("delete 1", "eom\tdelete\t1\tX-A\n"),
    ("delete 2", "eom\tdelete\t2\tX-A\n"),
    ("delete 4", "eom\tdelete\t4\tX-A\n"),
    ("delete what is not there", "eom\tdelete\t5\tX-A\neom\tdelete\t1\tX-New\n"),
    ("delete all", "eom\tdelete\t1\tX-A\neom\tdelete\t1\tX-A\neom\tdelete\t1\tX-A\neom\tdelete\t1\tX-A\n"),
    (
        "delete from the last",
        "eom\tdelete\t4\tX-A\neom\tdelete\t3\tX-A\neom\tdelete\t2\tX-A\neom\tdelete\t1\tX-A\n",
    ),
    ("delete Received", "eom\tdelete\t1\tReceived\n"),
    ("delete and change", "eom\tdelete\t1\tX-A\neom\tchange\t1\tX-A\tv\n"),
    ("body", "eom\tbody\tnew\\r\\nbody\\r\\n\n"),
    ("body without an end", "eom\tbody\tnew\n"),
    ("body in pieces", "eom\tbody\tne\neom\tbody\tw\\r\\nbo\neom\tbody\tdy\\r\\n\neom\tadd\tX-New\tv\n"),
    ("body of nothing", "eom\tbody\t\n"),
];

/// Changes of the envelope, for a message to b@b.test, c@b.test, one@alias.test and two@alias.test.
const ENVELOPES: [(&str, &str); 24] = [
    ("add a recipient", "eom\tto\t<new@b.test>\n"),
    ("add one without brackets", "eom\tto\tnew@b.test\n"),
    ("add one that is there", "eom\tto\t<b@b.test>\n"),
    ("add one that is there, in another case", "eom\tto\t<B@B.test>\n"),
    ("add one twice", "eom\tto\t<new@b.test>\neom\tto\t<new@b.test>\n"),
    ("add an alias", "eom\tto\t<two@alias.test>\neom\tnot-to\t<two@alias.test>\n"),
    ("add the target of an alias", "eom\tto\t<real@b.test>\n"),
    ("add with parameters", "eom\tto\t<new@b.test>\tNOTIFY=NEVER\n"),
    ("delete a recipient", "eom\tnot-to\t<b@b.test>\n"),
    ("delete one without brackets", "eom\tnot-to\tb@b.test\n"),
    ("delete one in another case", "eom\tnot-to\t<B@B.TEST>\n"),
    ("delete one that is not there", "eom\tnot-to\t<nobody@b.test>\n"),
    ("delete an alias", "eom\tnot-to\t<one@alias.test>\n"),
    ("delete an alias of two", "eom\tnot-to\t<two@alias.test>\n"),
    ("delete the target of an alias", "eom\tnot-to\t<real@b.test>\n"),
    ("delete one of two targets of an alias", "eom\tnot-to\t<x@b.test>\n"),
    (
        "delete all",
        "eom\tnot-to\t<b@b.test>\neom\tnot-to\t<c@b.test>\neom\tnot-to\t<one@alias.test>\neom\tnot-to\t<two@alias.test>\n",
    ),
    ("delete one that was added", "eom\tto\t<new@b.test>\neom\tnot-to\t<new@b.test>\n"),
    ("add one that was deleted", "eom\tnot-to\t<b@b.test>\neom\tto\t<b@b.test>\n"),
    (
        "replace all",
        "eom\tnot-to\t<b@b.test>\neom\tnot-to\t<c@b.test>\neom\tnot-to\t<one@alias.test>\neom\tnot-to\t<two@alias.test>\neom\tto\t<new@b.test>\n",
    ),
    ("another sender", "eom\tfrom\t<new@a.test>\n"),
    ("no sender", "eom\tfrom\t<>\n"),
    ("two senders", "eom\tfrom\t<new@a.test>\neom\tfrom\tnewer@a.test\n"),
    ("a sender with parameters", "eom\tfrom\t<new@a.test>\tSIZE=1\n"),
];

/// Verdicts, by what stands behind the stage.
const VERDICTS: [(&str, &str); 12] = [
    ("accept", "accept"),
    ("reject", "reject"),
    ("tempfail", "tempfail"),
    ("discard", "discard"),
    ("reply", "reply\t550\t5.7.1\tnot you"),
    ("reply without an enhanced code", "reply\t554\t-\tnot you"),
    ("reply of several lines", "reply\t550\t5.7.1\tone\ttwo\tthree"),
    ("reply with percent signs", "reply\t550\t5.7.1\t100%% of it"),
    ("reply to try again", "reply\t451\t4.7.1\tlater"),
    ("reply that closes", "reply\t421\t4.7.0\tgo away"),
    ("reply that has another class", "reply\t450\t4.2.0\tlater"),
    ("reply of a full system", "reply\t452\t4.3.1\tfull"),
];

fn case(name: impl Into<String>, plan: impl Into<String>, session: Vec<Say>) -> Case {
    Case { name: name.into(), plan: plan.into(), session }
}

/// Sessions with more than one message.
fn sessions() -> Vec<Case> {
    let two = |between: Vec<Say>| {
        let mut session = vec![hello()];
        session.extend(message("a@a.test", &["b@b.test"], PLAIN));
        session.extend(between);
        session.extend(message("second@a.test", &["c@b.test"], REPEATED));
        session.push(line("QUIT"));
        session
    };
    let cut = |begun: &[&str]| {
        let mut session = vec![hello()];
        session.extend(begun.iter().map(|text| line(*text)));
        session.push(line("RSET"));
        session.extend(message("second@a.test", &["c@b.test"], REPEATED));
        session.push(line("QUIT"));
        session
    };
    let add = "eom\tadd\tX-New\tv\n";
    vec![
        case("two messages", add, two(vec![])),
        case("two messages, RSET between", add, two(vec![line("RSET")])),
        case("two messages, HELO between", add, two(vec![line("HELO second.test")])),
        case("two messages, EHLO between", add, two(vec![line("EHLO second.test")])),
        case(
            "two messages, the first refused at MAIL",
            format!("mail=<a@a.test>\treject\n{add}"),
            two(vec![]),
        ),
        case(
            "two messages, the first refused at RCPT",
            format!("rcpt=<b@b.test>\treject\n{add}"),
            two(vec![]),
        ),
        case(
            "two messages, the first discarded at MAIL",
            format!("mail=<a@a.test>\tdiscard\n{add}"),
            two(vec![]),
        ),
        case(
            "two messages, the first accepted at MAIL",
            format!("mail=<a@a.test>\taccept\n{add}"),
            two(vec![]),
        ),
        case(
            "two messages, the second refused at a field",
            format!("header=X-B\treject\n{add}"),
            two(vec![]),
        ),
        case("RSET behind MAIL", add, cut(&["MAIL FROM:<a@a.test>"])),
        case("RSET behind RCPT", add, cut(&["MAIL FROM:<a@a.test>", "RCPT TO:<b@b.test>"])),
        case("one recipient refused", "rcpt=<c@b.test>\treject\n", session("a@a.test", TO, PLAIN)),
        case(
            "one recipient refused for now",
            "rcpt=<b@b.test>\treply\t450\t4.7.1\tlater\n",
            session("a@a.test", TO, PLAIN),
        ),
        case("one recipient discarded", "rcpt=<b@b.test>\tdiscard\n", session("a@a.test", TO, PLAIN)),
        case("one recipient accepted", "rcpt=<b@b.test>\taccept\n", session("a@a.test", TO, PLAIN)),
        case("HELO", add, {
            let mut all = vec![line("HELO client.test")];
            all.extend(message("a@a.test", TO, PLAIN));
            all
        }),
        case("parameters of MAIL", add, {
            let mut all = vec![hello(), line("MAIL FROM:<a@a.test> BODY=8BITMIME SIZE=100")];
            all.extend(message("a@a.test", TO, PLAIN).split_off(1));
            all
        }),
        case("unknown command", format!("unknown\treject\n{add}"), {
            let mut all = vec![hello(), line("XYZZY")];
            all.extend(message("a@a.test", TO, PLAIN));
            all
        }),
        case("HELO twice", add, {
            let mut all = vec![hello(), line("EHLO second.test")];
            all.extend(message("a@a.test", TO, PLAIN));
            all
        }),
        case("no sender", add, session("", TO, PLAIN)),
        case("a sender with spaces", add, session("\"a b\"@a.test", TO, PLAIN)),
        case("many recipients", add, {
            let to: Vec<String> = (0..40).map(|number| format!("r{number}@b.test")).collect();
            session("a@a.test", &to.iter().map(String::as_str).collect::<Vec<_>>(), PLAIN)
        }),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (name, content) in shapes() {
        for (what, plan) in [
            ("seen", ""),
            ("added to", "eom\tinsert\t0\tX-Top\tt\neom\tinsert\t1\tX-Second\ts\neom\tadd\tX-Last\tl\n"),
            ("with a new body", "eom\tbody\tnew\\r\\n\n"),
        ] {
            all.push(case(format!("content: {name}, {what}"), plan, session("a@a.test", TO, &content)));
        }
        let spaces = "any\tspace\teom\neom\tadd\tX-Last\t l\neom\tchange\t1\tSubject\tx\n";
        all.push(case(format!("content: {name}, with spaces"), spaces, session("a@a.test", TO, &content)));
    }
    for (name, plan) in EDITS {
        let plan = plan.replace("LONG", &"long ".repeat(300));
        all.push(case(format!("edit: {name}"), plan, session("a@a.test", TO, REPEATED)));
    }
    for lines in [1_000, 5_000, 20_000] {
        all.push(case(
            format!("edit: a body of {lines} lines"),
            format!("eom\tfill\t{lines}\n"),
            session("a@a.test", TO, PLAIN),
        ));
    }
    let to = ["b@b.test", "c@b.test", "one@alias.test", "two@alias.test"];
    for (name, plan) in ENVELOPES {
        all.push(case(format!("envelope: {name}"), plan, session("a@a.test", &to, PLAIN)));
    }
    for stage in ["connect", "helo", "mail", "rcpt", "data", "header", "header=X-B", "eoh", "body", "eom"] {
        for (name, verdict) in VERDICTS {
            if name == "discard" && ["connect", "helo"].contains(&stage) {
                continue;
            }
            let mut plan = String::new();
            let _ = writeln!(plan, "{stage}\t{verdict}");
            plan += "eom\tadd\tX-New\tv\n";
            all.push(case(format!("verdict: {stage} {name}"), plan, session("a@a.test", TO, REPEATED)));
        }
    }
    all.push(case("verdict: body skip", "body\tskip\neom\tadd\tX-New\tv\n", {
        session("a@a.test", TO, &shapes().iter().find(|(name, _)| *name == "more than 256 KiB").unwrap().1)
    }));
    all.push(case(
        "quarantine",
        "eom\tquarantine\tlooks odd\neom\tadd\tX-New\tv\n",
        session("a@a.test", TO, PLAIN),
    ));
    all.push(case(
        "quarantine and reject",
        "eom\tquarantine\tlooks odd\neom\treject\n",
        session("a@a.test", TO, PLAIN),
    ));
    all.push(case(
        "quarantine and discard",
        "eom\tquarantine\tlooks odd\neom\tdiscard\n",
        session("a@a.test", TO, PLAIN),
    ));
    all.push(case(
        "edits and reject",
        "eom\tadd\tX-New\tv\neom\tto\t<new@b.test>\neom\treject\n",
        session("a@a.test", TO, PLAIN),
    ));
    all.push(case(
        "edits and discard",
        "eom\tadd\tX-New\tv\neom\tto\t<new@b.test>\neom\tdiscard\n",
        session("a@a.test", TO, PLAIN),
    ));
    all.push(case(
        "progress",
        "eom\tprogress\neom\tadd\tX-New\tv\neom\tprogress\n",
        session("a@a.test", TO, PLAIN),
    ));
    all.push(case(
        "macros chosen",
        "any\tmacros\t2\ti {auth_type} {mail_addr}\nany\tmacros\t5\t{none}\n",
        session("a@a.test", TO, PLAIN),
    ));
    all.extend(sessions());
    all
}
