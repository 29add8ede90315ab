//! Texts for people, without what only programmers read.

use std::borrow::Cow;

/// Returns a text without the numbers that the standard library puts behind the words of an error of the operating system:
/// `(os error 2)`.
pub fn plain_text(text: &str) -> Cow<'_, str> {
    const BEGIN: &str = " (os error ";
    let mut plain = Cow::Borrowed(text);
    let mut from = 0;
    while let Some(begin) = plain[from..].find(BEGIN).map(|at| from + at) {
        let digits = &plain[begin + BEGIN.len()..];
        let digit_count = digits.bytes().take_while(u8::is_ascii_digit).count();
        if digit_count > 0 && digits[digit_count..].starts_with(')') {
            let end = begin + BEGIN.len() + digit_count + 1;
            plain.to_mut().replace_range(begin..end, "");
            from = begin;
        } else {
            from = begin + BEGIN.len();
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_the_operating_system_are_cut_out() {
        let error = std::io::Error::from_raw_os_error(2).to_string();
        assert_eq!(
            plain_text(&format!("open x: {error}; y: {error}")),
            "open x: No such file or directory; y: No such file or directory"
        );
        for text in ["", "no error", "odd (os error x) and (os error 2", "é (os error )"] {
            assert_eq!(plain_text(text), text);
        }
    }
}
