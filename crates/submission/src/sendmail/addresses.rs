//! Address lists as they stand in `To`, `Cc` and `Bcc` (RFC 5322 §3.4, with the obsolete forms of
//! §4.4): one pass, no recursion, so that no header can take for ever.

/// The addresses of a list, without names, comments, groups and routes. A bare word is a local
/// user. The error says what is not an address.
pub fn parse(text: &str) -> Result<Vec<String>, String> {
    read(text).map(|found| found.into_iter().map(|(address, _)| address).collect())
}

/// Appends this machine's name to each bare word of an address list, so that a `From: root` means
/// something elsewhere (RFC 6409 §8.1). None when nothing is to be done, or it is not a list.
pub fn qualify(text: &str, hostname: &str) -> Option<String> {
    let found = read(text).ok()?;
    let bare: Vec<usize> = found.iter().filter(|(a, _)| !has_domain(a)).map(|(_, end)| *end).collect();
    let mut out = text.to_owned();
    for end in bare.iter().rev() {
        out.insert_str(*end, &format!("@{hostname}"));
    }
    (!bare.is_empty()).then_some(out)
}

/// Returns whether an `@` follows the local part.
pub fn has_domain(address: &str) -> bool {
    let local_end = if address.starts_with('"') { end_of_quotes(address).unwrap_or(0) } else { 0 };
    address[local_end..].contains('@')
}

/// Each address, and where in the text its last word ends.
fn read(text: &str) -> Result<Vec<(String, usize)>, String> {
    let mut list = List { length: text.len(), rest: text, addresses: Vec::new(), item: Item::default() };
    while let Some(c) = list.rest.chars().next() {
        list.step(c)?;
    }
    list.end_item()?;
    Ok(list.addresses)
}

/// What was read of one address of a list.
#[derive(Default)]
struct Item {
    /// Words so far: a display name, or an address without brackets.
    words: String,
    /// Two words stood beside each other: fine in a name, wrong in an address.
    is_phrase: bool,
    /// White space or a comment came behind the last word.
    gap: bool,
    /// Offset behind the last word.
    end: usize,
    /// What stood in angle brackets; `None` without them.
    angle: Option<String>,
}

struct List<'t> {
    /// Of the whole text, so that what is left tells where we are.
    length: usize,
    rest: &'t str,
    addresses: Vec<(String, usize)>,
    item: Item,
}

impl List<'_> {
    fn step(&mut self, c: char) -> Result<(), String> {
        match c {
            ',' | ';' => {
                self.skip(1);
                self.end_item()?;
            }
            // The name of a group; its members follow, each an address of its own.
            ':' => {
                self.skip(1);
                self.item = Item::default();
            }
            '(' => {
                self.rest = after_comment(self.rest)?;
                self.item.gap = true;
            }
            '<' => self.angle()?,
            '"' => self.quoted()?,
            '[' => self.literal()?,
            c if c.is_whitespace() => {
                self.skip(c.len_utf8());
                self.item.gap = true;
            }
            ')' | '>' | ']' => return Err(format!("{c} without its partner")),
            '\\' => return Err("\\ outside quotes".to_owned()),
            c => {
                self.skip(c.len_utf8());
                self.word(&c.to_string(), matches!(c, '.' | '@'))?;
            }
        }
        Ok(())
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    /// White space around `.` and `@` means nothing (RFC 5322 §4.4); elsewhere it separates words.
    fn word(&mut self, text: &str, joins: bool) -> Result<(), String> {
        let item = &mut self.item;
        if item.angle.is_some() {
            return Err("text behind >".to_owned());
        }
        if item.gap && !item.words.is_empty() && !joins && !item.words.ends_with(['.', '@']) {
            item.is_phrase = true;
        }
        item.gap = false;
        item.words.push_str(text);
        item.end = self.length - self.rest.len();
        Ok(())
    }

    fn quoted(&mut self) -> Result<(), String> {
        let end = end_of_quotes(self.rest).ok_or("a quote without its partner")?;
        let (quoted, rest) = self.rest.split_at(end);
        self.rest = rest;
        // `"a" b` and `a"b"` are names at most.
        self.item.is_phrase |= !self.item.words.is_empty();
        self.word(quoted, false)
    }

    fn literal(&mut self) -> Result<(), String> {
        let end = self.rest.find(']').ok_or("[ without its partner")?;
        let (literal, rest) = self.rest.split_at(end + 1);
        self.rest = rest;
        self.word(literal, false)
    }

    /// `<local@domain>`, or with the source route that is to be ignored (RFC 5322 §4.4): `<@a,@b:local@domain>`.
    fn angle(&mut self) -> Result<(), String> {
        if self.item.angle.is_some() {
            return Err("two addresses without a comma between them".to_owned());
        }
        let mut inner =
            List { length: self.length, rest: &self.rest[1..], addresses: Vec::new(), item: Item::default() };
        loop {
            match inner.rest.chars().next() {
                None => return Err("< without its partner".to_owned()),
                Some('>') => break,
                Some('<') => return Err("< inside <".to_owned()),
                // Parts of a route, until its colon.
                Some(',') if inner.item.words.starts_with('@') => {
                    inner.skip(1);
                    inner.item = Item::default();
                }
                Some(':') if inner.item.words.starts_with('@') => {
                    inner.skip(1);
                    inner.item = Item::default();
                }
                Some(c @ (',' | ';' | ':')) => return Err(format!("{c} inside <>")),
                Some(c) => inner.step(c)?,
            }
        }
        if inner.item.is_phrase {
            return Err(format!("<{}>: words without a dot or @ between them", inner.item.words));
        }
        self.rest = &inner.rest[1..];
        self.item.angle = Some(inner.item.words);
        self.item.end = inner.item.end;
        self.item.gap = true;
        Ok(())
    }

    fn end_item(&mut self) -> Result<(), String> {
        let item = std::mem::take(&mut self.item);
        match item.angle {
            Some(address) if address.is_empty() => Err("<>: the null address is no recipient".to_owned()),
            Some(address) => {
                self.addresses.push((address, item.end));
                Ok(())
            }
            None if item.is_phrase => Err(format!("{:?} is not an address", item.words)),
            None => {
                if !item.words.is_empty() {
                    self.addresses.push((item.words, item.end));
                }
                Ok(())
            }
        }
    }
}

/// Behind the comment that begins `text`. Comments nest.
fn after_comment(text: &str) -> Result<&str, String> {
    let mut depth = 0usize;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '(' => depth += 1,
            ')' => {
                depth -= 1;
                if depth == 0 {
                    return Ok(&text[at + 1..]);
                }
            }
            _ => {}
        }
    }
    Err("( without its partner".to_owned())
}

/// The length of the quoted string that begins `text`, quotes included.
fn end_of_quotes(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn usual_and_odd_lists_are_read() {
        for (text, addresses) in [
            ("a@b", &["a@b"][..]),
            ("root", &["root"]),
            ("Bob Smith <bob@b.test>, alice@a.test", &["bob@b.test", "alice@a.test"]),
            ("\"Smith, Bob\" <bob@b.test>", &["bob@b.test"]),
            ("\"a b\"@c.test", &["\"a b\"@c.test"]),
            ("<\"a>b\"@c.test>", &["\"a>b\"@c.test"]),
            ("friends: a@b, c@d;, e@f", &["a@b", "c@d", "e@f"]),
            ("undisclosed-recipients:;", &[]),
            ("a@b (the (nested \\) one)), c@d", &["a@b", "c@d"]),
            ("(x) a(y)@(z)b.test", &["a@b.test"]),
            ("a . b @ c . test", &["a.b@c.test"]),
            ("<@x.test,@y.test:a@b.test>", &["a@b.test"]),
            ("user@[127.0.0.1], x <u@[IPv6:::1]>", &["user@[127.0.0.1]", "u@[IPv6:::1]"]),
            ("=?utf-8?Q?J=C3=B6rg?= <j@x.test>", &["j@x.test"]),
            ("Jörg <jörg@x.test>", &["jörg@x.test"]),
            (" , ,a@b,, ", &["a@b"]),
            ("", &[]),
            ("a@b;c@d", &["a@b", "c@d"]),
            ("J.R. Bob <a@b>", &["a@b"]),
        ] {
            assert_eq!(parse(text).unwrap_or_else(|why| panic!("{text}: {why}")), addresses, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_said_so() {
        for text in [
            "John Smith",
            "a@b c@d",
            "<a@b",
            "a@b>",
            "\"a@b",
            "(a@b",
            "a@b)",
            "<a@b> <c@d>",
            "<a@b> Bob",
            "<a>\"\"",
            "<a b@c>",
            "<>",
            "a <>",
            "<a,b@c>",
            "a@[1.2.3.4",
            "a\\@b",
        ] {
            assert!(parse(text).is_err(), "{text}: {:?}", parse(text));
        }
    }

    #[test]
    fn bare_words_get_the_hosts_name_and_the_rest_stays_as_it_is() {
        for (text, qualified) in [
            (" root (Cron Daemon)\n", " root@h.test (Cron Daemon)\n"),
            ("Bob <bob>, a@b.test,\n eve", "Bob <bob@h.test>, a@b.test,\n eve@h.test"),
            ("team: x, \"y@z\" ;", "team: x@h.test, \"y@z\"@h.test ;"),
            ("<@r.test:bob (c)>", "<@r.test:bob@h.test (c)>"),
            ("é", "é@h.test"),
        ] {
            assert_eq!(qualify(text, "h.test").as_deref(), Some(qualified), "{text}");
        }
        for text in ["a@b.test", "John Smith", "", "\"x\"@b.test", "list:;"] {
            assert_eq!(qualify(text, "h.test"), None, "{text}");
        }
    }

    #[test]
    fn deep_comments_and_long_lists_take_linear_time() {
        let deep = format!("{}{} a@b", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(parse(&deep).unwrap(), ["a@b"]);
        assert!(parse(&"(".repeat(100_000)).is_err());
        assert!(parse(&"<".repeat(100_000)).is_err());
        assert_eq!(parse(&"a@b,".repeat(100_000)).unwrap().len(), 100_000);
    }

    proptest! {
        #[test]
        fn a_qualified_list_needs_no_more(text in "[a@.,;:<>()\\[\\]\"\\\\ é]{0,24}") {
            if let Some(qualified) = qualify(&text, "h.test") {
                let before = parse(&text).unwrap();
                let after = parse(&qualified).unwrap();
                prop_assert_eq!(after.len(), before.len());
                for (after, before) in after.iter().zip(&before) {
                    prop_assert!(after == before || *after == format!("{before}@h.test"), "{:?}", qualified);
                }
                prop_assert_eq!(qualify(&qualified, "h.test"), None);
            }
        }

        #[test]
        fn simple_lists_read_the_same_as_by_another_parser(
            names in prop::collection::vec("[a-z]{1,5}( [a-z]{1,5})?", 1..4),
            locals in prop::collection::vec("[a-z]{1,5}(\\.[a-z]{1,5})?", 4),
        ) {
            let list: Vec<String> =
                names.iter().zip(&locals).map(|(name, local)| format!("\"{name}\" <{local}@x.test>")).collect();
            let raw = format!("To: {}\r\n\r\n", list.join(", "));
            let parsed = mail_parser::MessageParser::new().parse(raw.as_bytes()).unwrap();
            let other: Vec<String> =
                parsed.to().unwrap().iter().map(|a| a.address().unwrap().to_owned()).collect();
            prop_assert_eq!(parse(&list.join(", ")).unwrap(), other);
        }
    }
}
