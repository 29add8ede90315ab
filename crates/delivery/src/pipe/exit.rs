//! The outcome of a program: its exit code (sysexits.h), and the status at the front of its output.

use mail::{Enhanced, Outcome};

/// Longest text of a program that becomes a part of an outcome.
const TEXT_MAX_BYTES: usize = 500;

/// Returns the outcome of a program that has ended with this code, or by a signal, and printed this. Words of the
/// program that begin with `4.x.x` or `5.x.x` decide, unless it was successful.
pub(super) fn outcome(name: &str, code: Option<i32>, output: &[u8]) -> Outcome {
    let said = text(output);
    let delivered = || Outcome::delivered(Enhanced(2, 0, 0), format!("delivered to the program {name}"));
    if code == Some(0) {
        return delivered();
    }
    if let Some((status @ Enhanced(class @ (4 | 5), ..), words)) = Enhanced::parse_prefix(&said) {
        let words =
            if words.is_empty() { format!("refused by the program {name}") } else { words.to_owned() };
        return if class == 4 { Outcome::deferred(status, words) } else { Outcome::failed(status, words) };
    }
    let (status, what) = match code.and_then(meaning) {
        Some(meaning) => meaning,
        // A crash, or a code without a meaning: perhaps a fault of the program, which can be repaired.
        None => (Enhanced(4, 3, 0), "unknown error"),
    };
    let ended = match code {
        Some(code) => format!("exit code {code}, {what}"),
        None => "ended by a signal".to_owned(),
    };
    let separator = if said.is_empty() { "" } else { ": " };
    let text = format!("the program {name}: {ended}{separator}{said}");
    if status.0 == 4 { Outcome::deferred(status, text) } else { Outcome::failed(status, text) }
}

/// Enhanced code and text for an exit status of sysexits.h; `None` for other numbers.
fn meaning(code: i32) -> Option<(Enhanced, &'static str)> {
    Some(match code {
        64 => (Enhanced(5, 3, 5), "wrong arguments"),
        65 => (Enhanced(5, 6, 0), "data format error"),
        66 => (Enhanced(5, 3, 0), "cannot open input"),
        67 => (Enhanced(5, 1, 1), "no such user"),
        68 => (Enhanced(5, 1, 2), "no such host"),
        69 => (Enhanced(5, 3, 0), "service unavailable"),
        70 => (Enhanced(5, 3, 0), "internal software error"),
        71 => (Enhanced(4, 3, 0), "system error"),
        72 => (Enhanced(5, 3, 0), "critical system file missing"),
        73 => (Enhanced(5, 2, 0), "cannot create output file"),
        74 => (Enhanced(4, 3, 0), "input or output error"),
        75 => (Enhanced(4, 3, 0), "temporary failure"),
        76 => (Enhanced(5, 5, 0), "remote error in protocol"),
        77 => (Enhanced(5, 7, 0), "permission denied"),
        78 => (Enhanced(5, 3, 5), "configuration error"),
        _ => return None,
    })
}

/// Returns the first line of an output that is not empty, without control characters.
fn text(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut clean: String = line.chars().map(|c| if mail::is_invisible(c) { ' ' } else { c }).collect();
    if clean.len() > TEXT_MAX_BYTES {
        clean.truncate(clean.floor_char_boundary(TEXT_MAX_BYTES));
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::Disposition;

    #[test]
    fn each_code_has_its_meaning() {
        for (code, status, disposition) in [
            (Some(0), "2.0.0", Disposition::Delivered),
            (Some(65), "5.6.0", Disposition::Failed),
            (Some(67), "5.1.1", Disposition::Failed),
            (Some(71), "4.3.0", Disposition::Deferred),
            (Some(75), "4.3.0", Disposition::Deferred),
            (Some(77), "5.7.0", Disposition::Failed),
            (Some(1), "4.3.0", Disposition::Deferred),
            (Some(127), "4.3.0", Disposition::Deferred),
            (None, "4.3.0", Disposition::Deferred),
        ] {
            let outcome = outcome("/bin/x", code, b"\n some \x07words\nmore\n");
            assert_eq!(
                (&*outcome.status.to_string(), outcome.disposition),
                (status, disposition),
                "{code:?}"
            );
            let has_words = outcome.text.ends_with(": some  words");
            assert_eq!(has_words, disposition != Disposition::Delivered, "{}", outcome.text);
        }
    }

    #[test]
    fn a_status_in_front_of_the_words_decides_where_the_program_fails() {
        let of = |code, words: &str| {
            let outcome = outcome("/bin/x", Some(code), words.as_bytes());
            (outcome.status.to_string(), outcome.disposition, outcome.text.to_string())
        };
        assert_eq!(of(1, "5.2.2 over quota\n"), ("5.2.2".into(), Disposition::Failed, "over quota".into()));
        assert_eq!(of(67, "4.2.1 later").1, Disposition::Deferred);
        assert_eq!(of(0, "5.2.2 over quota").1, Disposition::Delivered);
        assert_eq!(of(75, "2.0.0 fine").1, Disposition::Deferred);
        assert_eq!(of(67, "5.2").0, "5.1.1");
        assert!(of(67, &"ä".repeat(1000)).2.len() < 600);
    }
}
