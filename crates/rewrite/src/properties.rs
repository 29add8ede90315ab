//! Properties of expansions with random aliases.

use crate::{
    Answers, Expanded, Expander, Found, Question, Separator, Settings, Step, TargetList, masquerade,
};
use mail::Mailbox;
use proptest::{collection::btree_map, prelude::*};
use std::collections::{BTreeMap, BTreeSet};

const NAMES: [&str; 8] = ["a", "b", "c", "d", "owner-a", "a+x", "b+y", "postmaster"];

/// A list of names, local addresses, foreign addresses and final names.
fn value() -> impl Strategy<Value = String> {
    let target = (0..NAMES.len(), 0..4_u8).prop_map(|(name, kind)| match kind {
        0 => NAMES[name].to_owned(),
        1 => format!("{}@here.test", NAMES[name]),
        2 => format!("{}@else.test", NAMES[name]),
        _ => format!("\\{}", NAMES[name]),
    });
    proptest::collection::vec(target, 1..4).prop_map(|targets| targets.join(", "))
}

type Table = BTreeMap<String, String>;

fn aliases() -> impl Strategy<Value = Table> {
    btree_map((0..NAMES.len()).prop_map(|n| NAMES[n].to_owned()), value(), 0..6)
}

fn virtuals() -> impl Strategy<Value = Table> {
    let key = (0..=NAMES.len()).prop_map(|n| format!("{}@here.test", NAMES.get(n).unwrap_or(&"")));
    btree_map(key, value(), 0..4)
}

fn settings() -> Settings {
    Settings {
        targets_max: None,
        separator: Separator::parse("+"),
        hostname: "here.test".into(),
        domains: [Box::from("here.test")].into(),
        has_virtual: true,
        has_aliases: true,
        ..Settings::default()
    }
}

fn answer(aliases: &Table, virtuals: &Table, question: &Question) -> Found {
    let value = match question {
        Question::Alias(key) => aliases.get(&**key),
        Question::Virtual(key) => virtuals.get(&**key),
        question => panic!("{question:?} was not to be asked"),
    };
    value.map_or(Found::Absent, |value| Found::Value(value.as_str().into()))
}

/// Answers at most so many questions between two steps. `None`: the expansion failed.
fn expand(aliases: &Table, virtuals: &Table, recipient: &str, at_once: usize) -> Option<Expanded> {
    let settings = settings();
    let mut expander = Expander::new(&settings, Mailbox::parse(recipient, true).unwrap());
    let mut answers = Answers::default();
    for _ in 0..10_000 {
        match expander.step(&mut answers) {
            Step::Ask(questions) => {
                for question in questions.into_iter().take(at_once) {
                    let found = answer(aliases, virtuals, &question);
                    answers.add(question, found);
                }
            }
            Step::Done(expanded) => return Some(expanded),
            Step::Failed(trouble) => {
                assert!(!trouble.is_look_up(), "{trouble}");
                return None;
            }
            Step::NoSuchUser => panic!("users are not asked for"),
        }
    }
    panic!("the expansion does not end");
}

fn keys(expanded: &Expanded) -> BTreeSet<String> {
    expanded.recipients().map(mail::Mailbox::key).collect()
}

proptest! {
    #[test]
    fn every_expansion_ends_within_its_limits(
        aliases in aliases(), virtuals in virtuals(), name in 0..NAMES.len()
    ) {
        let recipient = format!("{}@here.test", NAMES[name]);
        if let Some(expanded) = expand(&aliases, &virtuals, &recipient, usize::MAX) {
            prop_assert!((1..=1000).contains(&expanded.recipients().len()));
            prop_assert_eq!(keys(&expanded).len(), expanded.recipients().len(), "each once");
            for index in 0..expanded.recipients().len() {
                prop_assert!(expanded.through(index).len() <= 12);
            }
        }
    }

    #[test]
    fn the_result_does_not_depend_on_the_order_of_the_answers(
        aliases in aliases(), virtuals in virtuals(), name in 0..NAMES.len()
    ) {
        let recipient = format!("{}@here.test", NAMES[name]);
        let all = expand(&aliases, &virtuals, &recipient, usize::MAX);
        let single = expand(&aliases, &virtuals, &recipient, 1);
        prop_assert_eq!(all.as_ref().map(keys), single.as_ref().map(keys));
    }

    #[test]
    fn a_recipient_that_no_table_has_is_its_own_expansion(
        aliases in aliases(), virtuals in virtuals(), local in "[e-z]{1,8}"
    ) {
        prop_assume!(!virtuals.contains_key("@here.test"));
        let recipient = format!("{local}@here.test");
        let expanded = expand(&aliases, &virtuals, &recipient, usize::MAX).unwrap();
        prop_assert_eq!(keys(&expanded), BTreeSet::from([recipient]));
    }

    #[test]
    fn a_list_never_panics_and_ends(text in "\\PC{0,80}") {
        prop_assert!(TargetList::new(&text).take(100).count() <= 81);
    }

    #[test]
    fn masquerading_twice_changes_nothing_more(local in "[a-z]{1,8}", host in "[a-z]{1,8}(\\.[a-z]{1,8}){0,3}") {
        let domains = ["b".to_owned(), "a.b".to_owned()];
        let mailbox = Mailbox::parse(&format!("{local}@{host}.b"), true).unwrap();
        if let Some(hidden) = masquerade(&mailbox, &domains) {
            prop_assert_eq!(masquerade(&hidden, &domains), None);
            prop_assert_eq!(hidden.local(), mailbox.local());
        }
    }
}
