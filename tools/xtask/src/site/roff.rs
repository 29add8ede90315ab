//! Man pages as Markdown: the few requests of roff that clap_mangen and our generators write.

/// Returns the page of a file as Markdown. `.so` names the page that has the text.
pub(super) fn markdown(file: &str, roff: &str) -> String {
    let mut page = Page { file: file.to_owned(), ..Page::default() };
    for line in roff.lines() {
        page.line(line);
    }
    page.out
}

#[derive(Default)]
struct Page {
    file: String,
    out: String,
    /// The next line is the term of a list.
    is_term: bool,
    is_code: bool,
    /// Text follows the term of a list, and is indented.
    is_item: bool,
}

impl Page {
    fn line(&mut self, line: &str) {
        if let Some(request) = line.strip_prefix('.') {
            let (name, rest) = request.split_once(' ').unwrap_or((request, ""));
            return self.request(name, rest.trim());
        }
        if line.starts_with("'\\\"") {
            return;
        }
        if self.is_code {
            self.out += &plain(line);
            self.out.push('\n');
        } else if std::mem::take(&mut self.is_term) {
            self.out += &format!("\n- {}", inline(line));
            self.out += "\\\n";
            self.is_item = true;
        } else {
            self.indent();
            self.out += &inline(line);
            self.out.push('\n');
        }
    }

    fn request(&mut self, name: &str, rest: &str) {
        match name {
            "TH" => {
                let mut words = rest.split_whitespace();
                let (title, section) = (words.next().unwrap_or(""), words.next().unwrap_or("1"));
                self.out = format!("# {}({section})\n", plain(title));
            }
            "SH" => {
                self.is_item = false;
                self.out += &format!("\n## {}\n\n", capitalised(&plain(rest.trim_matches('"'))));
            }
            "TP" => self.is_term = true,
            "IP" => {
                // `.IP \(bu 2`: a bullet of a list below a term.
                self.out += "\n  - ";
                self.is_item = false;
            }
            "PP" => {
                self.is_item = false;
                self.out.push('\n');
            }
            "RE" | "br" => self.out.push('\n'),
            "I" => self.marked('*', rest),
            // `.BR postrider (1),`
            "BR" => {
                let (bold, roman) = rest.split_once(' ').unwrap_or((rest, ""));
                self.indent();
                self.out += &format!("**{}**{}\n", escaped(&plain(bold)), escaped(&plain(roman)));
            }
            "nf" => {
                self.out += "\n```text\n";
                self.is_code = true;
            }
            "fi" => {
                self.out += "```\n";
                self.is_code = false;
            }
            "so" => {
                let name = rest.rsplit('/').next().unwrap_or(rest);
                self.out += &format!("# {}\n\nSee [{name}]({name}.md).\n", self.file);
            }
            _ => {}
        }
    }

    fn indent(&mut self) {
        if self.is_item && self.out.ends_with('\n') {
            self.out += "  ";
        }
    }

    fn marked(&mut self, mark: char, text: &str) {
        self.indent();
        self.out += &format!("{mark}{}{mark}\n", escaped(&plain(text)));
    }
}

/// `EXIT STATUS` is shouted in a man page only.
fn capitalised(title: &str) -> String {
    let mut letters = title.chars();
    let first: String = letters.next().into_iter().collect();
    first + &letters.as_str().to_lowercase()
}

/// Returns text with fonts as Markdown.
fn inline(text: &str) -> String {
    let mut out = String::new();
    let mut open = "";
    for (i, part) in text.split("\\f").enumerate() {
        if i == 0 {
            out += &escaped(&plain(part));
            continue;
        }
        out += open;
        let (font, rest) = part.split_at(part.len().min(1));
        open = match font {
            "B" => "**",
            "I" => "*",
            _ => "",
        };
        // An empty pair of marks would be shown.
        if rest.is_empty() {
            open = "";
        }
        out += open;
        out += &escaped(&plain(rest));
    }
    out + open
}

/// Returns text without the escapes of roff.
fn plain(text: &str) -> String {
    let text = text.replace("\\-", "-").replace("\\(bu", "•").replace("\\(aq", "'").replace("\\*(Aq", "'");
    text.replace("\\&", "").replace("\\e", "\\").replace("\\\\", "\\")
}

/// Returns text whose characters mean nothing to Markdown.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '*' | '_' | '`' | '[' | ']' | '\\' | '#' | '|' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_fonts_and_references_become_markdown() {
        let roff = ".TH queue\\-list 1  \"list \"\n.SH NAME\nqueue\\-list \\- List <all>\n.SH OPTIONS\n.TP\n\\fB\\-\\-older\\fR \\fI<AGE>\\fR\nOnly those\nof this age.\n.SH SEE ALSO\n.BR postrider (1),\n";
        assert_eq!(
            markdown("queue-list.1", roff),
            "# queue-list(1)\n\n## Name\n\nqueue-list - List &lt;all&gt;\n\n## Options\n\n\n- **--older** *&lt;AGE&gt;*\\\n  Only those\n  of this age.\n\n## See also\n\n**postrider**(1),\n"
        );
    }

    #[test]
    fn another_name_of_a_page_is_a_link() {
        assert_eq!(
            markdown("mailq.1", ".so man1/sendmail.1\n"),
            "# mailq.1\n\nSee [sendmail.1](sendmail.1.md).\n"
        );
    }
}
