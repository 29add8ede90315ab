//! Templates of notifications: any file is read or refused with a place in it, and what is read composes a notification
//! that every server can take.

use mail::{
    Content, Enhanced, Envelope, ForwardPath, Mailbox, Message, Origin, Outcome, QueueId, Recipient,
    ReversePath, UnixMillis,
};
use report::{
    dsn::{self, DsnContext, DsnKind},
    texts::{Language, Texts},
};

/// The bytes as a file, and as a file made of pieces that exist.
pub fn notice_templates(bytes: &[u8]) {
    check(bytes);
    check(mostly_right(bytes).as_bytes());
}

fn check(file: &[u8]) {
    let text = String::from_utf8_lossy(file);
    // A language that the program does not have needs every section.
    for code in ["en", "xx"] {
        match Language::parse(code, file) {
            Ok(language) => compose(&Texts::new(vec![language])),
            Err(faults) => {
                assert!(!faults.is_empty());
                let lines = text.lines().count().max(1);
                for error in faults {
                    assert!((1..=lines).contains(&error.line) && error.column >= 1, "{error}");
                    let line = text.lines().nth(error.line - 1).unwrap_or_default();
                    assert!(error.column <= line.chars().count() + 1, "{error}");
                    assert!(!error.to_string().contains(char::is_control), "{error:?}");
                }
            }
        }
    }
}

fn compose(texts: &Texts) {
    let mailbox = |text: &str| Mailbox::parse(text, true).expect("an address");
    let mut envelope = Envelope::new(ReversePath::Mailbox(mailbox("a@b.test")));
    let mut recipient = Recipient::new(ForwardPath::Mailbox(mailbox("ü@d.test")));
    recipient.notify = mail::Notify { success: true, failure: true, delay: true, explicit: true };
    envelope.recipients = vec![recipient];
    let content = Content::from_bytes("Subject: x\r\n\r\nbody\r\n");
    let original = Message { id: QueueId(1), arrived: UnixMillis(2), origin: Origin::Dsn, envelope, content };
    let content = original.content.in_memory().unwrap_or_default();
    let postmaster = mailbox("postmaster@here.test");
    let attempt = mail::Attempt::default();
    let context = DsnContext {
        reporting_mta: "here.test",
        postmaster: &postmaster,
        texts,
        attempt: &attempt,
        earlier: &[],
        now: UnixMillis(3),
        gives_up: UnixMillis(4),
        content: &content,
    };
    let affected = [(0, Outcome::failed(Enhanced(5, 1, 1), "no such user"))];
    for kind in DsnKind::ALL {
        let report = dsn::compose(kind, &original, &affected, &context, QueueId(5)).expect("it is wanted");
        let traits = report.content.traits;
        assert!(!traits.is_binary && !traits.has_long_line && !traits.has_utf8_header, "{kind:?}");
        let text = report.content.in_memory().unwrap_or_default();
        let mut header = mail::header::ContentScanner::default();
        header.scan(&text);
        assert!(text.starts_with(b"Received: ") && header.summary().received_count == 1, "{kind:?}");
        let status = b"\r\nFinal-Recipient: utf-8; \\x{FC}@d.test\r\n";
        assert!(text.windows(status.len()).any(|window| window == status), "{kind:?}");
    }
}

/// From which files of templates are put together.
const PIECES: [&str; 24] = [
    "[failed]\n",
    "[delayed]\n",
    "[delivered]\n",
    "[relayed]\n",
    "[expanded]\n",
    "[double-bounce]\n",
    "[recipient]\n",
    "[reason 5.1.1]\n",
    "[reason 5]\n",
    "[reason 4]\n",
    "Subject: Grüße {hostname}\n\n",
    "{recipients}\n",
    "<{address}>\n",
    "    {reason} {{",
    "{given} {server} {reply}\n",
    "{remark} {status}\n",
    "{sender} {arrived} {expires} {id} {postmaster}\n",
    "# comment\n",
    "\n",
    " ",
    "}}",
    "{",
    "--",
    "a long line of words \u{fc}",
];

fn mostly_right(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match PIECES.get(usize::from(*byte)) {
            Some(piece) => text.push_str(piece),
            None => text.push(char::from(*byte)),
        }
    }
    text
}
