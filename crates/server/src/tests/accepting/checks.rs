//! Checks of the pipeline: refusals at every stage, holds, discards, redirections and edits.

use super::*;

/// Says the same at one stage, at once or when the runtime comes to it.
struct Says {
    stage: &'static [Stage],
    verdict: CheckVerdict,
    is_slow: bool,
}

impl Check for Says {
    fn stages(&self) -> Vec<Stage> {
        self.stage.to_vec()
    }

    fn check<'a>(&'a self, _: Option<&'a mut dyn CheckMemory>, _: View<'a>) -> Later<'a, CheckVerdict> {
        if !self.is_slow {
            return Later::Ready(self.verdict.clone());
        }
        Later::later(async {
            tokio::task::yield_now().await;
            self.verdict.clone()
        })
    }
}

/// The spool in a directory, and the messages that a start finds in it.
fn recover(dir: &std::path::Path) -> (LogSpool, Vec<Recovered>) {
    let mut spool = LogSpool::open(&dir.join("spool"), LogSettings::default()).unwrap();
    let mut all = Vec::new();
    spool.recover(&mut |found| all.push(found)).unwrap();
    (spool, all)
}

fn content_of(spool: &dyn Spool, found: &Recovered) -> String {
    let content = spool.read(found.message.id).unwrap().content.in_memory().unwrap();
    String::from_utf8(content.to_vec()).unwrap()
}

/// The results for a message with two recipients: the reply, and the message that a restart finds.
struct Became {
    reply: String,
    message: Option<Recovered>,
    content: String,
    queued: usize,
}

/// Closes the spool, and waits until nothing holds it: a task or a thread may still be about to end.
async fn close(acceptor: Arc<Acceptor<Driver>>, spool: Arc<dyn Spool>) {
    spool.close();
    drop(acceptor);
    while Arc::strong_count(&spool) > 1 {
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
}

/// Takes a message with two recipients through a pipeline with these checks: of a client, or of a local program.
async fn take(verdicts: &[(&'static [Stage], CheckVerdict)], is_slow: bool, is_local: bool) -> Became {
    let dir = tempfile::tempdir().unwrap();
    let spool: Arc<dyn Spool> = Arc::new(recover(dir.path()).0);
    let says = |(stage, verdict): &(&'static [Stage], CheckVerdict)| {
        Box::new(Says { stage, verdict: verdict.clone(), is_slow }) as Box<dyn Check>
    };
    let acceptor = acceptor_checked(dir.path(), spool.clone(), verdicts.iter().map(says).collect());
    let mut given = draft(1);
    given.envelope.recipients.push(Recipient::new(ForwardPath::parse("e@f.test", false).unwrap()));
    let reply = if is_local {
        match acceptor.accept_local(0, given).await {
            Ok(id) => format!("250 2.0.0 Ok: queued as {id}"),
            Err(refusal) => refusal.text,
        }
    } else {
        over_smtp(&acceptor, given).await.to_string()
    };
    acceptor.intake().lock().engine.check_invariants();
    let queued = acceptor.intake().lock().engine.queue().len();
    close(acceptor, spool).await;
    let (spool, mut found) = recover(dir.path());
    let content = found.first().map(|found| content_of(&spool, found));
    Became { reply, message: found.pop(), content: content.unwrap_or_default(), queued }
}

/// As a session does it.
async fn over_smtp(acceptor: &Acceptor<Driver>, given: Draft) -> Reply {
    let address = "127.0.0.1:1".parse().unwrap();
    let client =
        Client { peer: address, local: address, listener: mail::ListenerKind::Mx, tls: None, named: None };
    let mut context = match acceptor.connected(&client).wait().await {
        Ok(context) => context,
        Err(reply) => return reply,
    };
    let mut envelope = Envelope { recipients: Vec::new(), ..given.envelope.clone() };
    let reply = acceptor.hello(&mut context, "c.test").wait().await;
    if !reply.is_positive() {
        return reply;
    }
    let reply = acceptor.sender(&mut context, &envelope).wait().await;
    if !reply.is_positive() {
        return reply;
    }
    for recipient in given.envelope.recipients {
        let reply = acceptor.recipient(&mut context, &envelope, &recipient).wait().await;
        if !reply.is_positive() {
            return reply;
        }
        envelope.recipients.push(recipient);
    }
    if let Err(reply) = acceptor.header(&mut context, &envelope, given.content.header()).wait().await {
        return reply;
    }
    if let Err(reply) = acceptor.body(&mut context, b"").wait().await {
        return reply;
    }
    if let Err(reply) = acceptor.content(&mut context, &envelope, &given.content).wait().await {
        return reply;
    }
    acceptor.commit(&mut context, Draft { envelope, ..given }).await
}

fn recipients(found: &Recovered) -> Vec<&str> {
    found.message.envelope.recipients.iter().map(|r| r.path.as_str()).collect()
}

const EVERYWHERE: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

#[tokio::test]
async fn every_stage_can_refuse_clients_and_programs_of_this_machine() {
    let stages: [&'static [Stage]; 6] = [
        &[Stage::Connect],
        &[Stage::Mail],
        &[Stage::Rcpt],
        &[Stage::Header],
        &[Stage::Body],
        &[Stage::Content],
    ];
    for (is_slow, is_local) in EVERYWHERE {
        for stage in stages {
            for (code, verdict) in [
                ("550 5.7.1", CheckVerdict::Reject(Reply::fixed(550, Enhanced(5, 7, 1), "no"))),
                ("451 4.7.1", CheckVerdict::Defer(Reply::fixed(451, Enhanced(4, 7, 1), "later"))),
            ] {
                // A local draft without a body has no piece of it to judge.
                if is_local && stage == [Stage::Body] {
                    continue;
                }
                let became = take(&[(stage, verdict)], is_slow, is_local).await;
                assert!(became.reply.starts_with(code), "{stage:?} {is_slow} {is_local}: {}", became.reply);
                assert!(became.message.is_none() && became.queued == 0);
            }
        }
    }
}

#[tokio::test]
async fn a_message_that_a_check_holds_is_durable_and_held_also_after_a_restart() {
    for (is_slow, is_local) in EVERYWHERE {
        for stage in [&[Stage::Connect][..], &[Stage::Mail], &[Stage::Content]] {
            let hold = CheckVerdict::Hold("suspicious".into());
            let became = take(&[(stage, hold)], is_slow, is_local).await;
            assert!(became.reply.starts_with("250 2.0.0"), "{}", became.reply);
            let found = became.message.unwrap();
            assert!(found.held.is_some() && found.recipients.iter().all(|r| !r.settled), "{stage:?}");
            assert_eq!(became.queued, 1);
        }
    }
}

#[tokio::test]
async fn a_message_that_a_check_discards_is_accepted_and_is_nowhere() {
    for (is_slow, is_local) in EVERYWHERE {
        for stage in [&[Stage::Mail][..], &[Stage::Rcpt], &[Stage::Content]] {
            let discard = CheckVerdict::Discard("unwanted".into());
            let became = take(&[(stage, discard)], is_slow, is_local).await;
            assert!(became.reply.starts_with("250 2.0.0 Ok: queued as"), "{}", became.reply);
            assert!(became.message.is_none() && became.queued == 0, "{stage:?}");
        }
    }
}

/// Says the same of one recipient, and nothing of others.
struct SaysOf {
    recipient: &'static str,
    verdict: CheckVerdict,
    is_slow: bool,
}

impl Check for SaysOf {
    fn stages(&self) -> Vec<Stage> {
        vec![Stage::Rcpt]
    }

    fn check<'a>(&'a self, _: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Later<'a, CheckVerdict> {
        let is_meant = view.recipient.is_some_and(|recipient| recipient.path.as_str() == self.recipient);
        let verdict = if is_meant { self.verdict.clone() } else { CheckVerdict::Pass };
        if !self.is_slow {
            return Later::Ready(verdict);
        }
        Later::later(async {
            tokio::task::yield_now().await;
            verdict
        })
    }
}

/// Returns the events in the log so far of accepted and held messages, and of discarded recipients. `mark` differs from call to call.
async fn events(acceptor: &Acceptor<Driver>, dir: &std::path::Path, mark: QueueId) -> Vec<String> {
    // A thread writes the lines, in their order: what is logged before the mark is in the file when the mark is.
    acceptor.intake().delivery_log.completed(mark);
    let read = || std::fs::read_to_string(dir.join("mail.log")).unwrap();
    until(|| read().contains(&format!("\"id\":\"{mark}\""))).await;
    let event = |line: &str| {
        let field = |name: &str| {
            let (_, value) = line.split_once(&format!("\"{name}\":\""))?;
            value.split('"').next()
        };
        format!("{} {}", field("event").unwrap(), field("to").unwrap_or_default()).trim_end().to_owned()
    };
    let mut events: Vec<String> = read().lines().map(event).collect();
    events.retain(|event| ["accepted", "discarded", "held"].iter().any(|name| event.starts_with(name)));
    events
}

#[tokio::test]
async fn a_discarded_recipient_is_logged_once_its_message_is_durable() {
    enum Disk {
        Works,
        IsFull,
        Fails,
        IsLate,
    }
    for (disk, reply, logged) in [
        (Disk::Works, "250 2.0.0", &["discarded c@d.test", "accepted"][..]),
        (Disk::IsFull, "451 4.3.1", &[]),
        (Disk::Fails, "451 4.3.0", &[]),
        (Disk::IsLate, "451 4.3.0 The disk does not answer", &[]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let spool = Arc::new(Stuck::default());
        spool.answered.send_replace(!matches!(disk, Disk::IsLate));
        spool.fails.store(matches!(disk, Disk::Fails), Ordering::Relaxed);
        if matches!(disk, Disk::IsFull) {
            *spool.line.lock().unwrap() = Line { room: Some(0), moves: false };
        }
        let discard = CheckVerdict::Discard("unwanted".into());
        let check = SaysOf { recipient: "c@d.test", verdict: discard, is_slow: false };
        let commit_timeout = if matches!(disk, Disk::Works) { "10m" } else { "20ms" };
        let acceptor = acceptor_timed(dir.path(), spool.clone(), vec![Box::new(check)], commit_timeout);
        let mut given = draft(1);
        given.envelope.recipients.push(Recipient::new(ForwardPath::parse("e@f.test", false).unwrap()));
        let said = over_smtp(&acceptor, given).await.to_string();
        assert!(said.starts_with(reply), "{said}");
        assert_eq!(events(&acceptor, dir.path(), QueueId(98)).await, logged, "{said}");
        if matches!(disk, Disk::IsLate) {
            spool.answered.send_replace(true);
            until(|| acceptor.late_count() == 0).await;
            assert_eq!(events(&acceptor, dir.path(), QueueId(99)).await, ["discarded c@d.test", "accepted"]);
        }
    }
}

#[tokio::test]
async fn recipients_are_redirected_and_headers_changed_before_the_commit() {
    let path = |text: &str| Recipient::new(ForwardPath::parse(text, false).unwrap());
    let add =
        |name: &str| CheckVerdict::Edit([Edit::Append(Field::new(name, "1").unwrap())].into_iter().collect());
    for (is_slow, is_local) in EVERYWHERE {
        let twice = CheckVerdict::Redirect(vec![path("1@x.test"), path("2@x.test")]);
        let checks = [
            (&[Stage::Rcpt][..], twice),
            // Asked about each of those.
            (&[Stage::Rcpt], CheckVerdict::Redirect(vec![path("3@y.test")])),
            (&[Stage::Header], add("X-A")),
            (&[Stage::Content], add("X-B")),
        ];
        let became = take(&checks, is_slow, is_local).await;
        assert!(became.reply.starts_with("250 2.0.0"), "{}", became.reply);
        let found = became.message.unwrap();
        // Four times the same recipient is one.
        assert_eq!(recipients(&found), ["3@y.test"]);
        assert_eq!(became.content, "Subject: x\r\nX-A: 1\r\nX-B: 1\r\n\r\n");
    }
}

#[tokio::test]
async fn a_check_that_accepts_ends_its_stage() {
    let no = CheckVerdict::Reject(Reply::fixed(550, Enhanced(5, 7, 1), "no"));
    for (is_slow, is_local) in EVERYWHERE {
        let checks = [(&[Stage::Rcpt][..], CheckVerdict::Accept), (&[Stage::Rcpt], no.clone())];
        let became = take(&checks, is_slow, is_local).await;
        assert!(became.reply.starts_with("250 2.0.0"), "{}", became.reply);
        assert_eq!(recipients(&became.message.unwrap()), ["c@d.test", "e@f.test"]);
    }
}

#[tokio::test]
async fn reports_pass_the_pipeline_and_cannot_be_refused() {
    let dir = tempfile::tempdir().unwrap();
    let add = Edit::Append(Field::new("X-Signed", "1").unwrap());
    let checks: Vec<Box<dyn Check>> = vec![
        Box::new(Says {
            stage: &[Stage::Header],
            verdict: CheckVerdict::Edit([add].into_iter().collect()),
            is_slow: true,
        }),
        Box::new(Says {
            stage: &[Stage::Content],
            verdict: CheckVerdict::Reject(Reply::fixed(550, Enhanced(5, 7, 1), "no")),
            is_slow: false,
        }),
    ];
    let spool: Arc<dyn Spool> = Arc::new(recover(dir.path()).0);
    let acceptor = acceptor_checked(dir.path(), spool.clone(), checks);
    let message_1 = SharedMessage::new(message(1));
    let stored = spool.submit(vec![Entry::Accept(message_1.clone())]).unwrap();
    spool.durable(stored).await.unwrap();
    acceptor.intake().accepted(message_1, None, false);
    assert_eq!(
        cancel(acceptor.intake(), 1, CancelAs::Bounce).await.unwrap().unwrap(),
        CommandResult::Changed
    );
    close(acceptor, spool).await;
    let (spool, found) = recover(dir.path());
    let [report] = &found[..] else { panic!("{} messages", found.len()) };
    assert_eq!(recipients(report), ["a@b.test"]);
    let content = content_of(&spool, report);
    assert!(content.contains("\r\nX-Signed: 1\r\n\r\n"), "{content}");
}

#[tokio::test]
async fn a_redirect_that_a_later_check_refuses_discards_nothing() {
    let path = |text: &str| Recipient::new(ForwardPath::parse(text, false).unwrap());
    for (is_slow, refused_at) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
        let dir = tempfile::tempdir().unwrap();
        let spool = Arc::new(Stuck::default());
        spool.answered.send_replace(true);
        let says = |recipient, verdict| Box::new(SaysOf { recipient, verdict, is_slow }) as Box<dyn Check>;
        let no = Reply::fixed(550, Enhanced(5, 7, 1), "no");
        let checks = vec![
            says("c@d.test", CheckVerdict::Redirect(vec![path("1@x.test"), path("2@x.test")])),
            says("1@x.test", CheckVerdict::Discard("unwanted".into())),
            says("2@x.test", CheckVerdict::Reject(no.clone())),
        ];
        let acceptor = acceptor_timed(dir.path(), spool.clone(), checks, "20ms");
        let mut context = connected(&acceptor);
        let mut envelope = Envelope { recipients: Vec::new(), ..message(1).envelope };
        assert!(acceptor.sender(&mut context, &envelope).wait().await.is_positive());
        let mut given = vec![path("e@f.test")];
        given.insert(refused_at, path("c@d.test"));
        for (index, recipient) in given.into_iter().enumerate() {
            let reply = acceptor.recipient(&mut context, &envelope, &recipient).wait().await;
            if index == refused_at {
                assert_eq!(reply, no);
            } else {
                assert!(reply.is_positive(), "{reply}");
                envelope.recipients.push(recipient);
            }
        }
        let reply = acceptor.commit(&mut context, Draft { envelope, ..draft(1) }).await;
        assert!(reply.is_positive(), "{reply}");
        assert_eq!(events(&acceptor, dir.path(), QueueId(99)).await, ["accepted"]);
        let all = counters(acceptor.intake());
        assert_eq!((all.accepted, all.queued), (1, 1));
        let stored = spool.kept.read(QueueId(1)).unwrap();
        assert_eq!(stored.envelope.recipients, [path("e@f.test")]);
    }
}

#[tokio::test]
async fn a_hold_of_a_recipient_that_a_later_check_refuses_holds_nothing() {
    let path = |text: &str| Recipient::new(ForwardPath::parse(text, false).unwrap());
    for (is_slow, is_redirected) in [(false, false), (true, false), (false, true), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let spool = Arc::new(Stuck::default());
        spool.answered.send_replace(true);
        let says = |recipient, verdict| Box::new(SaysOf { recipient, verdict, is_slow }) as Box<dyn Check>;
        let no = Reply::fixed(550, Enhanced(5, 7, 1), "no");
        let judged = if is_redirected { "1@x.test" } else { "c@d.test" };
        let mut checks = vec![
            says(judged, CheckVerdict::Hold("suspicious".into())),
            says(judged, CheckVerdict::Reject(no.clone())),
        ];
        if is_redirected {
            checks.insert(0, says("c@d.test", CheckVerdict::Redirect(vec![path(judged)])));
        }
        let acceptor = acceptor_timed(dir.path(), spool.clone(), checks, "20ms");
        let mut context = connected(&acceptor);
        let mut envelope = Envelope { recipients: Vec::new(), ..message(1).envelope };
        assert!(acceptor.sender(&mut context, &envelope).wait().await.is_positive());
        assert_eq!(acceptor.recipient(&mut context, &envelope, &path("c@d.test")).wait().await, no);
        let reply = acceptor.recipient(&mut context, &envelope, &path("e@f.test")).wait().await;
        assert!(reply.is_positive(), "{reply}");
        envelope.recipients.push(path("e@f.test"));
        let reply = acceptor.commit(&mut context, Draft { envelope, ..draft(1) }).await;
        assert!(reply.is_positive(), "{reply}");
        assert_eq!(events(&acceptor, dir.path(), QueueId(99)).await, ["accepted"]);
    }
}

#[tokio::test]
async fn a_message_and_the_report_on_its_expansion_are_one_transaction() {
    // The check redirects the report as well.
    for (success, accepted) in [(true, 4), (false, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let spool = Arc::new(Stuck::default());
        spool.answered.send_replace(true);
        // There is no room for a second one.
        *spool.line.lock().unwrap() = Line { room: Some(1), moves: false };
        let several =
            ["1@f.test", "2@f.test"].map(|to| Recipient::new(ForwardPath::parse(to, false).unwrap()));
        let verdict = CheckVerdict::Redirect(several.into());
        let says: Box<dyn Check> = Box::new(Says { stage: &[Stage::Rcpt], verdict, is_slow: true });
        let acceptor = acceptor_checked(dir.path(), spool.clone(), vec![says]);
        let mut given = draft(1);
        given.envelope.recipients[0].notify = mail::Notify { success, ..mail::Notify::default() };
        let reply = over_smtp(&acceptor, given).await.to_string();
        assert!(reply.starts_with("250"), "{reply}");
        assert_eq!(counters(acceptor.intake()).accepted, accepted);
        assert_eq!(spool.line.lock().unwrap().room, Some(0));
    }
}
