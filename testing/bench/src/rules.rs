//! The evaluation of rules, and the spending of a limit.

use limits::{Rate, Spent, Table};
use mail::{ForwardPath, ListenerKind, Recipient, ReversePath};
use policy::{
    Action, AddressPattern, Addresses, Answers, Audience, Condition, DomainPattern, Facts, Hellos, Line,
    Modifiers, Networks, Next, Program, ReplyClass, ReplyText, Rule, SessionFacts, Source, Stage, Verdict,
};
use rewrite::Separator;
use std::{net::SocketAddr, sync::OnceLock};

/// Clients whose rates are counted.
const CLIENTS: u64 = 100_000;

/// Rules that are judged at each stage.
const RULES: usize = 20;

/// Twenty rules without look-ups, of which none decides: networks, senders, recipients, names in EHLO. They are as the
/// configuration of the tests below gives them, without the crate that reads it: it would bring most of the daemon with it.
fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let separator = Separator::parse("+");
        Program::new(
            (0..RULES).map(rule).collect(),
            Vec::new(),
            Vec::new(),
            Vec::new(),
            separator,
            vec!["localhost".into(), "mx.test".into()],
        )
    })
}

fn rule(number: usize) -> Rule {
    let conditions = match number % 5 {
        0 => vec![Condition::Client(Networks {
            networks: [format!("198.51.{number}.0/24"), format!("2001:db8:{number}::/48")]
                .map(|network| network.parse().expect("a network"))
                .into(),
            maps: Vec::new(),
        })],
        1 => {
            vec![Condition::From(addresses(&[format!("spam{number}.test"), format!("*.spam{number}.test")]))]
        }
        2 => vec![Condition::To(addresses(&[format!("user{number}@mx.test"), format!("list{number}@*")]))],
        3 => vec![Condition::Hello(Hellos {
            patterns: vec![DomainPattern::parse(&format!("*.dialup{number}.test")).expect("a pattern")],
            maps: Vec::new(),
        })],
        _ => vec![Condition::From(addresses(&["<>".to_owned()])), Condition::Recipients(200 - number)],
    };
    let text = ReplyText::parse("550 5.7.1 no {from}", ReplyClass::Permanent).expect("a reply");
    Rule {
        name: format!("rule {}", number + 1).into(),
        line: Line(0),
        stage: Rule::usual_stage(conditions.iter().map(Condition::earliest_stage)),
        audience: Audience::Untrusted,
        conditions,
        unless: Vec::new(),
        action: Some(Action::Reject(text)),
        modifiers: Modifiers::default(),
    }
}

fn addresses(patterns: &[String]) -> Addresses {
    let patterns: Vec<_> =
        patterns.iter().map(|text| AddressPattern::parse(text).expect("a pattern")).collect();
    Addresses { patterns: patterns.into(), maps: Vec::new() }
}

/// Evaluates the rules so many times for a recipient of a stranger.
pub fn run(count: u64) {
    let (program, answers) = (program(), Answers::default());
    let sender = ReversePath::parse("sender@far.test", false).expect("an address");
    let to = [Recipient::new(ForwardPath::parse("joe@mx.test", false).expect("an address"))];
    let peer = SocketAddr::from(([203, 0, 113, 7], 40_000));
    let source = Source::Smtp { peer, local: peer, listener: ListenerKind::Mx };
    let session = SessionFacts { hello: Some("mail.far.test".into()), ..SessionFacts::new(source) };
    let facts = Facts { from: Some(&sender), to: &to, recipient_count: 1, ..Facts::new(&session) };
    for _ in 0..count {
        match program.evaluate(Stage::Rcpt, &facts, &answers, &mut ()) {
            Next::Done(outcome) => assert_eq!(outcome.verdict, Verdict::Pass),
            Next::Ask(questions) => unreachable!("nothing is looked up: {questions:?}"),
        }
    }
}

/// Of one round: the hash seeds of the table's keys differ from run to run, and must not show.
const SPENT_A_ROUND: u64 = 100;

/// Spends so many times a hundred of the rates of many clients.
pub fn limit(count: u64) {
    let rate = Rate::parse("1000000/s").expect("a rate");
    let mut table = Table::new([7; 16], 1_000_000);
    for client in 0..CLIENTS {
        table.spend(&client, rate, 1, 0);
    }
    for number in 0..count * SPENT_A_ROUND {
        let spent = table.spend(&(number % CLIENTS), rate, 1, number);
        assert_eq!(spent, Spent::Within);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    #[test]
    fn the_rules_are_those_that_a_configuration_gives() {
        let mut text = String::from("hostname = \"mx.test\"\n");
        for number in 0..RULES {
            let condition = match number % 5 {
                0 => format!("client = [\"198.51.{number}.0/24\", \"2001:db8:{number}::/48\"]"),
                1 => format!("from = [\"spam{number}.test\", \"*.spam{number}.test\"]"),
                2 => format!("to = [\"user{number}@mx.test\", \"list{number}@*\"]"),
                3 => format!("hello = [\"*.dialup{number}.test\"]"),
                _ => format!("recipients = {}\nfrom = [\"<>\"]", 200 - number),
            };
            let _ = writeln!(text, "[[rule]]\n{condition}\nreject = \"550 5.7.1 no {{from}}\"");
        }
        let configured = config::load_text(&text).expect("the rules have no fault").settings.rules.program;
        assert_eq!(*program(), configured);
    }
}
