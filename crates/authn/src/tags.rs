//! Lists of tags: `v=1; d=example.com` (RFC 6376 §3.2).

use std::ops::Range;

/// Tags of a list; those that are known are fewer than 20.
const TAGS_MAX: usize = 64;

/// White space that may stand around names and values, and within some values: also that of folded lines.
pub(crate) const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// Returns the value of a tag without white space, from any list: also from one that breaks the grammar.
pub fn tag_value(list: &str, name: &str) -> Option<String> {
    let mut tags = list.split(';').filter_map(|tag| tag.split_once('='));
    let (_, value) = tags.find(|(tag, _)| tag.trim() == name)?;
    Some(value.split_whitespace().collect())
}

/// A tag list (RFC 6376 §3.2), in its order.
pub(crate) struct Tags<'a>(Vec<Tag<'a>>);

struct Tag<'a> {
    name: &'a str,
    value: &'a str,
    /// What stands between `=` and `;`.
    place: Range<usize>,
}

impl<'a> Tags<'a> {
    /// Reads a list; `None` if it breaks the grammar, or names a tag twice.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let mut tags: Vec<Tag<'_>> = Vec::new();
        let mut begin = 0;
        for spec in text.split(';') {
            let end = begin + spec.len();
            if let Some((name, value)) = spec.split_once('=') {
                let name = name.trim_matches(SPACE);
                let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                let is_value = !value.contains(|it: char| it.is_ascii_control() && !SPACE.contains(&it));
                if !is_name || !is_value || tags.len() == TAGS_MAX || tags.iter().any(|tag| tag.name == name)
                {
                    return None;
                }
                tags.push(Tag { name, value: value.trim_matches(SPACE), place: end - value.len()..end });
            } else if end < text.len() || !spec.trim_matches(SPACE).is_empty() {
                return None;
            }
            begin = end + 1;
        }
        Some(Self(tags))
    }

    /// Returns a tag's value, without the white space around it.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|tag| tag.name == name).map(|tag| tag.value)
    }

    /// Returns the name of the first tag.
    pub(crate) fn first(&self) -> Option<&'a str> {
        self.0.first().map(|tag| tag.name)
    }

    /// Returns where a tag's value stands in the list, with the white space around it.
    pub(crate) fn place(&self, name: &str) -> Option<Range<usize>> {
        self.0.iter().find(|tag| tag.name == name).map(|tag| tag.place.clone())
    }
}

/// Returns whether a list of words separated by colons has this one, in any letter case.
pub(crate) fn has_word(list: &str, word: &str) -> bool {
    list.split(':').any(|it| it.trim_matches(SPACE).eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_have_values_without_the_space_around_them() {
        let text = " v = 1;\r\n\td=a.test ; b= x\r\n y ;p=;";
        let tags = Tags::parse(text).unwrap();
        assert_eq!(["v", "d", "b", "p"].map(|name| tags.get(name).unwrap()), ["1", "a.test", "x\r\n y", ""]);
        assert_eq!(&text[tags.place("b").unwrap()], " x\r\n y ");
        assert_eq!((tags.first(), tags.get("x")), (Some("v"), None));
        assert!(Tags::parse("").unwrap().first().is_none());
    }

    #[test]
    fn lists_that_break_the_grammar_are_none() {
        for text in ["v", "v=1;;d=x", "=1", "1=x", "v=1; v=1", "a-b=c", "v=\0", ";v=1", &"x=1;".repeat(2)] {
            assert!(Tags::parse(text).is_none(), "{text:?}");
        }
        let many: String = (0..65).map(|tag| format!("t{tag}=x;")).collect();
        assert!(Tags::parse(&many).is_none());
    }
}
