//! Characters that are not shown, and that change how the text around them is shown.

use std::borrow::Cow;

/// Returns whether a character is a control or format character, or ends a line or a paragraph (Unicode's categories Cc, Cf, Zl
/// and Zp). In text that others wrote, such a character can command a terminal, hide text, or turn its direction, so that a reader
/// sees other words than there are.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || !c.is_ascii()
            && matches!(
                c,
                '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
                    | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
                    | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
                    | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}'
            )
}

/// Returns a text with its invisible characters written as `\\u{202e}`. Tabs and the ends of lines stay.
pub fn escape_invisible(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| is_invisible(c) && !matches!(c, '\n' | '\t');
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_shows_each_character_that_would_not_be_seen() {
        for c in ['\u{1b}', '\u{85}', '\u{200b}', '\u{202e}', '\u{2028}', '\u{2066}', '\u{feff}', '\u{e0041}']
        {
            assert!(is_invisible(c));
            let escaped = escape_invisible(&format!("a{c}b")).into_owned();
            assert_eq!(escaped, format!("a\\u{{{:x}}}b", u32::from(c)));
        }
        for text in ["plain\ttext\n", "grün", "日本語", "עברית", "e\u{301}"] {
            assert!(matches!(escape_invisible(text), Cow::Borrowed(_)), "{text}");
        }
    }
}
