//! The submit socket, from one end to the other.

use super::{
    envelope::Header,
    fake::{Daemon, MESSAGE_BYTES_MAX},
    submit_client::{self, Submitted},
    *,
};
use mail::{Envelope, ForwardPath, QueueId, Recipient, ReversePath};
use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
};

fn envelope() -> Envelope {
    let mut e = Envelope::new(ReversePath::parse("a@a.test", false).unwrap());
    e.recipients.push(Recipient::new(ForwardPath::parse("b@b.test", false).unwrap()));
    e
}

fn submit(daemon: &Daemon, content: &[u8]) -> Submitted {
    submit_client::submit(&daemon.socket, &envelope(), content).unwrap()
}

#[test]
fn a_submitted_message_arrives_in_wire_form_with_the_users_number() {
    let daemon = Daemon::serving();
    let answer = submit(&daemon, b"Subject: x\n\n.\nbare\rcr\n");
    assert_eq!(answer, Submitted::Accepted(QueueId(77)));
    let submitted = daemon.target.submitted.lock().unwrap();
    let [submission] = &submitted[..] else { panic!("{submitted:?}") };
    assert_eq!(submission.envelope, envelope());
    assert_eq!(&submission.content[..], b"Subject: x\r\n\r\n.\r\nbare cr\r\n");
    assert_eq!(submission.origin(), mail::Origin::Local { uid: rustix::process::geteuid().as_raw() });
}

#[test]
fn the_largest_message_is_taken_and_a_larger_one_is_not() {
    let daemon = Daemon::serving();
    let size = usize::try_from(MESSAGE_BYTES_MAX).unwrap();
    assert_eq!(submit(&daemon, &vec![b'x'; size]), Submitted::Accepted(QueueId(77)));
    let Submitted::Refused(refusal) = submit(&daemon, &vec![b'x'; size + 1]) else { panic!() };
    assert!(refusal.permanent && refusal.text.starts_with("552 5.3.4"), "{refusal:?}");
}

#[test]
fn what_the_daemon_says_reaches_the_submitter() {
    let daemon = Daemon::serving();
    let refusal = Refusal::temporary("452 4.3.1 full");
    *daemon.target.refuse.lock().unwrap() = Some(refusal.clone());
    assert_eq!(submit(&daemon, b"x"), Submitted::Refused(refusal));
}

/// The answer, behind the greeting, to these bytes and the end of input.
fn answer_to(daemon: &Daemon, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(&daemon.socket).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.strip_prefix("ready\n").expect("the daemon greets").to_owned()
}

#[test]
fn a_bad_envelope_is_refused_and_a_torn_message_is_not_accepted() {
    let daemon = Daemon::serving();
    assert!(answer_to(&daemon, b"junk\n").contains("501 5.5.4"));
    let mut header = Header::new(&envelope(), 10);
    header.recipients[0].address = "b@b.test>\nX".to_owned();
    assert!(answer_to(&daemon, &header.to_line()).contains("501 5.1.3"));
    let torn = [&Header::new(&envelope(), 10).to_line()[..], b"only nine"].concat();
    assert_eq!(answer_to(&daemon, &torn), "");
    assert!(daemon.target.submitted.lock().unwrap().is_empty());
}

#[test]
fn one_user_cannot_take_all_the_connections_and_gets_them_back() {
    let daemon = Daemon::serving();
    let header = Header::new(&envelope(), 1).to_line();
    // Each has sent its envelope and owes one byte.
    let open: Vec<UnixStream> = (0..64)
        .map(|_| {
            let mut stream = UnixStream::connect(&daemon.socket).unwrap();
            stream.write_all(&header).unwrap();
            stream
        })
        .collect();
    let Submitted::Refused(refusal) = submit(&daemon, b"x") else { panic!("one too many was taken") };
    assert!(!refusal.permanent);
    for mut stream in open {
        stream.write_all(b"x").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("accepted"), "{answer}");
    }
    assert_eq!(submit(&daemon, b"x"), Submitted::Accepted(QueueId(77)));
}
