//! Tests of the effects that the engine asks for.

mod reports;

use super::*;
use mail::{
    Attempt, Content, Destination, Enhanced, Envelope, ForwardPath, IdSource, Message, NextHop, Outcome,
    QueueId, Recipient, ReversePath, SharedMessage, TlsMode, UnixMillis,
};
use queue::{CancelAs, CommandResult, GroupId, JobStatus, Millis};
use spool::{ControlOp, Entry, RecipientState, Recovered, Refused, Totals, Transaction};
use std::sync::Arc;

const WALL: u64 = 1_800_000_000_000;
const HOUR: Millis = 3_600_000;
const DAY: Millis = 24 * HOUR;

/// Each domain is a destination, or all of them are.
struct ByDomain {
    to: Option<&'static str>,
}

impl Routing for ByDomain {
    fn route(&self, envelope: &Envelope) -> Vec<(Destination, GroupId)> {
        let destination = |recipient: &Recipient| {
            let domain = recipient.path.mailbox().unwrap().domain().key().into_owned();
            Destination::mx(self.to.map_or(domain, str::to_owned), TlsMode::May)
        };
        envelope.recipients.iter().map(|one| (destination(one), GroupId::default())).collect()
    }
}

/// An engine, and a driver that performs its effects at once.
struct Bench {
    engine: Engine,
    routing: Arc<dyn Routing>,
    now: Millis,
    /// The transactions of the spool, which refuses when it is busy.
    stored: Vec<Transaction>,
    is_busy: bool,
    /// Messages that can be read.
    messages: Vec<SharedMessage>,
    opened: Vec<ConnectionId>,
    woken: Vec<ConnectionId>,
    abandoned: Vec<(ConnectionId, Abandoned)>,
    leases: Vec<(ConnectionId, Lease)>,
    log: Vec<LogEvent>,
    reports: Vec<SharedMessage>,
    answers: Vec<(RequestId, Option<CommandResult>)>,
    wake_at: Option<Millis>,
}

fn context(now: Millis) -> Context {
    Context { now, wall: UnixMillis((WALL as Millis + now) as u64), worker: None }
}

fn bench() -> Bench {
    let settings = EngineSettings {
        queue: queue::QueueSettings::default(),
        cache_bytes: 0,
        hostname: "mx.test".into(),
        retry_at: RetryAt::Recorded,
        reports: ReportSettings::new(mail::Mailbox::parse("postmaster@mx.test", false).expect("an address")),
        soft_bounce: false,
    };
    let routing: Arc<dyn Routing> = Arc::new(ByDomain { to: None });
    let engine = Engine::new(settings, routing.clone(), Arc::<IdSource>::default(), 1, context(0));
    Bench {
        engine,
        routing,
        now: 0,
        stored: Vec::new(),
        is_busy: false,
        messages: Vec::new(),
        opened: Vec::new(),
        woken: Vec::new(),
        abandoned: Vec::new(),
        leases: Vec::new(),
        log: Vec::new(),
        reports: Vec::new(),
        answers: Vec::new(),
        wake_at: None,
    }
}

fn message(id: u64, arrived: Millis, recipient_count: u32) -> SharedMessage {
    let mut envelope = Envelope::new(ReversePath::parse("a@sender.test", false).unwrap());
    let to = |k| Recipient::new(ForwardPath::parse(&format!("c@d{k}.test"), false).unwrap());
    envelope.recipients = (0..recipient_count).map(to).collect();
    let content = Content::from_bytes("Subject: x\r\n\r\n");
    let (arrived, origin) = (context(arrived).wall, "test".into());
    SharedMessage::new(Message { id: QueueId(id), arrived, origin, envelope, content })
}

/// A message with two recipients at one destination.
fn with_two_at_one_destination(id: u64, arrived: Millis) -> SharedMessage {
    let mut both = (*message(id, arrived, 1)).clone();
    both.envelope.recipients = vec![both.envelope.recipients[0].clone(); 2];
    SharedMessage::new(both)
}

impl Bench {
    fn handle(&mut self, event: Event<'_>) {
        let mut effects = Vec::new();
        self.engine.handle(event, context(self.now), &mut effects);
        self.engine.check_invariants();
        let mut at = 0;
        while at < effects.len() {
            if let Effect::Submit { task, transaction } = &effects[at] {
                let (task, transaction) = (*task, transaction.clone());
                if self.is_busy {
                    let refused = Refused::Busy;
                    let event = Event::Refused { task, transaction, refused };
                    self.engine.handle(event, context(self.now), &mut effects);
                } else {
                    self.stored.push(transaction);
                    if let Some(task) = task {
                        let event = Event::Stored { task, result: Ok(()) };
                        self.engine.handle(event, context(self.now), &mut effects);
                    }
                }
            }
            at += 1;
        }
        effects.into_iter().for_each(|effect| self.perform(effect));
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Submit { .. } => {}
            Effect::Load { task, id } => {
                let found = self.messages.iter().find(|message| message.id == id);
                let result = found.cloned().ok_or(spool::SpoolFailure::Missing);
                self.handle(Event::Loaded { task, result });
            }
            Effect::Compose(request) => {
                let reports = request.compose(b"Subject: x\r\n\r\n", context(self.now).wall);
                let reports: Vec<_> = reports.into_iter().map(SharedMessage::new).collect();
                self.reports.extend(reports.iter().cloned());
                self.messages.extend(reports.iter().cloned());
                self.handle(Event::Composed { task: request.task(), reports });
            }
            Effect::OpenConnection { connection, .. } => self.opened.push(connection),
            Effect::WakeConnection(connection) => self.woken.push(connection),
            Effect::AbandonConnection { connection, why } => self.abandoned.push((connection, why)),
            Effect::Deliver { connection, lease, .. } | Effect::Expand { connection, lease, .. } => {
                self.leases.push((connection, lease));
            }
            Effect::Log(event) => self.log.push(event),
            Effect::WakeAt(at) => self.wake_at = Some(at),
            Effect::Answer { request, result } => self.answers.push((request, result.ok())),
            Effect::Fail(failure) => panic!("{failure}"),
        }
    }

    fn accept(&mut self, message: &SharedMessage) {
        self.messages.push(message.clone());
        let routed = Routed::new(self.routing.clone(), &message.envelope);
        self.handle(Event::Accepted { message: message.clone(), routed, held: None, is_late: false });
    }

    fn recover(&mut self, message: &SharedMessage) {
        self.messages.push(message.clone());
        let recipients = vec![RecipientState::default(); message.envelope.recipients.len()];
        self.handle(Event::Recovered(&Recovered { message: message.clone(), recipients, held: None }));
    }

    /// The next job of the connection that was opened last.
    fn lease(&mut self) -> (ConnectionId, Lease) {
        let connection = *self.opened.last().unwrap();
        self.handle(Event::ConnectionReady(connection));
        self.leases.pop().unwrap()
    }

    fn finish(&mut self, (connection, lease): (ConnectionId, Lease), results: Vec<(u32, Outcome)>) {
        let message = self.messages.iter().find(|message| message.id == lease.id).cloned();
        let attempt = Attempt { relay: "mx.d.test[192.0.2.1]:25".into(), ..Attempt::default() };
        self.handle(Event::AttemptFinished { connection, lease, message, results, attempt });
    }

    fn cancel(&mut self, id: u64, cancel_as: CancelAs) {
        let command = Command::Cancel { id: QueueId(id), recipients: None, cancel_as, reason: None };
        self.handle(Event::Operator { request: RequestId(id), command });
    }

    fn amendments(&self) -> Vec<ControlOp> {
        let amendment = |entry: &Entry| match entry {
            Entry::Control { op: change, .. } => Some(change.clone()),
            _ => None,
        };
        self.stored.iter().flatten().filter_map(amendment).collect()
    }
}

fn deferred() -> Outcome {
    Outcome::deferred(Enhanced(4, 2, 2), "452 mailbox full")
}

#[test]
fn one_report_has_all_recipients_that_end_together() {
    for is_expired in [false, true] {
        let mut bench = bench();
        bench.recover(&message(1, -10 * DAY, 20));
        bench.handle(Event::Started);
        if is_expired {
            bench.now = 2 * HOUR;
            bench.handle(Event::Tick);
        } else {
            bench.cancel(1, CancelAs::Bounce);
            assert_eq!(bench.answers, [(RequestId(1), Some(CommandResult::Changed))]);
        }
        let all = bench.engine.counters();
        let ended = if is_expired { (0, 20) } else { (20, 0) };
        assert_eq!((all.bounced, all.expired, all.accepted, all.queued), (ended.0, ended.1, 21, 1));
        assert_eq!(bench.reports.len(), 1);
        assert_eq!(bench.stored.len(), 1, "outcomes and report are one transaction");
        assert!(matches!(&bench.stored[0][..], [Entry::Outcome { last: true, .. }, Entry::Accept(_)]));
    }
}

#[test]
fn in_the_last_attempt_of_an_old_message_some_fail_and_the_others_expire() {
    let mut bench = bench();
    bench.recover(&with_two_at_one_destination(1, -10 * DAY));
    bench.handle(Event::Started);
    let unknown = Outcome { from_remote: true, ..Outcome::failed(Enhanced(5, 1, 1), "550 no such user") };
    let leased = bench.lease();
    bench.finish(leased, vec![(0, unknown), (1, deferred())]);
    let all = bench.engine.counters();
    assert_eq!((all.bounced, all.expired, all.queued), (1, 1, 1));
}

#[test]
fn a_remote_reply_with_the_status_of_an_expiry_is_a_bounce() {
    let mut bench = bench();
    bench.accept(&message(1, 0, 1));
    bench.handle(Event::Started);
    let leased = bench.lease();
    bench.finish(leased, vec![(0, Outcome::failed(Enhanced(5, 4, 7), "553 5.4.7 expired"))]);
    let all = bench.engine.counters();
    assert_eq!((all.bounced, all.expired), (1, 0));
}

#[test]
fn with_soft_bounce_a_failure_is_a_deferral_until_an_operator_or_the_lifetime_ends_it() {
    let mut bench = bench();
    let settings = EngineSettings { soft_bounce: true, ..bench.engine.settings.clone() };
    let routing = bench.routing.clone();
    bench.handle(Event::Reconfigured { settings, routing, is_rerouted: false });
    bench.accept(&message(1, 0, 1));
    bench.handle(Event::Started);
    let leased = bench.lease();
    bench.finish(leased, vec![(0, Outcome::failed(Enhanced(5, 1, 1), "550 5.1.1 no such user"))]);
    let all = bench.engine.counters();
    assert_eq!((all.bounced, all.queued), (0, 1));
    let last = bench.stored.last().unwrap();
    assert!(
        matches!(&last[..], [Entry::Outcome { results, last: false, .. }]
        if results[0].1.disposition == mail::Disposition::Deferred && results[0].1.status == Enhanced(4, 1, 1)),
        "{last:?}"
    );
    let cancel_as = CancelAs::Bounce;
    let command = Command::Cancel { id: QueueId(1), recipients: None, cancel_as, reason: None };
    bench.handle(Event::Operator { request: RequestId(1), command });
    assert_eq!(bench.engine.counters().bounced, 1);
}

#[test]
fn a_recipient_that_was_delivered_is_not_tried_again_when_the_message_cannot_be_read() {
    let mut bench = bench();
    bench.accept(&with_two_at_one_destination(1, 0));
    bench.handle(Event::Started);
    let leased = bench.lease();
    // The engine has to read the message for the report on the second recipient, and cannot.
    bench.messages.clear();
    let unknown = Outcome::failed(Enhanced(5, 1, 1), "550 no such user");
    bench.finish(leased, vec![(0, Outcome::delivered(Enhanced(2, 0, 0), "250 ok")), (1, unknown)]);
    let all = bench.engine.counters();
    assert_eq!((all.delivered, all.bounced, all.queued), (1, 0, 1));
    assert!(
        matches!(&bench.stored[..], [one] if matches!(&one[..], [Entry::Outcome { results, last: false, .. }]
        if matches!(&results[..], [(0, _)])))
    );
    assert_eq!(bench.engine.queue().recipients(QueueId(1)), [1]);
}

#[test]
fn a_delay_warning_names_the_recipients_that_still_wait() {
    let mut bench = bench();
    bench.accept(&message(1, 0, 2));
    bench.handle(Event::Started);
    let leased = bench.lease();
    let index = leased.1.recipients.as_slice()[0];
    bench.finish(leased, vec![(index, Outcome::delivered(Enhanced(2, 0, 0), "250 ok"))]);
    bench.now = 5 * HOUR;
    bench.handle(Event::Tick);
    let report = bench.reports.pop().unwrap();
    assert!(bench.reports.is_empty());
    let text = String::from_utf8(report.content.in_memory().unwrap().to_vec()).unwrap();
    assert!(text.contains("Action: delayed") && text.matches("Final-Recipient").count() == 1, "{text}");
    assert!(text.contains(&format!("c@d{}.test", 1 - index)), "{text}");
}

#[test]
fn a_busy_spool_gets_the_changes_of_a_message_in_the_order_in_which_an_operator_wanted_them() {
    let mut bench = bench();
    bench.accept(&message(1, 0, 1));
    bench.is_busy = true;
    let id = QueueId(1);
    for (request, command) in (1..).zip([
        Command::Hold { id, reason: "by root".into() },
        Command::Release(id),
        Command::Hold { id, reason: "by root".into() },
    ]) {
        bench.handle(Event::Operator { request: RequestId(request), command });
        bench.is_busy = false;
    }
    assert_eq!(bench.amendments(), [], "all wait behind the first one");
    assert_eq!(bench.engine.queue().message(id).unwrap().jobs[0].status, JobStatus::Held);
    while bench.engine.unstored_count() > 0 {
        bench.now = bench.wake_at.unwrap();
        bench.handle(Event::Tick);
    }
    assert_eq!(
        bench.amendments(),
        [ControlOp::Hold("by root".into()), ControlOp::Release, ControlOp::Hold("by root".into())]
    );
    assert_eq!(bench.answers, [1, 2, 3].map(|request| (RequestId(request), Some(CommandResult::Changed))));
}

#[test]
fn an_operator_is_answered_about_a_message_that_is_not_there() {
    let mut bench = bench();
    let id = QueueId(7);
    let cancel = Command::Cancel { id, recipients: None, cancel_as: CancelAs::Delete, reason: None };
    for command in
        [Command::Hold { id, reason: "by root".into() }, Command::Release(id), Command::Retry(id), cancel]
    {
        bench.handle(Event::Operator { request: RequestId(1), command });
        assert_eq!(bench.answers.pop(), Some((RequestId(1), Some(CommandResult::Missing))));
    }
    assert!(bench.stored.is_empty());
}

#[test]
fn a_recipient_that_is_cancelled_in_flight_ends_with_its_attempt() {
    let mut bench = bench();
    bench.accept(&message(1, 0, 1));
    bench.handle(Event::Started);
    let leased = bench.lease();
    bench.cancel(1, CancelAs::Delete);
    assert_eq!(bench.engine.counters().deleted, 0);
    bench.finish(leased, vec![(0, deferred())]);
    assert_eq!((bench.engine.counters().deleted, bench.engine.counters().queued), (1, 0));
    let deleted = Totals { deleted: 1, ..Totals::default() };
    assert!(matches!(&bench.stored[1][..], [_, Entry::Count(counted)] if *counted == deleted));
    assert_eq!(bench.stored.len(), 2);
    assert!(bench.reports.is_empty());
}

#[test]
fn a_reload_moves_what_waits_at_once_and_what_is_in_flight_after_its_attempt() {
    let mut bench = bench();
    bench.accept(&message(1, 0, 1));
    bench.handle(Event::Started);
    let leased = bench.lease();
    bench.accept(&message(2, 0, 1));
    bench.routing = Arc::new(ByDomain { to: Some("hub.test") });
    let settings = EngineSettings { hostname: "new.test".into(), ..bench.engine.settings.clone() };
    let routing = bench.routing.clone();
    bench.handle(Event::Reconfigured { settings, routing, is_rerouted: true });
    let target = |bench: &Bench, id| {
        bench.engine.queue().message(QueueId(id)).unwrap().jobs[0].destination.to_string()
    };
    assert_eq!((&*target(&bench, 1), &*target(&bench, 2)), ("mx:d0.test", "mx:hub.test"));
    bench.finish(leased, vec![(0, deferred())]);
    assert_eq!(&*target(&bench, 1), "mx:d0.test");
    bench.now += 1000;
    bench.handle(Event::Tick);
    assert_eq!(&*target(&bench, 1), "mx:hub.test");
}

#[test]
fn null_mx_fails_every_recipient_that_waits_for_the_destination() {
    let mut bench = bench();
    bench.accept(&message(1, 0, 1));
    bench.accept(&message(2, 0, 1));
    bench.handle(Event::Started);
    let (connection, attempt) = (bench.opened[0], Attempt::default());
    let outcome = Outcome::failed(Enhanced(5, 1, 10), "the domain takes no mail");
    bench.handle(Event::DestinationUnreachable { connection, outcome, attempt });
    bench.handle(Event::ConnectionClosed { connection, leases: Vec::new() });
    assert_eq!((bench.engine.counters().bounced, bench.reports.len()), (2, 2));
}

#[test]
fn after_shutdown_nothing_new_begins_and_idle_connections_leave() {
    let mut bench = bench();
    bench.accept(&message(1, 0, 1));
    bench.handle(Event::Started);
    let leased = bench.lease();
    let connection = leased.0;
    bench.finish(leased, vec![(0, Outcome::delivered(Enhanced(2, 0, 0), "250 ok"))]);
    bench.handle(Event::ConnectionIdle(connection));
    assert!(bench.woken.is_empty() && !bench.engine.should_close(connection));
    bench.handle(Event::Shutdown);
    assert_eq!(bench.woken, [connection]);
    assert!(bench.engine.should_close(connection));
    bench.accept(&message(2, 0, 1));
    bench.handle(Event::ConnectionReady(connection));
    assert!(bench.leases.is_empty() && bench.opened.len() == 1);
    bench.handle(Event::ConnectionClosed { connection, leases: Vec::new() });
}

#[test]
fn the_end_of_a_recovered_message_without_open_recipients_is_stored() {
    let mut bench = bench();
    let last = Some((UnixMillis(WALL), Outcome::delivered(Enhanced(2, 0, 0), "")));
    let recipients = vec![RecipientState { settled: true, attempt_count: 1, last }];
    bench.handle(Event::Recovered(&Recovered { message: message(1, 0, 1), recipients, held: None }));
    assert!(matches!(&bench.stored[..], [one] if matches!(one[..], [Entry::Outcome { last: true, .. }])));
    assert_eq!(bench.engine.counters().accepted, 0);
}

#[test]
fn what_a_wrong_clock_deferred_in_years_to_come_waits_no_longer_than_the_first_wait() {
    let wait_of = |arrived: Millis, tried: Millis| {
        let mut bench = bench();
        let last = Some((context(tried).wall, Outcome::deferred(Enhanced(4, 4, 1), "nobody answers")));
        let recipients = vec![RecipientState { settled: false, attempt_count: 1, last }];
        let message = message(1, arrived, 1);
        bench.handle(Event::Recovered(&Recovered { message, recipients, held: None }));
        match bench.engine.queue().message(QueueId(1)).unwrap().jobs[0].status {
            JobStatus::Waiting(due) => due,
            ref other => panic!("{other:?}"),
        }
    };
    let (least, years) = (wait_of(0, 0), 3650 * DAY);
    assert!((1..HOUR).contains(&least), "{least}");
    assert_eq!((wait_of(0, years), wait_of(years, years)), (least, least));
}

#[test]
fn connections_whose_mail_is_deleted_or_held_are_given_up() {
    for hold in [false, true] {
        let mut bench = bench();
        bench.handle(Event::Started);
        // One connects, one waits for a reply, and one has other mail to deliver.
        for id in 1..=3 {
            let mut to = (*message(id, 0, 1)).clone();
            let path = format!("c@d{id}.test");
            to.envelope.recipients = vec![Recipient::new(ForwardPath::parse(&path, false).unwrap())];
            bench.accept(&SharedMessage::new(to));
            if id > 1 {
                bench.handle(Event::ConnectionReady(*bench.opened.last().unwrap()));
            }
        }
        let mut more = (*message(4, 0, 1)).clone();
        more.envelope.recipients = vec![Recipient::new(ForwardPath::parse("c@d1.test", false).unwrap())];
        bench.accept(&SharedMessage::new(more));
        let end = |bench: &mut Bench, id: u64| {
            let command = match hold {
                true => Command::Hold { id: QueueId(id), reason: "by root".into() },
                false => Command::Cancel {
                    id: QueueId(id),
                    recipients: None,
                    cancel_as: CancelAs::Delete,
                    reason: None,
                },
            };
            bench.handle(Event::Operator { request: RequestId(id), command });
        };
        let unwanted = |at: usize, bench: &Bench| (bench.opened[at], Abandoned::Unwanted);
        end(&mut bench, 1);
        assert_eq!(bench.abandoned, [], "another message waits for the same destination");
        end(&mut bench, 4);
        assert_eq!(bench.abandoned, [unwanted(0, &bench)]);
        end(&mut bench, 2);
        assert_eq!(bench.abandoned, [unwanted(0, &bench), unwanted(1, &bench)]);
        end(&mut bench, 2);
        assert_eq!(bench.abandoned.len(), 2, "a connection is given up once");
        let leases = std::mem::take(&mut bench.leases);
        for (connection, lease) in leases {
            bench.handle(Event::ConnectionClosed { connection, leases: vec![lease] });
        }
        bench.handle(Event::ConnectionClosed { connection: bench.opened[0], leases: Vec::new() });
    }
}

#[test]
fn newcomers_without_an_answer_make_room_for_those_that_wait() {
    let mut bench = bench();
    bench.handle(Event::Started);
    for id in 0..600 {
        let mut to = (*message(id, 0, 1)).clone();
        let path = format!("c@n{id}.test");
        to.envelope.recipients = vec![Recipient::new(ForwardPath::parse(&path, false).unwrap())];
        bench.accept(&SharedMessage::new(to));
    }
    assert_eq!((bench.opened.len(), bench.abandoned.len()), (500, 0));
    assert!(bench.wake_at.is_some_and(|at| at <= 10_000));
    // What has delivered is no newcomer any more, and stays.
    let first = bench.opened[0];
    bench.handle(Event::ConnectionReady(first));
    let lease = bench.leases.pop().unwrap();
    bench.finish(lease, vec![(0, Outcome::delivered(Enhanced(2, 0, 0), "250 ok"))]);
    assert_eq!(bench.opened.len(), 501, "its place is another one's");
    bench.now = 9_999;
    bench.handle(Event::Tick);
    assert_eq!(bench.abandoned, []);
    bench.now = 10_000;
    bench.handle(Event::Tick);
    assert_eq!(bench.abandoned.len(), 99, "one for each destination that waits");
    assert!(!bench.abandoned.contains(&(first, Abandoned::Crowded)));
    let outcome = Outcome::deferred(Enhanced(4, 4, 1), "no answer");
    for (connection, _) in bench.abandoned.clone() {
        let (outcome, attempt) = (outcome.clone(), Attempt::default());
        bench.handle(Event::DestinationUnreachable { connection, outcome, attempt });
        bench.handle(Event::ConnectionClosed { connection, leases: Vec::new() });
    }
    assert_eq!((bench.opened.len(), bench.abandoned.len()), (600, 99));
}

#[test]
fn servers_that_have_taken_mail_and_fall_silent_make_room_for_those_that_wait() {
    let mut bench = bench();
    bench.handle(Event::Started);
    let accept = |bench: &mut Bench, id: u64, domain: u64| {
        let mut to = (*message(id, 0, 1)).clone();
        let path = format!("c@n{domain}.test");
        to.envelope.recipients = vec![Recipient::new(ForwardPath::parse(&path, false).unwrap())];
        bench.accept(&SharedMessage::new(to));
    };
    let delivered = || vec![(0, Outcome::delivered(Enhanced(2, 0, 0), "250 ok"))];
    for id in 0..751 {
        accept(&mut bench, id, id);
        let connection = *bench.opened.last().unwrap();
        bench.handle(Event::ConnectionReady(connection));
        let lease = bench.leases.pop().unwrap();
        bench.finish(lease, delivered());
        bench.handle(Event::ConnectionClosed { connection, leases: Vec::new() });
    }
    bench.opened.clear();
    for id in 0..751 {
        accept(&mut bench, 1000 + id, id);
    }
    assert_eq!(bench.opened.len(), 750, "all connections of remote mail");
    let (working, sending) = (bench.opened[0], bench.opened[1]);
    bench.handle(Event::ConnectionReady(working));
    let lease = bench.leases.pop().unwrap();
    bench.handle(Event::ConnectionReady(sending));
    bench.now = 5000;
    bench.finish(lease, delivered());
    bench.now = 10_000;
    bench.handle(Event::Tick);
    assert_eq!(bench.abandoned, [(sending, Abandoned::Crowded)], "one for each destination that waits");
    // Content that is being sent is finished, and then the connection ends.
    accept(&mut bench, 2000, 1);
    assert!(bench.engine.should_close(sending) && !bench.leases.is_empty());
    bench.leases.clear();
    bench.handle(Event::ConnectionReady(sending));
    assert!(bench.leases.is_empty());
    // It does not go: the next one.
    bench.now = 10_500;
    bench.handle(Event::Tick);
    assert_eq!(bench.abandoned[1..], [(bench.opened[2], Abandoned::Crowded)]);
}

#[test]
fn what_takes_the_place_of_redirected_recipients_is_durable_before_they_end_and_no_attempt_is_interrupted() {
    let mut bench = bench();
    bench.handle(Event::Started);
    let old = message(1, 0, 2);
    bench.accept(&old);
    let redirect = |recipients: &[u32], replacement: u64| {
        let (message, replacement) = (old.clone(), message(replacement, 0, 1));
        let (recipients, text) = (recipients.into(), "redirected".into());
        let redirect = Redirect { message, recipients, replacement, reports: Vec::new(), text };
        let command = Command::Redirect(Box::new(redirect));
        Event::Operator { request: RequestId(1), command }
    };
    let lease = bench.lease();
    let busy = lease.1.recipients.as_slice()[0];
    bench.handle(redirect(&[0, 1], 2));
    assert_eq!(bench.answers.pop().unwrap().1, Some(CommandResult::Unchanged), "one is in flight");
    bench.is_busy = true;
    bench.handle(redirect(&[1 - busy], 3));
    assert!(bench.answers.is_empty() && bench.engine.queue().recipients(QueueId(1)).len() == 2);
    (bench.is_busy, bench.now) = (false, 200);
    bench.handle(Event::Tick);
    assert_eq!(bench.answers.pop().unwrap().1, Some(CommandResult::Changed));
    let kinds = bench.stored.iter().flatten().map(|entry| match entry {
        Entry::Accept(message) => message.id.0,
        Entry::Outcome { id, .. } => id.0,
        _ => 0,
    });
    assert_eq!(kinds.collect::<Vec<_>>(), [3, 1], "the new message first");
    assert_eq!(bench.engine.queue().recipients(QueueId(1)), [busy]);
    let counters = bench.engine.counters();
    assert_eq!((counters.delivered, counters.moved), (0, 1), "it was not delivered, but redirected");
    bench.handle(redirect(&[1 - busy], 4));
    assert_eq!(bench.answers.pop().unwrap().1, Some(CommandResult::Unchanged), "it has ended");
}

#[test]
fn a_destination_whose_connections_all_fail_is_suspended_once_in_the_log() {
    let mut bench = bench();
    bench.handle(Event::Started);
    for id in 0..20 {
        let message = message(id, 0, 1);
        bench.accept(&message);
    }
    let mut fail = |now| {
        bench.now = now;
        bench.handle(Event::Tick);
        let mut opened = 0;
        while !bench.opened.is_empty() {
            let connection = bench.opened.remove(0);
            let (outcome, attempt) = (deferred(), Attempt::default());
            bench.handle(Event::DestinationUnreachable { connection, outcome, attempt });
            bench.handle(Event::ConnectionClosed { connection, leases: Vec::new() });
            opened += 1;
        }
        let suspensions =
            bench.log.iter().filter(|event| matches!(event, LogEvent::Suspended { .. })).count();
        (opened, suspensions)
    };
    let (opened, suspensions) = fail(0);
    assert!(opened > 1, "{opened}");
    assert_eq!(suspensions, 1);
    // Each probe that fails is told.
    assert_eq!(fail(HOUR).1, 2);
}

/// All recipients are expanded later.
struct Later;

impl Routing for Later {
    fn route(&self, envelope: &Envelope) -> Vec<(Destination, GroupId)> {
        let later = || (Destination::new(NextHop::Expand, TlsMode::Off), GroupId::default());
        envelope.recipients.iter().map(|_| later()).collect()
    }
}

#[test]
fn expansions_are_ordered_without_a_connection_and_each_makes_room_for_the_next() {
    let mut bench = bench();
    let routing: Arc<dyn Routing> = Arc::new(Later);
    bench.routing = routing.clone();
    bench.handle(Event::Reconfigured {
        settings: bench.engine.settings.clone(),
        routing,
        is_rerouted: false,
    });
    bench.handle(Event::Started);
    for id in 1..=30 {
        bench.accept(&message(id, 0, 1));
    }
    assert_eq!(bench.opened, [], "the driver has no connection");
    let ordered = bench.leases.len();
    assert!((1..30).contains(&ordered), "{ordered}");
    assert_eq!(bench.engine.expansion_count(), bench.engine.queue().connection_count());
    let mut done = 0;
    while let Some((connection, lease)) = bench.leases.pop() {
        done += 1;
        let outcome =
            if done % 3 == 0 { deferred() } else { Outcome::delivered(Enhanced(2, 0, 0), "expanded") };
        let results = lease.recipients.as_slice().iter().map(|index| (*index, outcome.clone())).collect();
        let attempt = Attempt::default();
        bench.handle(Event::AttemptFinished { connection, lease, message: None, results, attempt });
    }
    assert_eq!((done, bench.engine.queue().len()), (30, 10));
    assert_eq!((bench.engine.expansion_count(), bench.engine.queue().connection_count()), (0, 0));
    // What waits is tried again in its time, and nothing at the end.
    bench.now = DAY;
    bench.handle(Event::Shutdown);
    bench.handle(Event::Tick);
    assert!(bench.leases.is_empty());
}
