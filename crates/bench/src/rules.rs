//! The evaluation of rules, and the spending of a limit.

use limits::{Rate, Spent, Table};
use mail::{ForwardPath, ListenerKind, Recipient, ReversePath};
use policy::{Act, Answers, Facts, Next, Program, Stage};
use std::{fmt::Write as _, sync::OnceLock};

/// Clients whose rates are counted.
const CLIENTS: u64 = 100_000;

/// Twenty rules without look-ups, of which none decides: networks, senders, recipients, names in EHLO.
fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut text = String::from("hostname = \"mx.test\"\n");
        for number in 0..20 {
            let condition = match number % 5 {
                0 => format!("client = [\"198.51.{number}.0/24\", \"2001:db8:{number}::/48\"]"),
                1 => format!("from = [\"spam{number}.test\", \"*.spam{number}.test\"]"),
                2 => format!("to = [\"user{number}@mx.test\", \"list{number}@*\"]"),
                3 => format!("hello = [\"*.dialup{number}.test\"]"),
                _ => format!("recipients = {}\nfrom = [\"<>\"]", 200 - number),
            };
            let _ = writeln!(text, "[[rule]]\n{condition}\nreject = \"550 5.7.1 no {{from}}\"");
        }
        config::load_text(&text).expect("the rules have no fault").settings.rules.program
    })
}

/// Evaluates the rules so many times for a recipient of a stranger.
pub fn run(count: u64) {
    let (program, answers) = (program(), Answers::default());
    let sender = ReversePath::parse("sender@far.test", false).expect("an address");
    let to = [Recipient::new(ForwardPath::parse("joe@mx.test", false).expect("an address"))];
    let facts = Facts {
        listener: Some(ListenerKind::Mx),
        client: Some([203, 0, 113, 7].into()),
        hello: Some("mail.far.test"),
        from: Some(&sender),
        to: &to,
        recipient_count: 1,
        ..Facts::default()
    };
    for _ in 0..count {
        match program.evaluate(Stage::Rcpt, &facts, &answers, &mut ()) {
            Next::Done(outcome) => assert_eq!(outcome.act, Act::Pass),
            Next::Ask(questions) => unreachable!("nothing is looked up: {questions:?}"),
        }
    }
}

/// Of one round: the hash seeds of the table's keys differ from run to run, and must not show.
const SPENT_A_ROUND: u64 = 100;

/// Spends so many times a hundred of the rates of many clients.
pub fn limit(count: u64) {
    let rate = Rate::parse("1000000/s").expect("a rate");
    let mut table = Table::new(1_000_000);
    for client in 0..CLIENTS {
        table.spend(&client, rate, 1, 0);
    }
    for number in 0..count * SPENT_A_ROUND {
        let spent = table.spend(&(number % CLIENTS), rate, 1, number);
        assert_eq!(spent, Spent::Within);
    }
}
