//! Spool files of Exim: `ID-H` has envelope and header, `ID-D` the body, `ID-J` what was delivered since.

use crate::{
    queued::{Damage, QueuedMessage, QueuedRecipient},
    wire,
};
use mail::{BodyType, Notify, Ret};

/// Recipients and other counts of a file are at most this: a damaged number must not cost memory.
const COUNT_MAX: usize = 1_000_000;

/// What Exim's spool has of one message.
#[derive(Debug, Clone, Copy)]
pub struct SpoolFiles<'a> {
    /// The file `ID-H`: envelope and header.
    pub header: &'a [u8],
    /// The file `ID-D`: the body.
    pub data: &'a [u8],
    /// `ID-J`, if there is one.
    pub journal: Option<&'a [u8]>,
}

/// Lines of a file, with the rest of its bytes.
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Lines<'a> {
    fn next(&mut self, what: &str) -> Result<&'a [u8], Damage> {
        let Some(end) = memchr::memchr(b'\n', self.rest) else {
            return Err(Damage::new(format!("the -H file ends before {what}")));
        };
        let line = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(line)
    }

    fn next_text(&mut self, what: &str) -> Result<String, Damage> {
        self.next(what).map(|line| String::from_utf8_lossy(line).into_owned())
    }
}

/// Reads the files of a message. `domain` is added to addresses without one: `qualify_domain`.
///
/// # Errors
/// The files are not a whole message, or have an address that no server can send mail to.
pub fn read(files: SpoolFiles<'_>, id: &str, domain: &str) -> Result<QueuedMessage, Damage> {
    let mut message = QueuedMessage::new(id);
    let mut lines = Lines { rest: files.header };
    let name = lines.next_text("its name")?;
    if name != format!("{id}-H") {
        return Err(Damage::new(format!("the -H file is of another message: {}", wire::printable(&name))));
    }
    lines.next("the user")?;
    let sender = lines.next_text("the sender")?;
    let sender = sender.strip_prefix('<').and_then(|sender| sender.strip_suffix('>'));
    let sender = sender.ok_or_else(|| Damage::new("the sender is not in angle brackets"))?;
    message.reverse_path = wire::reverse_path(sender, domain)?;
    let times = lines.next_text("the time")?;
    let seconds = times.split(' ').next().and_then(|seconds| seconds.parse::<u64>().ok());
    let seconds = seconds.ok_or_else(|| Damage::new("the time of arrival is not a number"))?;
    message.arrived_us = seconds.saturating_mul(1_000_000);
    let form = options(&mut lines, &mut message)?;
    recipients(&mut lines, &mut message, domain)?;
    header(&mut lines, &mut message)?;
    body(files.data, id, &form, &mut message)?;
    let journal = String::from_utf8_lossy(files.journal.unwrap_or_default()).into_owned();
    message.finished.extend(journal.lines().filter(|line| !line.is_empty()).map(str::to_owned));
    let finished: Vec<String> = message.finished.iter().map(|address| address_key(address)).collect();
    message.recipients.retain(|one| !finished.contains(&one.recipient.path.key()));
    Ok(message)
}

/// Returns the form in which two addresses of Exim are compared. Exim writes a delivered address that an alias led to
/// twice with `\N\` in front.
pub fn address_key(address: &str) -> String {
    let address = match address.strip_prefix('\\').and_then(|rest| rest.split_once('\\')) {
        Some((_, address)) => address,
        None => address,
    };
    address.to_lowercase()
}

/// The form of the body, as the -H file has it.
#[derive(Default)]
struct Body {
    is_wire_form: bool,
    line_count: usize,
}

/// Reads the lines that begin with `-`, and the tree of finished addresses.
fn options(lines: &mut Lines<'_>, message: &mut QueuedMessage) -> Result<Body, Damage> {
    let mut body = Body::default();
    loop {
        let line = lines.next_text("the recipients")?;
        let Some(option) = line.strip_prefix('-') else {
            tree(&line, lines, message)?;
            return Ok(body);
        };
        // Since 4.93 a second dash marks what a client has given.
        let option = option.strip_prefix('-').unwrap_or(option);
        // A value may have a form of quoting in braces: `-{sql}name value`.
        let option =
            option.split_once('}').filter(|_| option.starts_with('{')).map_or(option, |(_, rest)| rest);
        let (name, value) = option.split_once(' ').unwrap_or((option, ""));
        match name {
            "frozen" => message.held = true,
            "received_time_usec" => {
                let micros = value.trim_start_matches('.').parse::<u64>().unwrap_or(0);
                message.arrived_us += micros.min(999_999);
            }
            "spool_file_wireformat" => body.is_wire_form = true,
            "body_linecount" => body.line_count = value.trim().parse().unwrap_or(0),
            "body_8bit" => message.body = BodyType::EightBit,
            "smtputf8" | "utf8_downcvt" => message.smtputf8 = true,
            "auth_id" if !value.is_empty() && !value.chars().any(char::is_control) => {
                message.options.login = Some(value.into());
            }
            "dsn_ret" => {
                message.ret = match value {
                    "1" => Some(Ret::Full),
                    "2" => Some(Ret::Headers),
                    _ => None,
                };
            }
            "dsn_envid" => message.envid = wire::parameter(value),
            "N" => message.notes.push("Exim was told by -N not to deliver it".to_owned()),
            // A value of an ACL, with its text on the next lines: `-aclm 0 5`.
            "acl" | "aclc" | "aclm" => {
                let length = value.rsplit(' ').next().and_then(|length| length.parse::<usize>().ok());
                let length = length.filter(|length| *length < lines.rest.len());
                let length = length.ok_or_else(|| Damage::new("a variable of an ACL has a wrong length"))?;
                lines.rest = &lines.rest[length + 1..];
            }
            _ => {}
        }
    }
}

/// Reads the tree of finished addresses: each line says whether there is a left and a right branch.
fn tree(first: &str, lines: &mut Lines<'_>, message: &mut QueuedMessage) -> Result<(), Damage> {
    if first == "XX" {
        return Ok(());
    }
    let (mut open, mut line) = (1usize, first.to_owned());
    loop {
        let branches = match line.as_bytes() {
            [left @ (b'Y' | b'N'), right @ (b'Y' | b'N'), b' ', ..] => {
                usize::from(*left == b'Y') + usize::from(*right == b'Y')
            }
            _ => return Err(Damage::new("the list of finished addresses is damaged")),
        };
        message.finished.push(line[3..].to_owned());
        open = open - 1 + branches;
        if open == 0 {
            return Ok(());
        }
        line = lines.next_text("the end of the finished addresses")?;
    }
}

fn recipients(lines: &mut Lines<'_>, message: &mut QueuedMessage, domain: &str) -> Result<(), Damage> {
    let count = lines.next_text("the number of recipients")?;
    let count = count.trim().parse::<usize>().ok().filter(|count| *count <= COUNT_MAX);
    let count = count.ok_or_else(|| Damage::new("the number of recipients is not a number"))?;
    for _ in 0..count {
        let line = lines.next_text("the last recipient")?;
        message.recipients.push(recipient(&line, domain)?);
    }
    let blank = lines.next("the header")?;
    if blank.is_empty() { Ok(()) } else { Err(Damage::new("no empty line stands before the header")) }
}

/// Reads `address`, or `address ORCPT length,flags errors-to length,parent#bits`. The lengths are those of the words.
fn recipient(line: &str, domain: &str) -> Result<QueuedRecipient, Damage> {
    let plain = |address: &str| {
        Ok(QueuedRecipient::new(wire::forward_path(address, domain)?, Notify::default(), None))
    };
    let Some((rest, bits)) = line.rsplit_once('#') else { return plain(line) };
    let Ok(bits) = bits.parse::<u32>() else { return plain(line) };
    let bad = || Damage::new(format!("a recipient with damaged options: {}", wire::printable(line)));
    // Options that stand last are read first.
    let (mut rest, mut orcpt, mut notify) = (rest, None, Notify::default());
    if bits & 1 != 0 {
        let (before, _, _) = counted(rest).ok_or_else(bad)?;
        rest = before;
    }
    if bits & 2 != 0 {
        let (before, word, flags) = counted(rest).ok_or_else(bad)?;
        rest = before;
        orcpt = wire::parameter(word);
        notify = notify_of(flags);
    }
    let path = wire::forward_path(rest, domain)?;
    Ok(QueuedRecipient::new(path, notify, orcpt))
}

/// Cuts `… word length,number` into what stands before, the word, and the number.
fn counted(text: &str) -> Option<(&str, &str, i64)> {
    let (rest, numbers) = text.rsplit_once(' ')?;
    let (length, number) = numbers.split_once(',')?;
    let (length, number) = (length.parse::<usize>().ok()?, number.parse().ok()?);
    let at = rest.len().checked_sub(length)?;
    let (before, word) = (rest.get(..at)?, rest.get(at..)?);
    Some((before.strip_suffix(' ')?, word, number))
}

/// `rf_notify_*` of Exim.
fn notify_of(flags: i64) -> Notify {
    if flags & 0x1e == 0 {
        return Notify::default();
    }
    Notify { success: flags & 4 != 0, failure: flags & 8 != 0, delay: flags & 16 != 0, explicit: true }
}

/// Reads header fields: `nnnT text`, where `T` is a letter, a space, or `*` for a field that was removed.
fn header(lines: &mut Lines<'_>, message: &mut QueuedMessage) -> Result<(), Damage> {
    let mut rest = lines.rest;
    while !rest.is_empty() {
        let bad = || Damage::new("a header field has a wrong length");
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let length =
            std::str::from_utf8(&rest[..digits]).ok().and_then(|digits| digits.parse::<usize>().ok());
        let length = length.ok_or_else(bad)?;
        let [kind, b' ', behind @ ..] = &rest[digits..] else { return Err(bad()) };
        let text = behind.get(..length).ok_or_else(bad)?;
        if *kind != b'*' {
            wire::append_lines(&mut message.content, text);
        }
        rest = &behind[length..];
    }
    Ok(())
}

fn body(data: &[u8], id: &str, form: &Body, message: &mut QueuedMessage) -> Result<(), Damage> {
    let name = format!("{id}-D\n");
    let Some(text) = data.strip_prefix(name.as_bytes()) else {
        return Err(Damage::new("the -D file does not begin with its name"));
    };
    let found = memchr::memchr_iter(b'\n', text).count();
    if found < form.line_count {
        return Err(Damage::new(format!("the -D file has {found} of {} lines of the body", form.line_count)));
    }
    message.content.extend_from_slice(b"\r\n");
    if form.is_wire_form {
        message.content.extend_from_slice(text);
    } else {
        wire::append_lines(&mut message.content, text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "1abcde-000001-AB-H\nDebian-exim 101 104\n<a@src.test>\n1700000000 0\n\
        -received_time_usec .123456\n--helo_name client.test\n-host_address 127.0.0.1.1234\n-frozen 1700000001\n\
        -aclm 0 3\nabc\n-dsn_envid x+2By\n-dsn_ret 2\n-body_8bit\n-body_linecount 3\n\
        YN done@dst.test\nNN also@dst.test\n4\nb@dst.test\n\
        c@dst.test rfc822;list@dst.test 20,12  0,-1#3\nDONE@dst.test\njournal@dst.test\n\n\
        028P Received: x\n\tby y; a date\n011* Removed: 1\n011  Subject: x\n";

    fn fixed() -> String {
        // The numbers are the lengths of the fields.
        HEADER.replace("028P", "026P")
    }

    #[test]
    fn the_files_are_a_message_with_the_recipients_that_are_left() {
        let (header, data) = (fixed(), b"1abcde-000001-AB-D\n.dot\n\nend\n");
        let files = SpoolFiles { header: header.as_bytes(), data, journal: Some(b"journal@dst.test\n") };
        let message = read(files, "1abcde-000001-AB", "mx.test").unwrap();
        assert!(message.held && message.body == BodyType::EightBit);
        assert_eq!(message.arrived_us, 1_700_000_000_123_456);
        assert_eq!((message.ret, message.envid.as_deref()), (Some(Ret::Headers), Some("x+y")));
        let left: Vec<&str> = message.recipients.iter().map(|one| one.recipient.path.as_str()).collect();
        assert_eq!(left, ["b@dst.test", "c@dst.test"]);
        let of_c = &message.recipients[1].recipient;
        assert_eq!(of_c.orcpt.as_deref(), Some("rfc822;list@dst.test"));
        assert!(of_c.notify.success && of_c.notify.failure && !of_c.notify.delay);
        let expected = "Received: x\r\n\tby y; a date\r\nSubject: x\r\n\r\n.dot\r\n\r\nend\r\n";
        assert_eq!(String::from_utf8(message.content).unwrap(), expected);
    }

    #[test]
    fn each_shorter_header_file_is_damaged() {
        let header = fixed();
        let data = b"1abcde-000001-AB-D\n1\n2\n3\n";
        let whole = header.len();
        let fields = header.find("026P").unwrap();
        for length in (0..whole).filter(|length| *length < fields || !header[..*length].ends_with('\n')) {
            let files = SpoolFiles { header: &header.as_bytes()[..length], data, journal: None };
            assert!(read(files, "1abcde-000001-AB", "").is_err(), "{length}");
        }
        let files = SpoolFiles { header: header.as_bytes(), data: b"other-D\n", journal: None };
        assert_eq!(
            read(files, "1abcde-000001-AB", "").unwrap_err().0,
            "the -D file does not begin with its name"
        );
        let files = SpoolFiles { header: header.as_bytes(), data: &data[..data.len() - 1], journal: None };
        let cut = read(files, "1abcde-000001-AB", "").unwrap_err().0;
        assert_eq!(cut, "the -D file has 2 of 3 lines of the body");
    }

    #[test]
    fn content_in_wire_form_stays_as_it_is() {
        let header =
            fixed().replace("-body_8bit", "-spool_file_wireformat").replace("linecount 3", "linecount 2");
        let files =
            SpoolFiles { header: header.as_bytes(), data: b"1abcde-000001-AB-D\n.a\r\nb\r\n", journal: None };
        let message = read(files, "1abcde-000001-AB", "").unwrap();
        assert!(message.content.ends_with(b"x\r\n\r\n.a\r\nb\r\n"));
    }
}
