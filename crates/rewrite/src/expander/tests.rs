//! Expansions with the answers of small tables.

use super::*;
use std::collections::BTreeMap;

/// Tables that answer questions.
#[derive(Default)]
struct Tables {
    canonical: BTreeMap<String, String>,
    r#virtual: BTreeMap<String, String>,
    aliases: BTreeMap<String, String>,
    /// Local domains that only a map has.
    domains: Vec<String>,
    users: Vec<String>,
    no_mailbox: Vec<String>,
    includes: BTreeMap<String, String>,
    /// Questions that are answered with a failure.
    broken: Vec<Question>,
}

impl Tables {
    fn answer(&self, question: &Question) -> Found {
        if self.broken.contains(question) {
            return Found::Failed("the map is down".into());
        }
        let of = |table: &BTreeMap<String, String>, key: &str| {
            table.get(key).map_or(Found::Absent, |value| Found::Value(value.as_str().into()))
        };
        let any = |is_there: bool| if is_there { Found::Value("".into()) } else { Found::Absent };
        match question {
            Question::Canonical(key) => of(&self.canonical, key),
            Question::Virtual(key) => of(&self.r#virtual, key),
            Question::Alias(key) => of(&self.aliases, key),
            Question::Include(path) => of(&self.includes, path),
            Question::Domain(domain) => any(self.domains.iter().any(|d| **d == **domain)),
            Question::User(address) => any(self.users.iter().any(|u| **u == **address)),
            Question::Mailbox(address) => any(!self.no_mailbox.iter().any(|u| **u == **address)),
        }
    }
}

fn table(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn aliases(pairs: &[(&str, &str)]) -> Tables {
    Tables { aliases: table(pairs), ..Tables::default() }
}

/// Everything is asked; `here.test` is listed by name.
fn settings() -> Settings {
    Settings {
        targets_max: None,
        separator: Separator::parse("+"),
        hostname: "mx.test".into(),
        domains: [Box::from("here.test"), Box::from("mx.test")].into(),
        has_domain_maps: true,
        has_users: false,
        has_mailboxes: false,
        has_canonical: true,
        has_virtual: true,
        has_aliases: true,
        postmaster: None,
        last_resort: None,
        programs: [Box::from("/bin/vacation")].into(),
        files: [Box::from("/var/mail/joe")].into(),
    }
}

fn expand(tables: &Tables, recipient: &str) -> Expanded {
    match run_with(&settings(), tables, recipient) {
        Step::Done(expanded) => expanded,
        step => panic!("{step:?}"),
    }
}

fn run_with(settings: &Settings, tables: &Tables, recipient: &str) -> Step {
    let mut expander = Expander::new(settings, Mailbox::parse(recipient, true).unwrap());
    let mut answers = Answers::default();
    loop {
        match expander.step(&mut answers) {
            Step::Ask(questions) => {
                assert!(!questions.is_empty());
                for question in questions {
                    let found = tables.answer(&question);
                    answers.add(question, found);
                }
            }
            step => return step,
        }
    }
}

/// Returns the recipients in alphabetical order.
fn run(tables: &Tables, recipient: &str) -> Result<Vec<String>, Trouble> {
    match run_with(&settings(), tables, recipient) {
        Step::Done(expanded) => {
            let mut all: Vec<_> = expanded.recipients().map(|m| m.as_str().to_owned()).collect();
            all.sort_unstable();
            Ok(all)
        }
        Step::Failed(trouble) => Err(trouble),
        step => panic!("{step:?}"),
    }
}

#[test]
fn an_address_without_aliases_stays_as_it_is() {
    for recipient in ["Joe@Here.test", "joe+x@here.test", "joe@else.test", "\"a b\"@here.test"] {
        assert_eq!(run(&Tables::default(), recipient).unwrap(), [recipient]);
    }
}

#[test]
fn an_alias_leads_to_all_of_its_targets_once() {
    let tables = aliases(&[
        ("staff", "joe, Jane@Else.test, helpers"),
        ("helpers", "ann, joe, jane@else.test"),
        ("ann", "\\ann, ann@phone.test"),
    ]);
    assert_eq!(
        run(&tables, "Staff@Here.test").unwrap(),
        ["Jane@Else.test", "ann@here.test", "ann@phone.test", "joe@here.test"]
    );
    // Only for domains that are listed by name.
    assert_eq!(run(&tables, "staff@else.test").unwrap(), ["staff@else.test"]);
}

#[test]
fn an_alias_that_names_itself_is_the_user() {
    let tables = aliases(&[("joe", "joe, joe@phone.test")]);
    assert_eq!(run(&tables, "joe@here.test").unwrap(), ["joe@here.test", "joe@phone.test"]);
    assert_eq!(run(&tables, "joe+x@here.test").unwrap(), ["joe+x@here.test", "joe@phone.test"]);
    let tables = aliases(&[("joe", "joe@here.test")]);
    assert_eq!(run(&tables, "joe@here.test").unwrap(), ["joe@here.test"]);
}

#[test]
fn a_name_without_a_domain_stands_for_the_domains_of_this_server() {
    let tables = Tables {
        r#virtual: table(&[
            ("info", "joe"),
            ("@here.test", "all@else.test"),
            ("sales", "ann@else.test"),
            ("sales@here.test", "bob@else.test"),
            ("joe", "joe"),
        ]),
        domains: vec!["map.test".to_owned()],
        ..Tables::default()
    };
    for (recipient, to) in [
        ("info@mx.test", "joe@mx.test"),
        ("Info@here.test", "joe@mx.test"),
        ("info+x@mx.test", "joe+x@mx.test"),
        ("sales@mx.test", "ann@else.test"),
        ("sales@here.test", "bob@else.test"),
        ("other@here.test", "all@else.test"),
        ("info@map.test", "info@map.test"),
        ("info@else.test", "info@else.test"),
    ] {
        assert_eq!(run(&tables, recipient).unwrap(), [to], "{recipient}");
    }
    let tables = Tables { canonical: table(&[("j.s", "joe@else.test")]), ..Tables::default() };
    assert_eq!(run(&tables, "j.s@here.test").unwrap(), ["joe@else.test"]);
    assert_eq!(run(&tables, "j.s@map.test").unwrap(), ["j.s@map.test"]);
}

#[test]
fn a_virtual_alias_comes_first_and_a_catch_all_last() {
    let tables = Tables {
        r#virtual: table(&[
            ("info@hosted.test", "joe, jane@else.test"),
            ("@hosted.test", "rest@else.test"),
            ("abuse@hosted.test", "abuse@hosted.test"),
            ("@old.test", "@new.test"),
            ("root@here.test", "boss@else.test"),
        ]),
        aliases: table(&[("joe", "joe@phone.test"), ("root", "joe")]),
        domains: vec!["hosted.test".to_owned()],
        ..Tables::default()
    };
    assert_eq!(run(&tables, "info@hosted.test").unwrap(), ["jane@else.test", "joe@phone.test"]);
    assert_eq!(run(&tables, "any.one@hosted.test").unwrap(), ["rest@else.test"]);
    assert_eq!(run(&tables, "Abuse@hosted.test").unwrap(), ["abuse@hosted.test"]);
    assert_eq!(run(&tables, "ann+x@old.test").unwrap(), ["ann+x@new.test"]);
    assert_eq!(run(&tables, "root@here.test").unwrap(), ["boss@else.test"]);
    // The detail stays, unless the map was asked with it or has the whole domain.
    assert_eq!(run(&tables, "info+x@hosted.test").unwrap(), ["jane+x@else.test", "joe@phone.test"]);
}

#[test]
fn a_canonical_map_changes_the_address_before_aliases_are_looked_up() {
    let tables = Tables {
        canonical: table(&[("j.smith@here.test", "joe"), ("@alt.test", "@here.test")]),
        aliases: table(&[("joe", "joe@phone.test")]),
        ..Tables::default()
    };
    assert_eq!(run(&tables, "J.Smith@here.test").unwrap(), ["joe@phone.test"]);
    assert_eq!(run(&tables, "joe@alt.test").unwrap(), ["joe@phone.test"]);
}

#[test]
fn a_canonical_address_has_a_canonical_address_of_its_own() {
    let tables = Tables {
        canonical: table(&[
            ("j.smith@here.test", "joe@old.test"),
            ("@old.test", "@far.test"),
            ("a@far.test", "b@far.test"),
            ("b@far.test", "a@far.test"),
            ("c@far.test", "c@far.test"),
        ]),
        ..Tables::default()
    };
    assert_eq!(run(&tables, "j.smith@here.test").unwrap(), ["joe@far.test"]);
    assert_eq!(run(&tables, "a@far.test").unwrap(), ["a@far.test"], "a loop ends after ten steps");
    assert_eq!(run(&tables, "c@far.test").unwrap(), ["c@far.test"]);
}

#[test]
fn an_included_file_is_a_list_of_targets() {
    let mut tables = aliases(&[("list", ":include:/lists/all"), ("more", "joe, :include:/lists/none")]);
    tables.includes = table(&[("/lists/all", "# all\nann@a.test\nbob, more\n"), ("/lists/none", "")]);
    assert_eq!(run(&tables, "list@here.test").unwrap(), ["ann@a.test", "bob@here.test", "joe@here.test"]);
    tables.includes = table(&[("/lists/all", "list\n")]);
    assert!(matches!(run(&tables, "list@here.test"), Err(Trouble::Loop(_))));
    tables.includes = table(&[("/lists/all", "ann\n:include:/lists/all\n")]);
    assert!(matches!(run(&tables, "list@here.test"), Err(Trouble::Loop(_))));
    tables.includes.clear();
    assert!(matches!(run(&tables, "list@here.test"), Err(Trouble::Include { .. })));
}

#[test]
fn the_trouble_of_an_included_file_has_line_and_column() {
    let mut tables = aliases(&[("list", ":include:/lists/all")]);
    for (file, place) in [
        ("ann@a.test\n  a@b@c, bob\n", "/lists/all: line 2, column 3: not a mail address: write user@"),
        ("# \u{fc}\n\u{fc}x, @b.test\n", "/lists/all: line 2, column 5: @domain is for virtual aliases"),
        ("ann\n\n|/bin/cat\n", "/lists/all: line 3, column 1: |/bin/cat is a program or a file"),
        ("ann, :include:relative\n", "/lists/all: line 1, column 6: a path that is not absolute"),
    ] {
        tables.includes = table(&[("/lists/all", file)]);
        let told = run(&tables, "list@here.test").unwrap_err().to_string();
        assert!(told.starts_with(place), "{file:?}: {told}");
    }
}

#[test]
fn a_member_of_a_list_has_the_owner_of_the_inner_list() {
    let mut tables = aliases(&[("list", "ann@a.test, sub"), ("owner-list", "joe"), ("sub", "x@b.test")]);
    let owners = |tables: &Tables, recipient: &str| match run_with(&settings(), tables, recipient) {
        Step::Done(expanded) => {
            let owner = |index| expanded.owner(index).map_or("", Mailbox::as_str).to_owned();
            let recipients = expanded.recipients().map(Mailbox::as_str);
            recipients.zip((0..).map(owner)).map(|(to, owner)| format!("{to} {owner}")).collect::<Vec<_>>()
        }
        step => panic!("{step:?}"),
    };
    let of_list = ["ann@a.test owner-list@here.test", "x@b.test owner-list@here.test"];
    assert_eq!(owners(&tables, "list+x@here.test"), of_list);
    assert_eq!(owners(&tables, "sub@here.test"), ["x@b.test "]);
    assert_eq!(owners(&tables, "owner-list@here.test"), ["joe@here.test "]);
    tables.aliases.insert("owner-sub".to_owned(), "jane".to_owned());
    let of_both = ["ann@a.test owner-list@here.test", "x@b.test owner-sub@here.test"];
    assert_eq!(owners(&tables, "list@here.test"), of_both);
    tables.aliases.insert("both".to_owned(), "list, eve@c.test".to_owned());
    let mixed = owners(&tables, "both@here.test");
    assert!(mixed.contains(&"eve@c.test ".to_owned()) && mixed.contains(&of_both[0].to_owned()), "{mixed:?}");
}

#[test]
fn the_aliases_that_led_to_a_recipient_are_known() {
    let tables = aliases(&[("staff", "helpers, bob"), ("helpers", "ann@a.test")]);
    let Step::Done(expanded) = run_with(&settings(), &tables, "staff@here.test") else { panic!() };
    let at = expanded.recipients().position(|m| m.as_str() == "ann@a.test").unwrap();
    assert_eq!(expanded.through(at), ["staff@here.test", "helpers@here.test"]);
}

#[test]
fn loops_and_excess_are_told_and_end() {
    let chain = |length: usize| {
        let mut tables = Tables::default();
        for n in 0..length {
            tables.aliases.insert(format!("a{n}"), format!("a{}", n + 1));
        }
        tables
    };
    assert_eq!(run(&chain(10), "a0@here.test").unwrap(), ["a10@here.test"]);
    assert!(matches!(run(&chain(11), "a0@here.test"), Err(Trouble::TooDeep { .. })));
    let wide = |count: usize| {
        let list: Vec<String> = (0..count).map(|n| format!("u{n}@else.test")).collect();
        aliases(&[("all", &list.join(", "))])
    };
    assert_eq!(run(&wide(1000), "all@here.test").unwrap().len(), 1000);
    assert!(matches!(run(&wide(1001), "all@here.test"), Err(Trouble::TooMany { .. })));
    let of_file = |count: usize| Tables {
        includes: [("/list".to_owned(), (0..count).map(|n| format!("u{n}@else.test\n")).collect())].into(),
        ..aliases(&[("all", ":include:/list")])
    };
    assert_eq!(run(&of_file(1000), "all@here.test").unwrap().len(), 1000);
    assert!(matches!(run(&of_file(1001), "all@here.test"), Err(Trouble::TooMany { .. })));
    for (pairs, looping) in [
        (&[("a", "b"), ("b", "a")][..], "a@here.test"),
        (&[("a", "b"), ("b", "c, x"), ("c", "b@here.test")][..], "a@here.test"),
    ] {
        assert!(matches!(run(&aliases(pairs), looping), Err(Trouble::Loop(_))), "{pairs:?}");
    }
    let both = Tables {
        r#virtual: table(&[("joe@v.test", "joe@here.test"), ("@x.test", "@y.test"), ("@y.test", "@x.test")]),
        aliases: table(&[("joe", "joe@v.test")]),
        ..Tables::default()
    };
    for recipient in ["joe@v.test", "joe@here.test", "a@x.test"] {
        assert!(matches!(run(&both, recipient), Err(Trouble::Loop(_))), "{recipient}");
    }
    // Through the detail, each step is another address.
    let growing = aliases(&[("a", "a+x@here.test, b"), ("b", "a+y")]);
    assert!(run(&growing, "a@here.test").is_err());
}

#[test]
fn programs_files_and_bad_values_are_refused_for_now() {
    for value in ["\"|/usr/bin/vacation joe\"", "/var/mail/joe2", "joe, |/bin/sh"] {
        let refused = run(&aliases(&[("joe", value)]), "joe@here.test");
        assert!(matches!(refused, Err(Trouble::NotAllowed { .. })), "{value}: {refused:?}");
    }
    let named = aliases(&[
        ("joe", "ann, \"|/bin/vacation -a x\", /var/mail/joe"),
        ("all", "joe, |/bin/sh"),
        ("two", "joe, joe@here.test, \"|/bin/vacation -a x\""),
    ]);
    let expanded = expand(&named, "joe@here.test");
    let found: Vec<_> =
        expanded.recipients().map(Mailbox::as_str).zip((0..).map(|at| expanded.target(at))).collect();
    let (program, file) =
        (AliasTarget::Program("/bin/vacation -a x".into()), AliasTarget::File("/var/mail/joe".into()));
    // Programs and files are found at once, and addresses behind them.
    assert_eq!(
        found,
        [("joe@here.test", Some(&program)), ("joe@here.test", Some(&file)), ("ann@here.test", None)]
    );
    assert!(matches!(run(&named, "all@here.test"), Err(Trouble::NotAllowed { .. })));
    let discarded = expand(&aliases(&[("noreply", "/dev/null")]), "noreply@here.test");
    assert_eq!(discarded.target(0), Some(&AliasTarget::File("/dev/null".into())));
    assert_eq!(expand(&named, "two@here.test").recipients().len(), 3);
    for value in ["", "a@b@c", "@else.test", ":fail: no", "\"open"] {
        let refused = run(&aliases(&[("joe", value)]), "joe@here.test");
        assert!(matches!(refused, Err(Trouble::Value { .. })), "{value}: {refused:?}");
        if value != "@else.test" {
            let tables = Tables { r#virtual: table(&[("joe@here.test", value)]), ..Tables::default() };
            let refused = run(&tables, "joe@here.test");
            assert!(matches!(refused, Err(Trouble::Value { .. })), "{value}: {refused:?}");
        }
    }
    let tables = Tables { r#virtual: table(&[("joe@here.test", "|/bin/sh")]), ..Tables::default() };
    assert!(matches!(run(&tables, "joe@here.test"), Err(Trouble::Value { .. })));
}

/// A local part is a name: never a program, a file, a route or a pattern.
#[test]
fn nothing_in_a_recipient_is_interpreted() {
    let tables = aliases(&[("joe", "joe@phone.test")]);
    for recipient in [
        "joe%else.test@here.test",
        "else.test!joe@here.test",
        "\"joe@else.test\"@here.test",
        "|/bin/sh@here.test",
        "/etc/passwd@here.test",
        "\":include:/etc/passwd\"@here.test",
        "\"|/bin/sh\"@here.test",
        "\"\\\\joe\"@here.test",
    ] {
        assert_eq!(run(&tables, recipient).unwrap(), [recipient]);
    }
}

#[test]
fn unknown_users_are_told_apart_from_targets_that_do_not_exist() {
    let settings = Settings { has_users: true, ..settings() };
    let mut tables = aliases(&[("staff", "joe"), ("old", "gone, x@else.test"), ("left", "gone")]);
    tables.users = vec!["joe@here.test".to_owned(), "ann@map.test".to_owned()];
    tables.domains = vec!["map.test".to_owned()];
    for (recipient, exists) in [
        ("joe@here.test", true),
        ("staff@here.test", true),
        ("ann@map.test", true),
        ("any@else.test", true),
        ("gone@here.test", false),
        ("joe@map.test", false),
    ] {
        let step = run_with(&settings, &tables, recipient);
        assert_eq!(step != Step::NoSuchUser, exists, "{recipient}: {step:?}");
    }
    // Those who exist get the mail, and the one who does not is told.
    let Step::Done(expanded) = run_with(&settings, &tables, "old@here.test") else { panic!("old") };
    assert_eq!(expanded.recipients().map(Mailbox::as_str).collect::<Vec<_>>(), ["x@else.test"]);
    assert!(
        matches!(expanded.missing(), [Trouble::NoSuchTarget { target, .. }] if **target == *"gone@here.test")
    );
    let step = run_with(&settings, &tables, "left@here.test");
    assert!(matches!(&step, Step::Failed(trouble) if trouble.is_lasting()), "{step:?}");
}

#[test]
fn an_alias_for_root_leads_to_the_postmaster_where_root_is_no_user() {
    let postmaster = Mailbox::parse("jane@here.test", false).ok();
    let settings = Settings { has_users: true, postmaster, ..settings() };
    let mut tables = aliases(&[("mailer-daemon", "postmaster"), ("postmaster", "root")]);
    tables.users = vec!["jane@here.test".to_owned()];
    for given in ["mailer-daemon@here.test", "postmaster@here.test"] {
        let Step::Done(expanded) = run_with(&settings, &tables, given) else { panic!("{given}") };
        assert_eq!(expanded.recipients().map(Mailbox::as_str).collect::<Vec<_>>(), ["jane@here.test"]);
    }
    assert_eq!(run_with(&settings, &tables, "root@here.test"), Step::NoSuchUser, "who is asked directly");
    tables.users.push("root@here.test".to_owned());
    let Step::Done(expanded) = run_with(&settings, &tables, "postmaster@here.test") else { panic!() };
    assert_eq!(expanded.recipients().map(Mailbox::as_str).collect::<Vec<_>>(), ["root@here.test"]);
    let own = Settings { postmaster: Mailbox::parse("postmaster@here.test", false).ok(), ..settings };
    // A postmaster who is an alias of himself has nobody else, and gets the mail, unless no mailbox can have the name.
    let own = Settings { has_mailboxes: true, ..own };
    tables.users.clear();
    for given in ["mailer-daemon@here.test", "postmaster@here.test"] {
        let Step::Done(expanded) = run_with(&own, &tables, given) else { panic!("{given}") };
        assert_eq!(expanded.recipients().map(Mailbox::as_str).collect::<Vec<_>>(), ["postmaster@here.test"]);
    }
    tables.no_mailbox.push("postmaster@here.test".to_owned());
    let step = run_with(&own, &tables, "mailer-daemon@here.test");
    assert!(matches!(&step, Step::Failed(trouble) if trouble.is_lasting()), "{step:?}");
    let last = Mailbox::parse("postmaster@mx.test", false).unwrap();
    let own = Settings { last_resort: Some((last, "kept".into())), ..own };
    let Step::Done(expanded) = run_with(&own, &tables, "mailer-daemon@here.test") else { panic!() };
    assert_eq!(expanded.recipients().map(Mailbox::as_str).collect::<Vec<_>>(), ["postmaster@mx.test"]);
    assert_eq!(expanded.target(0), Some(&AliasTarget::Route("kept".into())));
}

#[test]
fn a_root_without_a_mailbox_leads_to_the_postmaster_and_another_name_is_missing() {
    let postmaster = Mailbox::parse("jane@here.test", false).ok();
    let settings = Settings { has_users: true, has_mailboxes: true, postmaster, ..settings() };
    let mut tables = aliases(&[("postmaster", "root"), ("staff", "jane, bin"), ("jobs", "bin")]);
    tables.users = ["jane", "root", "bin"].map(|name| format!("{name}@here.test")).to_vec();
    tables.no_mailbox = ["root@here.test", "bin@here.test"].map(str::to_owned).to_vec();
    for given in ["postmaster@here.test", "staff@here.test"] {
        let Step::Done(expanded) = run_with(&settings, &tables, given) else { panic!("{given}") };
        assert_eq!(expanded.recipients().map(Mailbox::as_str).collect::<Vec<_>>(), ["jane@here.test"]);
    }
    assert_eq!(run_with(&settings, &tables, "bin@here.test"), Step::NoSuchUser);
    let step = run_with(&settings, &tables, "jobs@here.test");
    assert!(matches!(step, Step::Failed(Trouble::NoSuchTarget { .. })), "{step:?}");
}

#[test]
fn a_look_up_that_fails_is_never_an_unknown_user() {
    let settings = Settings { has_users: true, ..settings() };
    let all = [
        Question::Canonical("joe@here.test".into()),
        Question::Virtual("@here.test".into()),
        Question::Alias("joe".into()),
        Question::User("joe@here.test".into()),
    ];
    for question in all {
        let tables = Tables { broken: vec![question.clone()], ..Tables::default() };
        let step = run_with(&settings, &tables, "joe@here.test");
        assert!(matches!(&step, Step::Failed(trouble) if trouble.is_look_up()), "{question:?}: {step:?}");
    }
}
