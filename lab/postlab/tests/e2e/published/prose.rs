//! A page of Markdown, taken apart: paragraphs with the comments below them, the lines that hold data, and the
//! numbers and words of a text.

/// What a page says, and what it measured.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) paragraphs: Vec<Paragraph>,
    /// The lines of tables, of blocks of code and of the lists that `postlab relay --markdown` printed.
    pub(super) data: Vec<DataLine>,
}

/// A line in which measured figures stand.
#[derive(Debug)]
pub(super) struct DataLine {
    pub(super) text: String,
    /// The first row of its table, in cells; none in other lines.
    pub(super) titles: Vec<String>,
}

/// A paragraph or an item of a list.
#[derive(Debug, Default)]
pub(super) struct Paragraph {
    /// With their numbers in the file.
    lines: Vec<(usize, String)>,
    /// Each with its marks, in one line.
    pub(super) comments: Vec<String>,
}

/// Whether lines of a list are data.
#[derive(Debug, Default, PartialEq)]
enum Listing {
    #[default]
    No,
    /// Up to the next heading: what was found out about a server.
    Section,
    /// Up to the next empty line: the description of a machine.
    Machine,
}

#[derive(Debug, Default)]
struct Parser {
    page: Page,
    in_code: bool,
    in_table: bool,
    in_paragraph: bool,
    comment: Option<String>,
    listing: Listing,
    titles: Vec<String>,
}

impl Page {
    pub(super) fn parse(text: &str) -> Self {
        let mut parser = Parser::default();
        for (number, line) in (1..).zip(text.lines()) {
            parser.line(number, line);
        }
        parser.page
    }
}

impl Parser {
    fn line(&mut self, number: usize, line: &str) {
        let bare = line.trim();
        let (in_paragraph, in_table) =
            (std::mem::take(&mut self.in_paragraph), std::mem::take(&mut self.in_table));
        if self.comment.is_some() || (bare.starts_with("<!--") && !self.in_code) {
            self.comment(bare);
        } else if bare.starts_with("```") {
            self.in_code = !self.in_code;
        } else if self.in_code {
            self.data(line);
        } else if bare.starts_with('|') {
            if !in_table {
                self.titles = line.split('|').map(str::to_owned).collect();
            }
            self.in_table = true;
            self.page.data.push(DataLine { text: line.to_owned(), titles: self.titles.clone() });
        } else if bare.starts_with('#') {
            let is_server = is_server(bare.trim_start_matches('#').trim());
            self.listing = if is_server { Listing::Section } else { Listing::No };
        } else if bare.is_empty() {
            if self.listing == Listing::Machine {
                self.listing = Listing::No;
            }
        } else {
            if bare.starts_with("- Processor: ") {
                self.listing = Listing::Machine;
            }
            self.text(number, line, in_paragraph && !begins_item(bare));
        }
    }

    fn text(&mut self, number: usize, line: &str, continues: bool) {
        if self.listing != Listing::No {
            return self.data(line);
        }
        if !continues {
            self.page.paragraphs.push(Paragraph::default());
        }
        self.in_paragraph = true;
        if let Some(paragraph) = self.page.paragraphs.last_mut() {
            paragraph.lines.push((number, line.to_owned()));
        }
    }

    fn data(&mut self, line: &str) {
        self.page.data.push(DataLine { text: line.to_owned(), titles: Vec::new() });
    }

    fn comment(&mut self, bare: &str) {
        let mut text = self.comment.take().map(|begin| begin + " ").unwrap_or_default();
        text.push_str(bare);
        if !bare.ends_with("-->") {
            self.comment = Some(text);
        } else if let Some(paragraph) = self.page.paragraphs.last_mut() {
            paragraph.comments.push(text);
        }
    }
}

/// Postlab's headings of servers: `postfix:stock`, `ceiling`.
fn is_server(heading: &str) -> bool {
    !heading.is_empty() && heading.chars().all(|c| c.is_lowercase() || c == ':' || c == '-')
}

fn begins_item(bare: &str) -> bool {
    let after = bare.trim_start_matches(|c: char| c.is_ascii_digit());
    bare.starts_with("- ") || (after.len() < bare.len() && after.starts_with(". "))
}

impl Paragraph {
    /// The text without code, targets of links and addresses. Blanks are in their place, so that a place in it tells
    /// the line.
    pub(super) fn prose(&self) -> Vec<char> {
        let mut text: Vec<char> = self.text("\n").chars().collect();
        blank_code(&mut text);
        blank_targets(&mut text);
        blank_addresses(&mut text);
        text
    }

    /// The number of the line of a place in the prose.
    pub(super) fn line_at(&self, place: usize) -> usize {
        let before = self.text("\n").chars().take(place).filter(|c| *c == '\n').count();
        self.lines[before].0
    }

    pub(super) fn first_line(&self) -> usize {
        self.lines[0].0
    }

    pub(super) fn text(&self, between: &str) -> String {
        self.lines.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>().join(between)
    }
}

/// The files that a text links to.
pub(super) fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.split('#').next().unwrap_or_default())
}

fn find(text: &[char], what: &[char], from: usize) -> Option<usize> {
    let rest = text.get(from..)?;
    rest.windows(what.len()).position(|window| window == what).map(|place| from + place)
}

fn blank(text: &mut [char]) {
    for c in text.iter_mut().filter(|c| **c != '\n') {
        *c = ' ';
    }
}

/// Leaves one mark for each piece of code, so that no number has a neighbour that it does not have.
fn blank_code(text: &mut [char]) {
    let mut at = 0;
    while let Some(begin) = find(text, &['`'], at) {
        let marks = text[begin..].iter().take_while(|c| **c == '`').count();
        let Some(end) = find(text, &vec!['`'; marks], begin + marks) else { return };
        blank(&mut text[begin..end + marks]);
        text[begin] = '`';
        at = end + marks;
    }
}

fn blank_targets(text: &mut [char]) {
    while let Some(begin) = find(text, &[']', '('], 0) {
        let end = find(text, &[')'], begin).map_or(text.len(), |end| end + 1);
        blank(&mut text[begin + 1..end]);
    }
}

fn blank_addresses(text: &mut [char]) {
    while let Some(begin) = find(text, &['h', 't', 't', 'p'], 0) {
        let end = text[begin..].iter().position(|c| c.is_whitespace()).map_or(text.len(), |n| begin + n);
        blank(&mut text[begin..end]);
    }
}

/// A number, a word or a mark. Dates, hashes, versions of three parts and times of day are words.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) text: String,
    /// Set if it is a number.
    pub(super) value: Option<f64>,
    pub(super) decimals: usize,
    pub(super) begin: usize,
    pub(super) end: usize,
}

impl Token {
    fn new(text: &[char], begin: usize, end: usize) -> Self {
        Self { text: text[begin..end].iter().collect(), value: None, decimals: 0, begin, end }
    }

    pub(super) fn is_word(&self) -> bool {
        self.value.is_none() && self.text.starts_with(is_part)
    }
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

pub(super) fn tokens(text: &[char]) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < text.len() {
        if text[at].is_whitespace() {
            at += 1;
            continue;
        }
        let token = match text[at] {
            c if c.is_ascii_digit() => number(text, at),
            c if is_part(c) => word(text, at, at, &['-', '\'', '’', '.', ':']),
            _ => Token::new(text, at, at + 1),
        };
        at = token.end;
        tokens.push(token);
    }
    tokens
}

fn number(text: &[char], begin: usize) -> Token {
    let is_digit = |place: usize| text.get(place).is_some_and(char::is_ascii_digit);
    let is_at = |place: usize, c: char| text.get(place) == Some(&c);
    let skip = |mut place: usize| {
        while is_digit(place) {
            place += 1;
        }
        place
    };
    let mut end = skip(begin);
    let digits = end - begin;
    while digits <= 3 && is_at(end, ',') && (1..=3).all(|n| is_digit(end + n)) && !is_digit(end + 4) {
        end += 4;
    }
    let (mut dots, mut decimals) = (0, 0);
    while is_at(end, '.') && is_digit(end + 1) {
        let last = skip(end + 1);
        (dots, decimals, end) = (dots + 1, last - end - 1, last);
    }
    let is_time = is_at(end, ':') && is_digit(end + 1);
    let is_date = digits == 4 && is_at(end, '-') && is_digit(end + 1);
    let is_name = text.get(end).is_some_and(|c| is_part(*c) && *c != 'µ');
    if dots > 1 || is_time || is_date || is_name {
        return word(text, begin, end, &['-', ':', '.']);
    }
    let mut token = Token::new(text, begin, end);
    token.value = token.text.replace(',', "").parse().ok();
    token.decimals = decimals;
    token
}

/// A word, with the marks that may stand within it.
fn word(text: &[char], begin: usize, from: usize, within: &[char]) -> Token {
    let part_at = |place: usize| text.get(place).is_some_and(|c| is_part(*c));
    let mut end = from;
    while part_at(end) || (text.get(end).is_some_and(|c| within.contains(c)) && part_at(end + 1)) {
        end += 1;
    }
    Token::new(text, begin, end)
}
