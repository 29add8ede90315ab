//! The command of an alias, `|program arguments`: words without a shell.

/// Characters that a shell would act on, where they are not in quotes.
const OF_SHELLS: &[char] = &['|', '&', ';', '<', '>', '(', ')', '$', '`', '*', '?', '[', '#', '~'];

/// Splits a command into the program and its arguments. Blanks separate words; quotes and backslashes hold them together.
///
/// # Errors
/// There is no program, a quote has no end, or the command is meant for a shell, which is never used.
pub fn split_command(command: &str) -> Result<Vec<Box<str>>, &'static str> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => word.get_or_insert_default().push(chars.next().ok_or("a backslash at the end")?),
            (Some(_), '$' | '`') => {
                return Err("there is no shell: write the program and its arguments only");
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take().map(String::into_boxed_str)),
            (None, c) if OF_SHELLS.contains(&c) => {
                return Err("there is no shell: write the program and its arguments only");
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote without its end");
    }
    words.extend(word.map(String::into_boxed_str));
    match words.first() {
        Some(first) if first.starts_with('/') => Ok(words),
        Some(_) => Err("the program is not an absolute path"),
        None => Err("no program"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_blanks_and_quotes_hold_them_together() {
        for (command, words) in [
            ("/bin/vacation -a 'x, y' joe", &["/bin/vacation", "-a", "x, y", "joe"][..]),
            (" /bin/x  \"a \\\" b\" '' c\\ d", &["/bin/x", "a \" b", "", "c d"]),
            ("/bin/x '$HOME' a'b'\"c\"", &["/bin/x", "$HOME", "abc"]),
        ] {
            assert_eq!(
                split_command(command).unwrap(),
                words.iter().map(|w| Box::from(*w)).collect::<Vec<Box<str>>>()
            );
        }
    }

    #[test]
    fn what_a_shell_would_do_is_refused() {
        for command in [
            "",
            "vacation joe",
            "/bin/x >/dev/null",
            "/bin/x; rm x",
            "/bin/x $HOME",
            "/bin/x \"`id`\"",
            "/bin/x 'a",
            "/bin/x \\",
            "IFS=' ' && exec /bin/x",
        ] {
            assert!(split_command(command).is_err(), "{command}");
        }
    }
}
