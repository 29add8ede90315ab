//! The rule for figures, on paragraphs that keep it and on paragraphs that break it.

use super::figures::faults;

const TABLE: &str = "\
| size | drained/s | of the ceiling | p99 ms |
|---|---:|---:|---:|
| 1 KB | 8,916 | 72 % | 8.4 |
| 4 KB | 7,950 | 65 % | 9.1 |
";

fn told(prose: &str) -> Vec<String> {
    faults("docs/results/page.md", &format!("# Page\n\n{prose}\n\n{TABLE}"))
}

#[track_caller]
fn passes(prose: &str) {
    assert_eq!(told(prose), [""; 0], "{prose}");
}

/// Checks that there is one fault, which says this.
#[track_caller]
fn fails(prose: &str, why: &str) {
    let told = told(prose);
    assert!(told.len() == 1 && told[0].contains(why), "{prose}: {told:?}");
}

#[test]
fn a_figure_that_stands_in_the_table_passes() {
    passes("It delivers 8,916 messages a second, 72 % of the ceiling, and p99 is 8.4 ms.");
    passes("It delivers 8,920 messages a second.");
    passes("- It delivers 7,950 to 8,916 messages a second.");
}

#[test]
fn a_figure_that_contradicts_the_table_fails_with_its_line() {
    fails("It delivers 8,961 messages a second.", "docs/results/page.md:3: 8,961 ");
    fails("It is fast.\nIt delivers 8,961 messages a second.", "docs/results/page.md:4: 8,961 ");
    fails(
        "- It is fast.\n- It delivers\n  7,950 to 8,961 messages a second.",
        "docs/results/page.md:5: 8,961 ",
    );
    fails("It delivers 74 % of the ceiling.", ":3: 74 ");
}

#[test]
fn two_digits_are_not_looked_up_rounded() {
    fails("It delivers 8,900 messages a second.", "8,900 ");
    passes("It delivers 8,900 messages a second.\n<!-- figures: 8,900 = 8,916 -->");
}

#[test]
fn a_figure_with_another_unit_fails() {
    passes("p99 is 9.1 ms.");
    fails("p99 is 9.1 s.", "9.1 ");
    fails("It takes 7,950 µs.", "7,950 ");
    fails("p99 is 8.4 % longer.", "8.4 ");
}

#[test]
fn a_ratio_needs_a_derivation_that_is_right() {
    fails("With 4 KB the rate is 0.89 times that of 1 KB.", "0.89 ");
    fails("The rate falls by a factor of 0.89.", "0.89 ");
    let said = "With 4 KB the rate is 0.89 times that of 1 KB.\n";
    passes(&format!("{said}<!-- figures: 0.89 = 7,950/8,916 -->"));
    passes(&format!("{said}<!-- figures:\n  0.89 = 7950 /\n  8916 -->"));
    passes("It is 11 % less.\n<!-- figures: 11 % = 1 - 7,950/8,916 -->");
    passes("It is 11 % less.\n<!-- figures: 11 % = (8,916 - 7,950)/8,916 -->");
    let wrong = told("The rate is 0.98 times as high.\n<!-- figures: 0.98 = 7,950/8,916 -->");
    assert!(wrong[0].contains("it is 0.8917"), "{wrong:?}");
    let unknown = told(&format!("{said}<!-- figures: 0.89 = 7,951/8,916 -->"));
    assert!(unknown[0].contains("7,951 is not in the data"), "{unknown:?}");
    let elsewhere = told(&format!("{said}<!-- figures: nowhere.md: 0.89 = 7,950/8,916 -->"));
    assert!(elsewhere[0].contains("there is no page `nowhere.md`"), "{elsewhere:?}");
}

#[test]
fn a_figure_of_a_page_that_a_program_makes_names_its_row() {
    let said = "The paper had 1.50 times.\n<!-- figures: reproduce.md";
    passes(&format!("{said} \"32 octets: LOCAL to INET\": 1.50 = 1.50 -->"));
    let elsewhere = told(&format!("{said} \"no such row\": 1.50 = 1.50 -->"));
    assert!(elsewhere[0].contains("1.50 is not in the data"), "{elsewhere:?}");
    let anywhere = told(&format!("{said}: 1.50 = 1.50 -->"));
    assert!(anywhere[0].contains("name its row"), "{anywhere:?}");
}

#[test]
fn a_comment_that_says_more_than_its_paragraph_fails() {
    fails(
        "It is fast.\n<!-- figures: 0.89 = 7,950/8,916 -->",
        "names 0.89, which the paragraph does not say",
    );
    fails("It is fast.\n<!-- setting: 30 -->", "names 30, which");
    fails("It is 30 old.\n<!-- tested: 30 by nobody -->", "there is no test `nobody`");
}

#[test]
fn rows_of_a_table_can_be_counted() {
    passes("The 2 sizes differ.\n<!-- figures: 2 = rows(\"KB | \") -->");
    let wrong = told("The 12 sizes differ.\n<!-- figures: 12 = rows(\"KB | \") -->");
    assert!(wrong[0].contains("it is 2.0000"), "{wrong:?}");
}

#[test]
fn what_was_set_is_no_figure() {
    passes("50 sessions on 2 cores, N=3, 26 November 2026, 2026-11-26 at 19:25, commit 2974133, RFC 5321.");
    passes(
        "10 and 100 kept connections, Debian 12, Linux 6.18, Postfix 3.7.11, S4, `-s 33`, [text](a33.md).",
    );
    passes("The 250 comes after the sync. No failure proves a rate below 3/N.");
    passes("It sends 3,000 messages.\n<!-- setting: 3,000 -->");
    fails("Postfix 701 is behind.", "701 ");
    fails("It takes 50.5 sessions.", "50.5 ");
    fails("It takes 250 ms.", "250 ");
}

#[test]
fn code_and_what_postlab_printed_are_data() {
    let page = |data: &str| faults("docs/results/page.md", &format!("p99 is 33 ms.\n\n{data}\n"));
    assert_eq!(page("```text\np99 33 ms\n```"), [""; 0]);
    assert_eq!(page("### postfix:stock\n\n- phases in ms: message 13/33"), [""; 0]);
    assert_eq!(page("### Of a postfix\n\nThe table has it.").len(), 1);
    assert_eq!(page("33 ms were said before, and it is not true.").len(), 2);
}
