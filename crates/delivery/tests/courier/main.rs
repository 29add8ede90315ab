//! Couriers against servers that follow a script: what they say, and what becomes of each recipient.

mod next_host;
mod support;
mod tls;

use delivery::{EightBit, LeasedMessage};
use mail::{ChunkId, Content, Disposition, DsnDuty, Outcome, Part, TlsMode};
use std::sync::Arc;
use support::{
    Queue, Server, TestWork, courier, courier_for, deliver, deliver_all, lease, lease_of, read_line, say,
};
use tokio::{io::BufReader, net::TcpListener};

#[tokio::test]
async fn many_messages_go_over_one_connection() {
    let server = Server::new(&[]);
    let work = deliver(&server, TlsMode::Off, (0..20).map(|id| lease(id, 2)).collect()).await;
    for id in 0..20 {
        assert_eq!(work.dispositions(id), ["sent", "sent"]);
    }
    assert_eq!((server.count("EHLO"), server.count("MAIL"), server.count("QUIT")), (1, 20, 1));
    assert_eq!(work.attempt(3).dsn_duty, DsnDuty::ReportRelayed);
    assert!(work.attempt(3).relay.starts_with("localhost[127.0.0.1]:"));
}

#[tokio::test]
async fn each_recipient_gets_its_own_outcome() {
    let server = Server::new(&[("RCPT TO:<r1@", "550 5.1.1 no"), ("RCPT TO:<r2@", "450 4.2.1 later")]);
    let work = deliver(&server, TlsMode::Off, vec![lease(1, 4)]).await;
    assert_eq!(work.dispositions(1), ["sent", "bounced", "deferred", "sent"]);
}

#[tokio::test]
async fn recipients_that_were_too_many_follow_at_once() {
    let server = Server::new(&[]);
    let mut limited = server.clone();
    limited.extensions.push("LIMITS RCPTMAX=3");
    let work = deliver(&limited, TlsMode::Off, vec![lease(1, 7)]).await;
    assert_eq!(work.dispositions(1), ["sent"; 7]);
    assert_eq!((server.count("MAIL"), server.count("RCPT")), (3, 7));
    // A server that says so only when it happens.
    let server = Server::new(&[("RCPT TO:<r5@", "452 4.5.3 too many")]);
    let work = deliver(&server, TlsMode::Off, vec![lease(1, 6)]).await;
    assert_eq!(work.dispositions(1), ["sent", "sent", "sent", "sent", "sent", "deferred"]);
    assert_eq!(server.count("MAIL"), 2, "it was tried alone, too");
}

#[tokio::test]
async fn a_transaction_has_at_most_the_announced_number_of_rcpt_commands() {
    for limits in ["LIMITS RCPTMAX=3", "limits rcptmax=3", "LIMITS RCPTMAX=0 MAILMAX=x RCPTMAX=3 OTHER=1"] {
        for extensions in [vec!["PIPELINING", limits], vec![limits]] {
            // The limit is one of RCPT commands, not of accepted recipients (RFC 9422).
            let answers = vec![("RCPT TO:<r1@", "550 5.1.1 no")];
            let server = Server { answers, extensions, ..Server::new(&[]) };
            let work = deliver_all(&server, vec![lease(1, 7), lease(2, 3)]).await;
            assert_eq!(
                work.dispositions(1),
                ["sent", "bounced", "sent", "sent", "sent", "sent", "sent"],
                "{limits}"
            );
            assert_eq!(work.dispositions(2), ["sent", "bounced", "sent"], "{limits}");
            let seen = server.seen.lock().unwrap();
            let transactions = seen.split(|command| command.starts_with("MAIL"));
            let mut rcpt_counts: Vec<usize> = transactions
                .map(|commands| commands.iter().filter(|command| command.starts_with("RCPT")).count())
                .filter(|count| *count > 0)
                .collect();
            rcpt_counts.sort_unstable();
            assert_eq!(rcpt_counts, [1, 3, 3, 3], "{limits}");
        }
    }
}

#[tokio::test]
async fn a_connection_carries_at_most_the_announced_number_of_mail_commands() {
    for close_with in ["421 4.7.0 too many messages", "452 4.5.3 too many messages", "550 5.7.1 too many"] {
        for limits in ["LIMITS MAILMAX=2", "limits mailmax=2 RCPTMAX=3"] {
            for extensions in [vec!["PIPELINING", limits], vec![limits]] {
                let server = Server {
                    transactions_max: 2,
                    close_with: Some(close_with),
                    extensions,
                    ..Server::new(&[])
                };
                let work = deliver_all(&server, (0..5).map(|id| lease(id, 2)).collect()).await;
                for id in 0..5 {
                    assert_eq!(work.dispositions(id), ["sent", "sent"], "{close_with} {limits}");
                }
                assert!(work.returned.lock().unwrap().is_empty(), "{close_with} {limits}");
                let counts = (server.count("EHLO"), server.count("MAIL"), server.count("QUIT"));
                assert_eq!(counts, (3, 5, 3), "{close_with} {limits}");
            }
        }
    }
}

#[tokio::test]
async fn the_transactions_of_one_message_go_over_as_many_connections_as_the_announced_limit_needs() {
    for extensions in [vec!["PIPELINING", "LIMITS MAILMAX=1 RCPTMAX=1"], vec!["LIMITS MAILMAX=1 RCPTMAX=1"]] {
        let server = Server {
            transactions_max: 1,
            close_with: Some("452 4.5.3 too many messages"),
            extensions,
            ..Server::new(&[("RCPT TO:<r1", "550 5.1.1 no")])
        };
        // r1 and r10 to r15 are refused. A MAIL command without an accepted recipient counts, too.
        let work = deliver_all(&server, vec![lease(1, 16), lease(2, 1)]).await;
        let mut dispositions = vec!["sent", "bounced"];
        dispositions.extend(["sent"; 8]);
        dispositions.extend(["bounced"; 6]);
        assert_eq!((work.dispositions(1), work.dispositions(2)), (dispositions, vec!["sent"]));
        assert_eq!((server.count("EHLO"), server.count("MAIL")), (17, 17));
        // More recipients in succession are refused than connections may be replaced without progress.
        let server = Server { answers: vec![("RCPT", "550 5.1.1 no")], ..server };
        let work = deliver_all(&server, vec![lease(3, 14)]).await;
        assert_eq!(work.dispositions(3), ["bounced"; 14]);
    }
}

#[tokio::test]
async fn too_many_recipients_is_552_in_older_servers() {
    for answer in ["552 5.5.3 too many", "552 too many", "452 too many"] {
        let mut server = Server::new(&[("RCPT TO:<r0@", "550 5.1.1 no")]);
        server.too_many = Some((2, answer));
        let work = deliver(&server, TlsMode::Off, vec![lease(1, 6)]).await;
        assert_eq!(work.dispositions(1), ["bounced", "sent", "sent", "sent", "sent", "sent"], "{answer}");
        assert_eq!(server.count("MAIL"), 3, "{answer}");
    }
    // A full mailbox is its own, and a message that is too large is so for each of them.
    for answers in [[("RCPT TO:<r1@", "552 5.2.2 full")], [(".", "552 too large")]] {
        let mut server = Server::new(&answers);
        server.answers.push(("RCPT TO:<r0@", "550 5.1.1 no"));
        let work = deliver(&server, TlsMode::Off, vec![lease(1, 2)]).await;
        assert_eq!(work.dispositions(1), ["bounced", "bounced"], "{answers:?}");
        assert_eq!(server.count("MAIL"), 1, "{answers:?}");
    }
}

#[tokio::test]
async fn a_message_to_many_goes_in_transactions_of_the_configured_number_of_recipients() {
    let server = Server::new(&[]);
    let work = deliver(&server, TlsMode::Off, vec![lease(1, 250)]).await;
    assert_eq!(work.dispositions(1), ["sent"; 250]);
    assert_eq!((server.count("MAIL"), server.count("RCPT"), server.count("EHLO")), (3, 250, 1));
}

#[tokio::test]
async fn too_many_recipients_in_any_form_splits_the_job() {
    for answer in ["550 5.5.3 too many", "554 5.5.3 too many", "550 4.5.3 too many", "451 4.5.3 too many"] {
        for extensions in [vec!["PIPELINING"], vec![]] {
            let server = Server { too_many: Some((2, answer)), extensions, ..Server::new(&[]) };
            let work = deliver(&server, TlsMode::Off, vec![lease(1, 5)]).await;
            assert_eq!(work.dispositions(1), ["sent"; 5], "{answer}");
            assert_eq!((server.count("MAIL"), server.count("EHLO")), (3, 1), "{answer}");
        }
    }
    // Said of one recipient alone it is temporary.
    let server = Server::new(&[("RCPT TO:<r0@", "554 5.5.3 too many")]);
    let work = deliver(&server, TlsMode::Off, vec![lease(1, 1)]).await;
    let settled = work.completed.lock().unwrap();
    assert_eq!(
        (settled[0].1[0].1.disposition, settled[0].1[0].1.status),
        (Disposition::Deferred, mail::Enhanced(4, 5, 3))
    );
}

#[tokio::test]
async fn too_many_recipients_at_data_or_at_the_end_of_the_content_halves_the_transaction() {
    let bare = ["452 too many", "452 4.0.0 too many"];
    let clear =
        ["452 4.5.3 no", "552 5.5.3 no", "550 5.5.3 no", "554 5.5.3 no", "451 4.5.3 no", "552 4.5.3 no"];
    for answer in clear.into_iter().chain(bare) {
        for (at, extensions) in
            [("DATA", vec!["PIPELINING"]), ("DATA", vec![]), (".", vec!["PIPELINING"]), (".", vec![])]
        {
            let refuses_larger = Some((3, at, answer));
            let answers = vec![("RCPT TO:<r1@", "550 5.1.1 no")];
            let server = Server { answers, refuses_larger, extensions, ..Server::new(&[]) };
            let work = deliver(&server, TlsMode::Off, vec![lease(1, 14), lease(2, 4)]).await;
            let mut dispositions = ["sent"; 14];
            dispositions[1] = "bounced";
            assert_eq!(work.dispositions(1), dispositions, "{answer} at {at}");
            assert_eq!(work.dispositions(2), dispositions[..4], "{answer} at {at}");
            // 13 recipients, 6, 3, 3, 3, 3 and 1. The second lease has 3, in one transaction if it began before the limit
            // was known.
            assert_eq!(server.count("EHLO"), 1, "{answer} at {at}");
            assert!((8..=9).contains(&server.count("MAIL")), "{} {answer} at {at}", server.count("MAIL"));
        }
    }
}

#[tokio::test]
async fn a_server_that_ends_the_connection_behind_too_many_recipients_gets_fewer_over_the_next_one() {
    for at in ["DATA", "."] {
        // It says so with 421, or closes when the next transaction begins, with or without a word.
        for (answer, close_with) in [
            ("421 4.5.3 too many", None),
            ("552 5.5.3 too many", None),
            ("552 5.5.3 too many", Some("421 4.7.0 closing")),
        ] {
            for extensions in [vec!["PIPELINING"], vec![]] {
                let refuses_larger = Some((2, at, answer));
                let server = Server {
                    refuses_larger,
                    close_with,
                    extensions,
                    transactions_max: 1,
                    ..Server::new(&[])
                };
                let work = deliver(&server, TlsMode::Off, vec![lease(1, 5)]).await;
                assert_eq!(work.dispositions(1), ["sent"; 5], "{answer} at {at}");
                assert!(work.returned.lock().unwrap().is_empty());
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_of_one_recipient_alone_counts_as_the_server_says() {
    for at in ["DATA", "."] {
        let refusing = |answer| Server { refuses_larger: Some((0, at, answer)), ..Server::new(&[]) };
        for answer in ["452 4.5.3 too many", "452 too many", "552 4.5.3 too many"] {
            let server = refusing(answer);
            let work = deliver(&server, TlsMode::Off, vec![lease(1, 8)]).await;
            let disposition = if answer.starts_with('4') { "deferred" } else { "bounced" };
            assert_eq!(work.dispositions(1), [disposition; 8], "{answer} at {at}");
            // 8, 4, 2 and 1 recipients: then it is clear that the number is not the cause. What is final is asked
            // for each recipient.
            let count = if disposition == "deferred" { 4 } else { 3 + 8 };
            assert_eq!((server.count("MAIL"), server.count("EHLO")), (count, 1), "{answer} at {at}");
        }
        // What was only possible is not remembered for other messages, because it was not so.
        let server = Server { extensions: vec![], ..refusing("452 busy") };
        deliver(&server, TlsMode::Off, vec![lease(1, 4), lease(2, 4)]).await;
        assert_eq!(server.count("RCPT"), 2 * (4 + 2 + 1));
        // It is remembered once a smaller transaction was accepted.
        let refuses_larger = Some((3, at, "452 too many"));
        let server = Server { refuses_larger, extensions: vec![], ..Server::new(&[]) };
        deliver(&server, TlsMode::Off, vec![lease(1, 6), lease(2, 6)]).await;
        assert_eq!(server.count("RCPT"), 6 + 6 + 6);
    }
}

#[tokio::test]
async fn a_refusal_at_data_for_another_reason_splits_nothing() {
    for at in ["DATA", "."] {
        for (answer, disposition) in [
            ("552 5.3.4 too big", "bounced"),
            ("552 5.2.2 full", "bounced"),
            ("552 too big", "bounced"),
            ("554 5.7.1 no", "bounced"),
            ("554 no", "bounced"),
            ("550 no", "bounced"),
            ("452 4.2.2 full", "deferred"),
            ("452 4.3.1 no storage", "deferred"),
            ("451 later", "deferred"),
        ] {
            let server = Server { refuses_larger: Some((3, at, answer)), ..Server::new(&[]) };
            let work = deliver(&server, TlsMode::Off, vec![lease(1, 4)]).await;
            assert_eq!(
                (work.dispositions(1), server.count("MAIL")),
                (vec![disposition; 4], 1),
                "{answer} at {at}"
            );
        }
        // What a server says while it takes the content is no refusal.
        let server = Server::new(&[(".", "250 2.5.3 taken")]);
        let work = deliver(&server, TlsMode::Off, vec![lease(1, 4)]).await;
        assert_eq!((work.dispositions(1), server.count("MAIL")), (vec!["sent"; 4], 1));
    }
    // LMTP answers for each recipient.
    let server = Server { lmtp: true, ..Server::new(&[(".", "452 4.5.3 a\r\n452 4.5.3 b")]) };
    let work = deliver(&server, TlsMode::Off, vec![lease(1, 2)]).await;
    assert_eq!((work.dispositions(1), server.count("MAIL")), (vec!["deferred"; 2], 1));
}

#[tokio::test]
async fn a_server_that_closes_behind_its_limit_of_recipients_gets_fewer_over_the_next_connection() {
    for answer in ["421 4.5.3 too many", "421 too many", "CLOSE"] {
        for extensions in [vec!["PIPELINING"], vec![]] {
            let server = Server { too_many: Some((3, answer)), extensions, ..Server::new(&[]) };
            let work = deliver(&server, TlsMode::Off, vec![lease(1, 7)]).await;
            assert_eq!(work.dispositions(1), ["sent"; 7], "{answer}");
            assert_eq!((server.count("EHLO"), server.count("MAIL")), (2, 4), "{answer}");
            assert!(work.returned.lock().unwrap().is_empty());
        }
    }
    // One that takes none is tried again later.
    let server = Server { too_many: Some((0, "421 too many")), ..Server::new(&[]) };
    let work = deliver(&server, TlsMode::Off, vec![lease(1, 7)]).await;
    assert_eq!((work.dispositions(1), server.count("EHLO")), (vec!["deferred"; 7], 1));
}

#[tokio::test]
async fn a_server_that_closes_in_reply_to_data_gets_half_the_recipients_over_the_next_connection() {
    for extensions in [vec!["PIPELINING"], vec![]] {
        let refuses_larger = Some((3, "DATA", "CLOSE"));
        let server = Server { refuses_larger, extensions: extensions.clone(), ..Server::new(&[]) };
        let work = deliver(&server, TlsMode::Off, vec![lease(1, 14), lease(2, 4)]).await;
        assert_eq!((work.dispositions(1), work.dispositions(2)), (vec!["sent"; 14], vec!["sent"; 4]));
        // 14, 7, and then 3, 3, 3, 3 and 2 recipients. The smaller transaction was accepted, so 4 go as 3 and 1. With
        // pipelining the second lease begins before that, and the server closes once more.
        let connection_count = if extensions.is_empty() { 3 } else { 4 };
        assert_eq!((server.count("EHLO"), server.contents.lock().unwrap().len()), (connection_count, 7));
        assert!(work.returned.lock().unwrap().is_empty());

        // Recipients that were refused for their number follow, and recipients that were refused for another reason
        // do not.
        let answers = vec![("RCPT TO:<r1@", "550 5.1.1 no")];
        let too_many = Some((4, "452 4.5.3 too many"));
        let server = Server { answers, too_many, refuses_larger, ..server };
        let work = deliver(&server, TlsMode::Off, vec![lease(3, 7)]).await;
        assert_eq!(work.dispositions(3), ["sent", "bounced", "sent", "sent", "sent", "sent", "sent"]);

        // On a used connection the close may have another cause: the next connection begins with the same recipients.
        let server = Server { refuses_larger, extensions, ..Server::new(&[]) };
        let work = deliver(&server, TlsMode::Off, vec![lease(4, 1), lease(5, 4), lease(6, 1)]).await;
        assert_eq!(
            (work.dispositions(4), work.dispositions(5), work.dispositions(6)),
            (vec!["sent"], vec!["sent"; 4], vec!["sent"])
        );
        assert_eq!((server.count("EHLO"), server.contents.lock().unwrap().len()), (3, 4));
        assert!(work.returned.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_server_that_always_closes_in_reply_to_data_ends_in_a_deferral() {
    for extensions in [vec!["PIPELINING"], vec![]] {
        let server = Server { extensions, ..Server::new(&[("DATA", "CLOSE")]) };
        let work = deliver(&server, TlsMode::Off, vec![lease(1, 100)]).await;
        assert_eq!(work.dispositions(1), ["deferred"; 100]);
        // 100, 50, 25, 12, 6, 3 and 1 recipients. A close behind one recipient is not about the number.
        assert_eq!((server.count("EHLO"), server.count("MAIL")), (7, 7));
        let text = work.completed.lock().unwrap()[0].1[0].1.text.clone();
        assert!(text.contains("while sending DATA command"), "{text}");
        // The server closes in reply to the first DATA of one recipient as well: no other connection is made.
        let server = Server::new(&[("DATA", "CLOSE")]);
        let work = deliver(&server, TlsMode::Off, vec![lease(2, 1)]).await;
        assert_eq!((work.dispositions(2), server.count("EHLO")), (vec!["deferred"], 1));
    }
    // A server that takes one transaction on each connection, and closes in reply to the next DATA, gets all mail.
    let server = Server { data_max: 1, ..Server::new(&[]) };
    let work = deliver(&server, TlsMode::Off, (0..4).map(|id| lease(id, 5)).collect()).await;
    for id in 0..4 {
        assert_eq!(work.dispositions(id), ["sent"; 5]);
    }
    assert_eq!((server.count("EHLO"), server.contents.lock().unwrap().len()), (4, 4));
}

#[tokio::test]
async fn a_job_that_a_connection_leaves_unfinished_goes_on_over_the_next_one() {
    for close_with in [None, Some("421 4.7.0 enough"), Some("451 4.3.0 enough")] {
        for extensions in [vec!["PIPELINING", "LIMITS RCPTMAX=2"], vec!["LIMITS RCPTMAX=2"]] {
            let server = Server { transactions_max: 2, close_with, extensions, ..Server::new(&[]) };
            let work = deliver(&server, TlsMode::Off, vec![lease(1, 9)]).await;
            assert_eq!(work.dispositions(1), ["sent"; 9], "{close_with:?}");
            assert_eq!(server.count("EHLO"), 3, "{close_with:?}");
        }
    }
    // The server says so behind its reply to the content.
    let server = Server {
        answers: vec![(".", "250 taken\r\n421 4.3.2 closing")],
        extensions: vec!["PIPELINING", "LIMITS RCPTMAX=2"],
        ..Server::new(&[])
    };
    let work = deliver(&server, TlsMode::Off, vec![lease(1, 5)]).await;
    assert_eq!((work.dispositions(1), server.count("EHLO")), (vec!["sent"; 5], 3));
    // A message whose recipients are delivered in part waits with the others when no connection can be made.
    let server = Server { transactions_max: 1, extensions: vec!["LIMITS RCPTMAX=2"], ..Server::new(&[]) };
    let once = Server { connections_max: 1, ..server };
    let work = deliver(&once, TlsMode::Off, vec![lease(1, 3)]).await;
    assert_eq!(work.dispositions(1), ["sent", "sent", "deferred"]);
    let attempt = work.attempt(1);
    assert!(attempt.relay.starts_with("localhost["), "{}", attempt.relay);
    assert_eq!(attempt.dsn_duty, DsnDuty::ReportRelayed, "nobody else reports");
    assert_eq!(work.unreachable.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_server_that_refuses_ehlo_with_a_policy_code_is_greeted_with_helo() {
    for answer in ["550 5.7.1 EHLO is not allowed", "554 no", "502 what", "504 no"] {
        let server = Server::new(&[("EHLO", answer)]);
        let work = deliver(&server, TlsMode::Off, vec![lease(1, 2)]).await;
        assert_eq!((work.dispositions(1), server.count("HELO")), (vec!["sent"; 2], 1), "{answer}");
    }
}

/// Delivers messages to a server that ends each connection behind two of them, with these words. The third message
/// goes back to the queue, for another connection.
async fn server_that_is_replaced_behind_two_messages(
    close_with: &'static str,
    extensions: Vec<&'static str>,
) -> Server {
    let server = Server { close_with: Some(close_with), transactions_max: 2, extensions, ..Server::new(&[]) };
    let work = deliver(&server, TlsMode::Off, (0..4).map(|id| lease(id, 2)).collect()).await;
    assert_eq!((work.dispositions(0), work.dispositions(1)), (vec!["sent"; 2], vec!["sent"; 2]));
    assert_eq!((work.returned.lock().unwrap().clone(), server.count("MAIL")), (vec![2], 3));
    server
}

#[tokio::test]
async fn a_connection_that_says_451_to_mail_after_some_messages_is_replaced() {
    for extensions in [vec!["PIPELINING"], vec![]] {
        let server =
            server_that_is_replaced_behind_two_messages("451 4.3.0 too many messages", extensions).await;
        // It may be about the sender, whom another connection would not help; and to the first message it is
        // about the host or the message.
        let server = Server { close_with: Some("451 4.1.8 no such domain"), ..server };
        let work = deliver(&server, TlsMode::Off, (0..3).map(|id| lease(id, 1)).collect()).await;
        assert_eq!(work.dispositions(2), ["deferred"]);
        let server = Server { close_with: Some("451 4.3.0 busy"), transactions_max: 0, ..server };
        let work = deliver(&server, TlsMode::Off, vec![lease(1, 1)]).await;
        assert_eq!(work.dispositions(1), ["deferred"]);
    }
}

#[tokio::test]
async fn a_connection_lost_in_the_first_transaction_defers_and_later_gives_back() {
    let mut server = Server::new(&[]);
    server.transactions_max = 0;
    let work = deliver(&server, TlsMode::Off, vec![lease(1, 1)]).await;
    assert_eq!(work.dispositions(1), ["deferred"]);
    let mut server = Server::new(&[]);
    server.transactions_max = 2;
    let work = deliver(&server, TlsMode::Off, (0..3).map(|id| lease(id, 1)).collect()).await;
    assert_eq!((work.dispositions(0), work.dispositions(1)), (vec!["sent"], vec!["sent"]));
    assert_eq!(*work.returned.lock().unwrap(), [2], "no attempt was made of it");
}

#[tokio::test]
async fn what_a_server_that_says_421_after_some_messages_did_not_take_goes_by_another_connection() {
    for extensions in [vec!["PIPELINING"], vec![]] {
        let server = server_that_is_replaced_behind_two_messages(
            "421 4.7.0 too many messages, come again",
            extensions,
        )
        .await;
        // To the first it is about the host, or the mail: without a pause it would be said again.
        let server = Server { transactions_max: 0, ..server };
        let work = deliver(&server, TlsMode::Off, vec![lease(1, 1)]).await;
        assert_eq!(work.dispositions(1), ["deferred"]);
    }
}

#[tokio::test]
async fn a_lost_reply_to_the_content_defers_and_never_bounces() {
    let work = deliver(&Server::new(&[(".", "CLOSE")]), TlsMode::Off, vec![lease(1, 2)]).await;
    assert_eq!(work.dispositions(1), ["deferred", "deferred"]);
    let work = deliver(&Server::new(&[(".", "nonsense")]), TlsMode::Off, vec![lease(1, 1)]).await;
    assert_eq!(work.dispositions(1), ["deferred"]);
}

#[tokio::test]
async fn content_that_is_refused_before_its_end_is_refused_as_the_server_says() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut stream = BufReader::new(listener.accept().await.unwrap().0);
        say(&mut stream, "220 there").await.unwrap();
        for answer in ["250 there", "250 ok", "250 ok", "550 5.1.1 no", "354 go"] {
            read_line(&mut stream).await.unwrap();
            say(&mut stream, answer).await.unwrap();
        }
        // Closed with most of the content unread, it is reset.
        read_line(&mut stream).await.unwrap();
        say(&mut stream, "552 5.3.4 too large").await.unwrap();
    });
    let large = Content::from_bytes("a line of the content\r\n".repeat(1_000_000));
    let work = TestWork::with([lease_of(1, 2, large)]);
    let (courier, destination) = courier(port, TlsMode::Off, false, None);
    courier.serve(&destination, &Queue(work.clone())).await;
    let settled = work.completed.lock().unwrap();
    let said: Vec<&str> = settled[0].1.iter().map(|(_, outcome)| &*outcome.text).collect();
    assert_eq!(said, ["552 5.3.4 too large (in reply to end of DATA)", "550 5.1.1 no (in reply to RCPT TO)"]);
}

#[tokio::test]
async fn a_host_that_refuses_connections_makes_the_destination_unreachable_and_fails_no_mail() {
    let refuses_both = [("EHLO", "550 go away"), ("HELO", "550 go away")];
    for answers in [&[("CONNECT", "554 no service")][..], &refuses_both, &[("CONNECT", "421 busy")]] {
        let work = deliver(&Server::new(answers), TlsMode::Off, vec![lease(1, 1)]).await;
        let unreachable = work.unreachable.lock().unwrap();
        assert_eq!(unreachable.len(), 1);
        assert_eq!(unreachable[0].disposition, Disposition::Deferred);
        assert_eq!(work.waiting.lock().unwrap().len(), 1, "no message was touched");
    }
}

#[tokio::test]
async fn a_server_that_closes_in_the_same_breath_as_its_welcome_is_unreachable() {
    for (answer, status) in [
        ("250 there\r\n421 4.7.0 too busy", mail::Enhanced(4, 7, 0)),
        ("250 there\r\n421 too busy", mail::Enhanced(4, 4, 2)),
    ] {
        let work = deliver(&Server::new(&[("EHLO", answer)]), TlsMode::May, vec![lease(1, 1)]).await;
        let unreachable = work.unreachable.lock().unwrap();
        assert_eq!(unreachable.len(), 1, "else the queue would open the next connection at once");
        assert_eq!((unreachable[0].disposition, unreachable[0].status), (Disposition::Deferred, status));
        assert!(unreachable[0].text.contains("421"), "{}", unreachable[0].text);
        assert_eq!(work.waiting.lock().unwrap().len(), 1, "no message was touched");
    }
}

#[tokio::test]
async fn lmtp_answers_for_each_recipient() {
    let mut server = Server::new(&[("RCPT TO:<r1@", "550 5.1.1 no")]);
    server.lmtp = true;
    let work = deliver(&server, TlsMode::Off, vec![lease(1, 4)]).await;
    assert_eq!(work.dispositions(1), ["sent", "bounced", "deferred", "sent"]);
    assert_eq!(work.attempt(1).dsn_duty, DsnDuty::ReportDelivered);
}

#[tokio::test]
async fn content_in_the_spool_is_read_while_it_is_sent() {
    let server = Server::new(&[]);
    let traits = mail::ContentTraits { has_dot_line: true, ..mail::ContentTraits::default() };
    let parts: Vec<Part> = (0..5).map(|n| Part::Stored { chunk_id: ChunkId(n), length_bytes: 10 }).collect();
    let lease = lease_of(1, 1, Content::new(traits, parts));
    let work = deliver(&server, TlsMode::Off, vec![lease]).await;
    assert_eq!(work.dispositions(1), ["sent"]);
}

/// Delivers one message with this content, some of it in the spool, to a next hop without 8BITMIME. Gives what
/// became of it, and the content that arrived.
async fn deliver_8bit(mode: EightBit, content: Content) -> (Outcome, Option<String>) {
    deliver_8bit_job(mode, lease_of(1, 1, content)).await
}

/// Delivers a lease with one recipient to a next hop without 8BITMIME.
async fn deliver_8bit_job(mode: EightBit, lease: LeasedMessage) -> (Outcome, Option<String>) {
    let server = Server { extensions: vec!["PIPELINING", "SIZE 1000"], ..Server::new(&[]) };
    let port = server.start().await;
    let work = TestWork::with([lease]);
    let (courier, destination) = courier_for(port, TlsMode::Off, false, None, mode);
    courier.serve(&destination, &Queue(work.clone())).await;
    let outcome = work.completed.lock().unwrap()[0].1[0].1.clone();
    let arrived = server.contents.lock().unwrap().pop().map(|bytes| String::from_utf8(bytes).unwrap());
    (outcome, arrived)
}

#[tokio::test]
async fn content_for_a_next_hop_without_8bitmime_is_treated_as_configured() {
    let head = "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n";
    let plain = format!("{head}\r\nlittle that is not ASCII: \u{e4}\r\n");
    let signed = format!("DKIM-Signature: v=1\r\n{plain}");
    let in_header = format!("Subject: \u{e4}\r\n{plain}");
    let binary = signed.replace('\u{e4}', "\u{e4}\n");
    let encoding = "Content-Transfer-Encoding: quoted-printable\r\n\r\n";
    let converted = |content: &str| {
        let content = content.replace('\u{e4}', "=C3=A4").replace('\n', "=0A").replace("\r=0A", "\r\n");
        content.replacen("\r\n\r\n", &format!("\r\n{encoding}"), 1) + ".\r\n"
    };
    let as_it_is = |content: &str| format!("{content}.\r\n");
    for (mode, content, want) in [
        (EightBit::Auto, &plain, Some(converted(&plain))),
        (EightBit::Auto, &signed, Some(as_it_is(&signed))),
        (EightBit::Auto, &in_header, Some(as_it_is(&in_header))),
        (EightBit::Auto, &binary, Some(converted(&binary))),
        (EightBit::Convert, &plain, Some(converted(&plain))),
        (EightBit::Convert, &signed, Some(converted(&signed))),
        (EightBit::Convert, &in_header, None),
        (EightBit::Send, &plain, Some(as_it_is(&plain))),
        (EightBit::Send, &binary, None),
        (EightBit::Return, &plain, None),
        (EightBit::Return, &binary, None),
    ] {
        let (outcome, arrived) = deliver_8bit(mode, Content::from_bytes(content.clone())).await;
        assert_eq!(arrived, want, "{mode:?} {content}");
        let status = if want.is_some() { outcome.status.0 } else { 2 };
        assert_eq!(
            (status, outcome.disposition == Disposition::Delivered),
            (2, want.is_some()),
            "{outcome:?}"
        );
        if want.is_none() {
            assert_eq!(outcome.status, mail::Enhanced(5, 6, 3), "{outcome:?}");
        }
    }
}

#[tokio::test]
async fn a_report_of_our_own_is_converted_or_sent_in_each_mode() {
    let signed = "Content-Type: multipart/signed; boundary=b\r\n\r\n--b\r\n\r\n\u{e4}\r\n--b--\r\n";
    let encoded = "Content-Type: multipart/signed; boundary=b\r\n\r\n--b\r\nContent-Transfer-Encoding: base64\r\n\r\n\
         w6Q=\r\n--b--\r\n.\r\n";
    let unconvertible = "Subject: \u{e4}\r\n\r\n\u{e4}\r\n";
    let as_it_is = format!("{unconvertible}.\r\n");
    for mode in [EightBit::Auto, EightBit::Convert, EightBit::Send, EightBit::Return] {
        for (content, want) in [(signed, encoded), (unconvertible, as_it_is.as_str())] {
            let mut lease = lease_of(1, 1, Content::from_bytes(content));
            Arc::get_mut(lease.message.as_mut().unwrap()).unwrap().origin = mail::Origin::Dsn;
            let (outcome, arrived) = deliver_8bit_job(mode, lease).await;
            assert_eq!(
                (outcome.disposition, arrived.as_deref()),
                (Disposition::Delivered, Some(want)),
                "{mode:?}"
            );
        }
    }
}

#[tokio::test]
async fn content_in_the_spool_is_converted_piece_by_piece() {
    let traits = mail::ContentTraits { has_dot_line: true, is_8bit: true, ..mail::ContentTraits::default() };
    let mut parts = vec![Part::Memory("MIME-Version: 1.0\r\n\r\n\u{e4} with ASCII\r\n".into())];
    parts.extend((0..5).map(|n| Part::Stored { chunk_id: ChunkId(n), length_bytes: 10 }));
    let (outcome, arrived) = deliver_8bit(EightBit::Auto, Content::new(traits, parts)).await;
    assert_eq!(outcome.disposition, Disposition::Delivered);
    let chunks: String = (0..5).map(|n| format!("=2Echunk {n}\r\n")).collect();
    let head =
        "MIME-Version: 1.0\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=C3=A4 with ASCII\r\n";
    assert_eq!(arrived.unwrap(), format!("{head}{chunks}.\r\n"));
}

#[tokio::test]
async fn an_idle_connection_takes_the_next_job_and_leaves_when_there_is_none() {
    let server = Server::new(&[]);
    let port = server.start().await;
    let work = TestWork::with([lease(1, 1)]);
    *work.closing.lock().unwrap() = false;
    let (courier, destination) = courier(port, TlsMode::Off, false, None);
    let (queue, giving) = (Queue(work.clone()), work.clone());
    let serving = courier.serve(&destination, &queue);
    let giving = async move {
        while giving.completed.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        giving.waiting.lock().unwrap().push_back(lease(2, 1));
        giving.more.notify_one();
    };
    tokio::join!(serving, giving);
    assert_eq!(work.dispositions(2), ["sent"]);
    assert_eq!((server.count("EHLO"), server.count("QUIT")), (1, 1));
}
