//! The patterns of operators' selections, in the queue and in the history.

/// Returns whether a text matches a pattern as a whole, where `*` stands for any characters and `?` for one. Letter case does
/// not matter. Takes time proportional to the product of the lengths at worst.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    if !has_wildcard(pattern) && pattern.is_ascii() {
        return pattern.eq_ignore_ascii_case(text);
    }
    let fold = |s: &str| s.chars().flat_map(char::to_lowercase).collect::<Vec<char>>();
    let (pattern, text) = (fold(pattern), fold(text));
    let (mut p, mut t) = (0, 0);
    // Where to go on after a mismatch: behind the last star, one character later in the text.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((star, from)) = retry else { return false };
                retry = Some((star, from + 1));
                (p, t) = (star, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Returns whether a pattern has `*` or `?`.
pub fn has_wildcard(pattern: &str) -> bool {
    pattern.contains(['*', '?'])
}

/// Returns an address of a selection without the brackets around it.
pub fn bare_address(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text)
}

/// Returns whether a destination such as `mx:example.com` is meant by a pattern of its name, or of what stands behind the colon.
pub fn matches_destination(pattern: &str, destination: &str) -> bool {
    let target = destination.split_once(':').map_or("", |(_, target)| target);
    matches_pattern(pattern, destination) || matches_pattern(pattern, target)
}

/// Returns the domain of an address: the part behind the last `@`; nothing of an address without a domain.
pub fn domain_of(address: &str) -> &str {
    memchr::memrchr(b'@', address.as_bytes()).map_or("", |at| &address[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_addresses_in_any_letter_case() {
        for (pattern, text) in [
            ("a@b", "A@B"),
            ("*@example.com", "x@Example.com"),
            ("*", ""),
            ("a?c", "abc"),
            ("*a*b*", "xxaxxbxx"),
            ("**", "x"),
            ("MÜLLER@*", "müller@x"),
            ("MÜLLER@x", "müller@x"),
        ] {
            assert!(matches_pattern(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("?", ""), ("*@b", "a@bc"), ("", "a"), ("*a*b", "abc")] {
            assert!(!matches_pattern(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_does_not_take_for_ever() {
        assert!(!matches_pattern(&"*a".repeat(200), &"a".repeat(199)));
    }
}
