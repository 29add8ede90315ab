use std::borrow::Cow;
use unicode_normalization::UnicodeNormalization as _;

/// Returns the form in which local parts and keys of maps are compared: lower case, and composed (NFC), as RFC 6530 §10.1 and
/// RFC 6532 §3.1 recommend. No copy is made of ASCII in lower case.
pub fn fold(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        let has_upper = text.bytes().any(|byte| byte.is_ascii_uppercase());
        return if has_upper { text.to_ascii_lowercase().into() } else { text.into() };
    }
    // The lower case of a composed letter may have a form that can be composed further.
    text.nfc().collect::<String>().to_lowercase().nfc().collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_one_text_are_equal() {
        for (one, other) in [
            ("jörg", "jo\u{308}rg"),
            ("JÖRG", "JO\u{308}rg"),
            ("Ǆ", "ǆ"),
            ("Å", "\u{212b}"),
            ("ệ", "e\u{302}\u{323}"),
            ("Joe", "joe"),
        ] {
            assert_eq!(fold(one), fold(other), "{one} {other}");
        }
        assert_ne!(fold("jorg"), fold("jörg"));
        assert!(matches!(fold("joe"), Cow::Borrowed("joe")));
    }

    proptest::proptest! {
        #[test]
        fn what_is_folded_stays(text in "\\PC{0,20}") {
            let once = fold(&text).into_owned();
            proptest::prop_assert_eq!(fold(&once), once.as_str());
        }
    }
}
