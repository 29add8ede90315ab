//! Doc comments: the first sentence stands alone and names its subject.

/// First words that refer to something that a reader of the comment has not seen, or that begin a clause where a noun or
/// a verb belongs.
const BEGINNINGS: [&str; 20] = [
    "The same", "It", "Its", "They", "Their", "That", "Those", "This", "These", "He", "Who", "Whoever",
    "Whose", "Likewise", "What", "Which", "How", "Where", "Why", "Whether",
];

/// Returns each doc comment of a Rust file that begins with such words, as `file:line: what`.
pub(super) fn faults(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut is_inside = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let Some(comment) = comment.filter(|_| !is_inside)
            && let Some(words) = beginning(comment.trim_start())
        {
            let what = format!("a doc comment begins with `{words}`: begin with the noun or the verb");
            faults.push(format!("{name}:{}: {what}", number + 1));
        }
        is_inside = comment.is_some();
    }
    faults
}

fn beginning(comment: &str) -> Option<&'static str> {
    let follows = |words: &&str| {
        let rest = comment.strip_prefix(words);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ',', ':', ';', '.', '?']))
    };
    BEGINNINGS.iter().copied().find(|words| follows(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doc_comment_that_begins_with_a_pronoun_is_told_with_its_line() {
        for comment in
            ["/// The same, without waiting.", "    /// It waits.", "//! Who waits.", "/// That is all."]
        {
            assert_told(comment);
        }
    }

    #[test]
    fn a_doc_comment_that_begins_with_a_question_word_is_told_with_its_line() {
        for comment in [
            "/// What a session needs.",
            "    /// Which worker has it.",
            "    /// Which.",
            "/// Whose turn comes next.",
            "/// How many jobs wait.",
            "//! Where the log lies.",
            "/// Where",
            "/// Why: a reason.",
            "    /// Whether the job waits.",
        ] {
            assert_told(comment);
        }
    }

    fn assert_told(comment: &str) {
        let told = faults("a.rs", &format!("use x;\n{comment}\nfn f() {{}}\n"));
        assert!(
            matches!(&told[..], [one] if one.starts_with("a.rs:2: a doc comment begins with `")),
            "{comment}: {told:?}"
        );
    }

    #[test]
    fn later_lines_and_other_beginnings_are_fine() {
        let fine = "/// Returns the length.\n/// It is cached.\nfn f() {}\n// It is a comment.\n/// Items.\n";
        assert_eq!(faults("a.rs", fine), [""; 0]);
        let fine = "/// When the disk is full, it waits.\nfn f() {}\n/// Jobs.\n/// How many is in `n`.\n/// Whatever.\n";
        assert_eq!(faults("a.rs", fine), [""; 0]);
    }
}
