//! Numbers of things, in English.

/// Returns a number with its noun: `1 message`, `2 messages`, `1 entry`, `2 entries`.
pub fn counted(count: u64, noun: &str) -> String {
    match noun.strip_suffix('y') {
        _ if count == 1 => format!("1 {noun}"),
        Some(stem) if !stem.ends_with(['a', 'e', 'o']) => format!("{count} {stem}ies"),
        _ if noun.ends_with(['s', 'x']) => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noun_has_the_form_of_its_number() {
        let all = [(1, "message"), (0, "message"), (2, "entry"), (1, "entry"), (2, "key"), (3, "address")];
        let texts = all.map(|(count, noun)| counted(count, noun));
        assert_eq!(texts, ["1 message", "0 messages", "2 entries", "1 entry", "2 keys", "3 addresses"]);
    }
}
