//! Regular expressions of tables, and what they say about domains.

/// A line `/expression/flags` of regexp_table(5) or pcre_table(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    delimiter: char,
    body: String,
    flags: String,
}

/// Beginnings of expressions that leave the local part open.
const ANY_USER: [&str; 8] = ["^.*@", "^.+@", "^(.*)@", "^(.+)@", "^[^@]*@", "^[^@]+@", ".*@", "@"];

impl Pattern {
    /// Reads the key of a line.
    pub(super) fn parse(key: &str) -> Option<Self> {
        let delimiter = key.chars().next()?;
        let (body, flags) = key[delimiter.len_utf8()..].rsplit_once(delimiter)?;
        Some(Self { delimiter, body: body.to_owned(), flags: flags.to_owned() })
    }

    /// Returns the one that matches everything.
    pub(super) fn any() -> Self {
        Self { delimiter: '/', body: "^".to_owned(), flags: String::new() }
    }

    /// Returns the line without its value.
    pub(super) fn text(&self) -> String {
        format!("{0}{1}{0}{2}", self.delimiter, self.body, self.flags)
    }

    fn with(&self, body: String) -> Self {
        Self { body, ..self.clone() }
    }

    /// Returns the only text that matches, if there is one.
    pub(super) fn literal(&self) -> Option<String> {
        let body = self.body.strip_prefix('^')?.strip_suffix('$')?;
        let mut text = String::new();
        let mut chars = body.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => text.push(chars.next().filter(|c| !c.is_ascii_alphanumeric())?),
                c if c.is_alphanumeric() || "-_@=/,#%".contains(c) => text.push(c),
                _ => return None,
            }
        }
        Some(text)
    }

    /// Returns the key of a table without patterns that matches the same addresses: one address, or `@` and one domain.
    pub(super) fn key(&self) -> Option<String> {
        let domain = || self.of_domain()?.literal().map(|domain| format!("@{domain}"));
        self.literal().or_else(domain)
    }

    /// Returns the pattern of domains that matches where this one matches addresses; `None` if it is about more than their domains.
    pub(super) fn of_domain(&self) -> Option<Self> {
        if matches!(&*self.body, "" | "^") {
            return Some(Self::any());
        }
        let rest = ANY_USER.iter().find_map(|begin| self.body.strip_prefix(begin))?;
        let is_plain = rest.ends_with('$') && !rest.contains('@') && is_one(rest);
        is_plain.then(|| self.with(format!("^{rest}")))
    }

    /// Returns the pattern of addresses that matches where this one matches their domains; `None` if it cannot be written.
    pub(super) fn of_addresses(&self) -> Option<Self> {
        let body = self
            .body
            .strip_prefix('^')
            .map_or_else(|| format!("@.*{}", self.body), |rest| format!("@{rest}"));
        is_one(&self.body).then(|| self.with(body))
    }
}

/// Returns whether an expression has no choice outside of parentheses.
fn is_one(body: &str) -> bool {
    let (mut depth, mut is_escaped) = (0, false);
    for c in body.chars() {
        match c {
            _ if is_escaped => {}
            '(' => depth += 1,
            ')' => depth -= 1,
            '|' if depth == 0 => return false,
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    depth == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_addresses_and_of_domains_change_into_each_other() {
        let of_domain = |key: &str| Pattern::parse(key).unwrap().of_domain().map(|one| one.text());
        assert_eq!(of_domain(r"/@far\.test$/").as_deref(), Some(r"/^far\.test$/"));
        assert_eq!(of_domain(r"/^.*@(.*\.)?far\.test$/i").as_deref(), Some(r"/^(.*\.)?far\.test$/i"));
        assert_eq!(of_domain("//").as_deref(), Some("/^/"));
        for other in [r"/^joe@far\.test$/", r"/@far\.test/", r"/@a\.test$|@b\.test$/"] {
            assert_eq!(of_domain(other), None, "{other}");
        }
        let of_addresses = |key: &str| Pattern::parse(key).unwrap().of_addresses().map(|one| one.text());
        assert_eq!(of_addresses(r"/^far\.test$/").as_deref(), Some(r"/@far\.test$/"));
        assert_eq!(of_addresses(r"!\.test$!").as_deref(), Some(r"!@.*\.test$!"));
        assert_eq!(of_addresses("/^a$|^b$/"), None);
        let of_key = |key: &str| Pattern::parse(key).unwrap().key();
        assert_eq!(of_key(r"/^joe\+x@far\.test$/").as_deref(), Some("joe+x@far.test"));
        assert_eq!(of_key(r"/@far\.test$/").as_deref(), Some("@far.test"));
        assert_eq!(of_key("/^.$/"), None);
    }
}
