use super::*;
use proptest::prelude::*;

#[test]
fn the_languages_of_the_program_have_all_sections_and_the_same_reasons() {
    let statuses = |code: &str| -> Vec<Box<str>> {
        Language::embedded(code).expect("it can be read").reasons.into_keys().collect()
    };
    for code in LANGUAGES {
        let language = Language::embedded(code).unwrap();
        assert!(language.kinds.iter().all(|notice| !notice.lines.is_empty()), "{code}");
        assert_eq!(statuses(code), statuses("en"), "{code}");
        assert_eq!(Language::parse(code, "").as_ref(), Ok(&language));
    }
}

#[test]
fn a_file_changes_sections_and_leaves_the_others() {
    let file = "# ours\n[reason 5.1.1]\nNobody here has\nthis name.\n\n[failed]\nSubject: Sorry\n\nDear {sender},\n{recipients}\n";
    let language = Language::parse("en", file).unwrap();
    let embedded = Language::embedded("en").unwrap();
    assert_eq!(language.reason(Enhanced(5, 1, 1)), "Nobody here has this name.");
    assert_eq!(language.reason(Enhanced(5, 1, 2)), embedded.reason(Enhanced(5, 1, 2)));
    assert_eq!(language.notice(DsnKind::Failed).lines.len(), 2);
    assert_eq!(language.notice(DsnKind::Delayed), embedded.notice(DsnKind::Delayed));
}

#[test]
fn the_most_specific_reason_is_used() {
    let language = Language::embedded("en").unwrap();
    assert!(language.reason(Enhanced(5, 2, 2)).contains("full"));
    assert_eq!(language.reason(Enhanced(5, 1, 8)), language.reasons["5.1"].as_ref());
    assert_eq!(language.reason(Enhanced(5, 9, 9)), language.reasons["5"].as_ref());
    assert_eq!(language.reason(Enhanced(2, 0, 0)), "");
}

#[test]
fn a_fault_is_told_with_line_and_column() {
    for (file, place, what) in [
        (
            "[failed]\nSubject: x\n\nHello {reciever}\n{recipients}\n",
            (4, 7),
            "unknown placeholder {reciever}",
        ),
        ("[failed]\nSubject: ü {address}\n\n{recipients}\n", (2, 12), "unknown placeholder {address}"),
        ("[failed]\nSubject: x\n\n{recipients\n", (4, 1), "a placeholder that does not end"),
        ("[failed]\nSubject: x\n\n a } b\n{recipients}\n", (4, 4), "a brace without its partner"),
        ("[failed]\nSubject: x\n\nto {recipients}\n", (4, 4), "{recipients} is not alone"),
        ("[failed]\nSubject: x\n\nno\n", (1, 1), "[failed] does not show the recipients"),
        ("[failed]\nSubject:\n\n{recipients}\n", (2, 1), "the subject is empty"),
        ("[failed]\nHello\n{recipients}\n", (2, 1), "no subject"),
        ("[failed]\nSubject: x\nHello\n{recipients}\n", (3, 1), "text below the subject"),
        ("[failed]\n# nothing\n", (1, 1), "[failed] is empty"),
        ("\n[failure]\nx\n", (2, 1), "unknown section [failure]"),
        ("[failed\n", (1, 1), "a section name without ]"),
        ("hello\n", (1, 1), "text above the first section"),
        ("[reason 5]\nx\n[reason 5]\ny\n", (3, 1), "[reason 5] stands in line 1, too"),
        ("[reason 3]\nx\n", (1, 1), "3 is not a status"),
        ("[reason 5.1.1.1]\nx\n", (1, 1), "5.1.1.1 is not a status"),
        ("[reason 5.01]\nx\n", (1, 1), "5.01 is not a status"),
        ("[reason 5]\n{address}\n", (2, 1), "unknown placeholder {address}"),
        ("[recipient]\n{reason}\n", (1, 1), "[recipient] does not have {address}"),
        ("[recipient]\n{address}\n a\tb\n", (3, 3), "a control character"),
    ] {
        let faults = Language::parse("en", file).expect_err(file);
        let [error] = &faults[..] else { panic!("{file}: {faults:?}") };
        assert_eq!(((error.line, error.column), error.what.as_str()), (place, what), "{file}");
    }
}

#[test]
fn all_faults_of_a_file_are_told_with_their_places() {
    let file = "hello\nyou\n[failed]\nSubject: {adress} of {id\nDear {sendr}, } {recpients}\n{recipients}\n\n\
                [failure]\nx\n[failed]\n{bad}\n[reason 5.1]\nSee {address}.\nOr { there\n[recipient]\n{addres}\n[delayed]\n";
    let faults = Language::parse("en", file).unwrap_err();
    let told: Vec<_> = faults.iter().map(|fault| (fault.line, fault.column, fault.what.as_str())).collect();
    assert_eq!(
        told,
        [
            (1, 1, "text above the first section"),
            (4, 10, "unknown placeholder {adress}"),
            (4, 22, "a placeholder that does not end"),
            (5, 1, "text below the subject"),
            (5, 6, "unknown placeholder {sendr}"),
            (5, 15, "a brace without its partner"),
            (5, 17, "unknown placeholder {recpients}"),
            (8, 1, "unknown section [failure]"),
            (10, 1, "[failed] stands in line 3, too"),
            (13, 5, "unknown placeholder {address}"),
            (14, 4, "a placeholder that does not end"),
            (16, 1, "unknown placeholder {addres}"),
            (17, 1, "[delayed] is empty"),
        ]
    );
    assert!(faults.iter().all(|fault| !fault.help.is_empty()));
    assert_eq!(
        Language::parse("en", "[reason 5]\n{x}\n".replace("{x}", &"{x}".repeat(99))).unwrap_err().len(),
        20
    );
}

#[test]
fn a_file_that_is_not_utf_8_has_the_place_of_the_first_wrong_byte() {
    let faults = Language::parse("en", b"[failed]\nSubject: \xc3\xbcx \xfc\n").unwrap_err();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].to_string(), "2:13: the byte 0xFC is not UTF-8: save the file as UTF-8");
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_section() {
    Language::parse("en", b"\xef\xbb\xbf[reason 5]\nx\n").unwrap();
}

#[test]
fn a_language_that_the_program_does_not_have_needs_every_section() {
    let faults = Language::parse("fr", "[reason 5]\nx\n").unwrap_err();
    let missing = |fault: &TemplateError| fault.line == 2 && fault.what.ends_with("] is missing");
    assert!(faults.len() == DsnKind::ALL.len() + 2 && faults.iter().all(missing), "{faults:?}");
    assert_eq!(faults[0].what, "the section [failed] is missing");
    assert_eq!(Language::parse("fr", ENGLISH).unwrap().code(), "fr");
}

#[test]
fn double_braces_are_braces_and_a_line_without_a_value_is_left_out() {
    let line = Line::parse("{{a}} {given}", 1, &[Placeholder::Given], &mut Vec::new());
    assert_eq!(line.fill(|_| "x".into()).as_deref(), Some("{a} x"));
    assert_eq!(line.fill(|_| "".into()), None);
}

proptest! {
    #[test]
    fn arbitrary_files_never_panic(text in "(\\[failed\\]|\\[recipient\\]|\\[reason 5\\]|Subject: |\\{address\\}|[\\n{}\\[\\]#a é\\t]){0,40}") {
        if let Err(faults) = Language::parse("en", &text) {
            prop_assert!(!faults.is_empty() && faults.iter().all(|fault| fault.line >= 1 && fault.column >= 1));
        }
    }
}
