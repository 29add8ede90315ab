//! The expansion of an alias.

use mail::Mailbox;
use maps::aliases::Aliases;
use rewrite::{Answers, Expander, Found, Question, Separator, Settings, Step};
use std::sync::OnceLock;

/// Addresses of the alias.
const TARGETS: usize = 10;

/// Expands so many times an alias to ten addresses elsewhere, with the look-ups in memory.
pub fn run(count: u64) {
    static ALIASES: OnceLock<Aliases> = OnceLock::new();
    let aliases = ALIASES.get_or_init(|| {
        let targets: Vec<String> = (0..TARGETS).map(|n| format!("member{n}@host{n}.example.test")).collect();
        Aliases::parse(&format!("team: {}\nroot: joe\n", targets.join(", "))).expect("the file has no fault")
    });
    let settings = Settings {
        separator: Separator::parse("+"),
        hostname: "mx.test".into(),
        domains: [Box::from("mx.test")].into(),
        has_aliases: true,
        ..Settings::default()
    };
    let recipient = Mailbox::parse("team@mx.test", false).expect("an address");
    for _ in 0..count {
        let (mut expander, mut answers) = (Expander::new(&settings, recipient.clone()), Answers::default());
        let expanded = loop {
            match expander.step(&mut answers) {
                Step::Ask(questions) => {
                    for question in questions {
                        let Question::Alias(name) = &question else { unreachable!("only aliases are asked") };
                        let found =
                            aliases.get(name).map_or(Found::Absent, |value| Found::Value(value.into()));
                        answers.add(question, found);
                    }
                }
                Step::Done(expanded) => break expanded,
                Step::NoSuchUser | Step::Failed(_) => unreachable!("the alias is right"),
            }
        };
        assert_eq!(expanded.recipients().len(), TARGETS);
    }
}
