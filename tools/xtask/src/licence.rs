//! Licence expressions (SPDX 2.3 annex D): may we ship what is under this one?

/// Licences we may ship under Apache-2.0 or MIT: all of them permissive, none asks for our source.
const ALLOWED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0", // Boost's, not the Business Source License (BUSL-1.1)
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// Is there a choice that only needs licences of the list? An error says what is no expression.
pub(crate) fn is_allowed(expression: &str) -> Result<bool, String> {
    let words = words(expression);
    let mut reader = Reader { rest: &words };
    let allowed = reader.any()?;
    match reader.rest {
        [] => Ok(allowed),
        [word, ..] => Err(format!("`{word}` is out of place")),
    }
}

/// Parentheses are words of their own. The slash, which crates.io took for OR once, becomes one.
fn words(expression: &str) -> Vec<String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

struct Reader<'w> {
    rest: &'w [String],
}

impl Reader<'_> {
    /// `a OR b`: one that is allowed is enough.
    fn any(&mut self) -> Result<bool, String> {
        let mut allowed = self.all()?;
        while self.take("OR") {
            // Read on in any case: what follows must be an expression too.
            allowed |= self.all()?;
        }
        Ok(allowed)
    }

    /// `a AND b`: binds tighter than OR, and each must be allowed.
    fn all(&mut self) -> Result<bool, String> {
        let mut allowed = self.one()?;
        while self.take("AND") {
            allowed &= self.one()?;
        }
        Ok(allowed)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let allowed = self.any()?;
            return if self.take(")") { Ok(allowed) } else { Err("`)` is missing".to_owned()) };
        }
        let mut name = self.name()?;
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.name()?);
        }
        Ok(ALLOWED.contains(&name.as_str()))
    }

    fn name(&mut self) -> Result<String, String> {
        match self.rest {
            [word, rest @ ..] if !["(", ")", "AND", "OR", "WITH"].contains(&word.as_str()) => {
                self.rest = rest;
                Ok(word.clone())
            }
            [word, ..] => Err(format!("`{word}` stands where a licence should")),
            [] => Err("a licence is missing at the end".to_owned()),
        }
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.rest.first().is_some_and(|first| first == word);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expression: &str, allowed: bool) {
        assert_eq!(is_allowed(expression), Ok(allowed), "{expression}");
    }

    #[test]
    fn a_licence_is_on_the_list_or_not() {
        check("MIT", true);
        check("GPL-3.0-only", false);
        check("BSL-1.0", true);
        check("BUSL-1.1", false);
        check("mit", false); // SPDX spells them one way; cargo warns of others
    }

    #[test]
    fn or_is_our_choice() {
        check("MIT OR GPL-2.0-only", true);
        check("LGPL-2.1-or-later OR AGPL-3.0-only", false);
        check("MIT OR Apache-2.0 OR LGPL-2.1-or-later", true);
        check("Unlicense/MIT", true);
        check("MIT / Apache-2.0", true);
    }

    #[test]
    fn and_needs_each() {
        check("MIT AND ISC", true);
        check("MIT AND GPL-2.0-only", false);
        check("(MIT OR Apache-2.0) AND Unicode-3.0", true);
        check("(MIT OR Apache-2.0) AND MPL-2.0", false);
    }

    #[test]
    fn and_binds_tighter_than_or() {
        check("GPL-2.0-only AND MIT OR ISC", true);
        check("ISC OR GPL-2.0-only AND MIT", true);
        check("(ISC OR GPL-2.0-only) AND MPL-2.0", false);
        check("GPL-2.0-only AND (MIT OR ISC)", false);
    }

    #[test]
    fn an_exception_belongs_to_its_licence() {
        check("Apache-2.0 WITH LLVM-exception", true);
        check("GPL-2.0-only WITH Classpath-exception-2.0", false);
        check("MIT WITH LLVM-exception", false);
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        for bad in ["", "MIT OR", "AND MIT", "(MIT", "MIT)", "MIT ISC", "MIT WITH", "()", "WITH MIT"] {
            assert!(is_allowed(bad).is_err(), "{bad}");
        }
    }
}
