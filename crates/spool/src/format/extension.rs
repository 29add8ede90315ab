//! The extension section of a message record: what few messages have. Each extension is a tag, a length and bytes, so
//! that a reader can skip an extension that a later version wrote. A tag of [`MUST_KNOW`] or above changes how
//! the message must be treated, and a reader that does not know such a tag refuses the record.

use super::wire::{Malformed, Reader, put_text, put_u32, put_u64};
use mail::{
    AliasTarget, DeliverBy, DeliverByMode, DeliveryOptions, Envelope, Expansion, Mailbox, Priority,
    Recipient, ReturnPath, ReversePath, UnixMillis,
};

const LOGIN: u8 = 1;
const AUTH: u8 = 2;
const PRIORITY: u8 = 3;
const EXPANSION: u8 = 4;
const RETURN_PATH: u8 = 5;
/// A recipient of which the sender does not know.
const COPY: u8 = 6;
/// Why a message is held.
const HOLD_REASON: u8 = 7;
/// Tags from here on must not be skipped.
const MUST_KNOW: u8 = 128;
const REQUIRETLS: u8 = 128;
const DELIVER_BY: u8 = 129;
const RELEASE: u8 = 130;
/// A recipient that is a program, a file or a route, and not where its address leads.
const TARGET: u8 = 160;

/// Tag and length.
const HEAD_BYTES: usize = 1 + 4;

/// Kinds of targets.
const PROGRAM: u8 = 1;
const FILE: u8 = 2;
const ROUTE: u8 = 3;
const LATER: u8 = 4;

/// Flags of a deadline.
const MODE_RETURN: u8 = 1;
const TRACE: u8 = 2;
/// Flag of a return path.
const OF_LIST: u8 = 1;

/// Does a message with this envelope need the section?
pub(super) fn is_needed(envelope: &Envelope) -> bool {
    let is_extended = |r: &Recipient| r.options.is_some();
    envelope.options.is_some() || envelope.recipients.iter().any(is_extended)
}

/// Returns a length that the section does not exceed, in bytes.
pub(crate) fn bytes_max(envelope: &Envelope) -> usize {
    if is_needed(envelope) { needed_bytes_max(envelope) } else { 0 }
}

#[cold]
fn needed_bytes_max(envelope: &Envelope) -> usize {
    let options = envelope.options.as_ref().map_or(0, |options| {
        let auth = options.auth.as_ref().map_or(0, |auth| auth.as_str().len());
        128 + options.login.as_ref().map_or(0, |login| login.len()) + auth
    });
    let through = |e: &Expansion| e.through.iter().map(|mailbox| 2 + mailbox.as_str().len()).sum::<usize>();
    let expansion =
        |r: &Recipient| r.expansion().map_or(0, |e| HEAD_BYTES + 6 + e.original.as_str().len() + through(e));
    let return_path =
        |r: &Recipient| r.return_path().map_or(0, |own| HEAD_BYTES + 4 + 1 + own.path.as_str().len());
    let target = |r: &Recipient| {
        r.target().map_or(0, |target| match target {
            AliasTarget::Program(text) | AliasTarget::File(text) | AliasTarget::Route(text) => {
                HEAD_BYTES + 5 + text.len()
            }
            AliasTarget::Later => HEAD_BYTES + 5,
        })
    };
    let copy = |r: &Recipient| if is_copy(r) { HEAD_BYTES + 4 } else { 0 };
    let all = |r: &Recipient| expansion(r) + return_path(r) + copy(r) + target(r);
    options + envelope.recipients.iter().map(all).sum::<usize>()
}

/// What a section says that is no part of the envelope.
#[derive(Debug, Default)]
pub(super) struct Extra {
    /// Why the message is held.
    pub(super) hold_reason: Box<str>,
    /// Extensions that were skipped.
    pub(super) unknown: Box<[u8]>,
}

/// Writes the section. `unknown` are the extensions of a record that is written again, as [`read`] returned them.
#[cold]
pub(super) fn write(out: &mut Vec<u8>, envelope: &Envelope, hold_reason: &str, unknown: &[u8]) {
    let start = out.len();
    put_u32(out, 0);
    if let Some(options) = &envelope.options {
        write_options(out, options);
    }
    for (index, recipient) in (0..).zip(&envelope.recipients) {
        if let Some(expansion) = recipient.expansion() {
            put(out, EXPANSION, |out| {
                put_u32(out, index);
                put_text(out, expansion.original.as_str());
                expansion.through.iter().for_each(|mailbox| put_text(out, mailbox.as_str()));
            });
        }
        if let Some(own) = recipient.return_path() {
            put(out, RETURN_PATH, |out| {
                put_u32(out, index);
                out.push(if own.is_list { OF_LIST } else { 0 });
                out.extend_from_slice(own.path.as_str().as_bytes());
            });
        }
        if is_copy(recipient) {
            put(out, COPY, |out| put_u32(out, index));
        }
    }
    for (index, recipient) in (0..).zip(&envelope.recipients) {
        if let Some(target) = recipient.target() {
            put(out, TARGET, |out| {
                let (kind, text) = match target {
                    AliasTarget::Program(command) => (PROGRAM, &**command),
                    AliasTarget::File(path) => (FILE, &**path),
                    AliasTarget::Route(name) => (ROUTE, &**name),
                    AliasTarget::Later => (LATER, ""),
                };
                put_u32(out, index);
                out.push(kind);
                out.extend_from_slice(text.as_bytes());
            });
        }
    }
    if !hold_reason.is_empty() {
        put(out, HOLD_REASON, |out| out.extend_from_slice(hold_reason.as_bytes()));
    }
    out.extend_from_slice(unknown);
    set_length(out, start);
}

fn is_copy(recipient: &Recipient) -> bool {
    recipient.options.as_ref().is_some_and(|options| options.is_copy)
}

fn write_options(out: &mut Vec<u8>, options: &DeliveryOptions) {
    if let Some(login) = &options.login {
        put(out, LOGIN, |out| out.extend_from_slice(login.as_bytes()));
    }
    if let Some(auth) = &options.auth {
        put(out, AUTH, |out| out.extend_from_slice(auth.as_str().as_bytes()));
    }
    if let Some(priority) = options.priority {
        put(out, PRIORITY, |out| out.push(priority.value().cast_unsigned()));
    }
    if options.requiretls {
        put(out, REQUIRETLS, |_| {});
    }
    if let Some(by) = options.deliver_by {
        put(out, DELIVER_BY, |out| {
            put_u64(out, by.deadline.0);
            let mode = if by.mode == DeliverByMode::Return { MODE_RETURN } else { 0 };
            out.push(mode | if by.trace { TRACE } else { 0 });
        });
    }
    if let Some(release) = options.release {
        put(out, RELEASE, |out| put_u64(out, release.0));
    }
}

fn put(out: &mut Vec<u8>, tag: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let start = out.len();
    put_u32(out, 0);
    write(out);
    set_length(out, start);
}

/// Sets the length at `start` to the number of bytes behind it.
fn set_length(out: &mut [u8], start: usize) {
    let length = u32::try_from(out.len() - start - 4).expect("a record is far below 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Takes the section in front, without its length.
pub(super) fn section<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let length = r.u32()? as usize;
    r.bytes(length)
}

/// Reads a section into an envelope whose recipients are complete.
#[cold]
pub(super) fn read(section: &[u8], envelope: &mut Envelope) -> Result<Extra, Malformed> {
    let (mut r, mut options, mut unknown) = (Reader(section), DeliveryOptions::default(), Vec::new());
    let mut hold_reason = "".into();
    while !r.0.is_empty() {
        let from = r.0;
        let tag = r.u8()?;
        let mut body = Reader(self::section(&mut r)?);
        match tag {
            EXPANSION => read_expansion(&mut body, envelope)?,
            RETURN_PATH => read_return_path(&mut body, envelope)?,
            COPY => read_copy(&mut body, envelope)?,
            TARGET => read_target(&mut body, envelope)?,
            HOLD_REASON => hold_reason = rest(&mut body)?.into(),
            LOGIN | AUTH | PRIORITY | REQUIRETLS | DELIVER_BY | RELEASE => {
                read_option(tag, &mut body, &mut options)?;
            }
            MUST_KNOW.. => return Err(Malformed("an extension of a later version")),
            _ => {
                unknown.extend_from_slice(&from[..from.len() - r.0.len()]);
                continue;
            }
        }
        if !body.0.is_empty() {
            return Err(Malformed("extension length"));
        }
    }
    envelope.options = options.boxed();
    Ok(Extra { hold_reason, unknown: unknown.into() })
}

fn read_option(tag: u8, body: &mut Reader<'_>, options: &mut DeliveryOptions) -> Result<(), Malformed> {
    match tag {
        LOGIN => options.login = Some(rest(body)?.into()),
        AUTH => {
            let auth = ReversePath::parse(rest(body)?, true).map_err(|_| Malformed("AUTH"))?;
            options.auth = Some(auth);
        }
        PRIORITY => {
            let priority = Priority::new(body.u8()?.cast_signed()).ok_or(Malformed("priority"))?;
            options.priority = Some(priority);
        }
        REQUIRETLS => options.requiretls = true,
        DELIVER_BY => {
            let (deadline, bits) = (UnixMillis(body.u64()?), body.u8()?);
            if bits & !(MODE_RETURN | TRACE) != 0 {
                return Err(Malformed("deadline"));
            }
            let mode = if bits & MODE_RETURN == 0 { DeliverByMode::Notify } else { DeliverByMode::Return };
            options.deliver_by = Some(DeliverBy { deadline, mode, trace: bits & TRACE != 0 });
        }
        _ => options.release = Some(UnixMillis(body.u64()?)),
    }
    Ok(())
}

fn read_expansion(body: &mut Reader<'_>, envelope: &mut Envelope) -> Result<(), Malformed> {
    let index = body.u32()? as usize;
    let original = mailbox(body.text()?)?;
    let mut through = Vec::new();
    while !body.0.is_empty() {
        through.push(mailbox(body.text()?)?);
    }
    let recipient = envelope.recipients.get_mut(index).ok_or(Malformed("expansion of no recipient"))?;
    recipient.options.get_or_insert_default().expansion = Some(Expansion { original, through });
    Ok(())
}

fn read_return_path(body: &mut Reader<'_>, envelope: &mut Envelope) -> Result<(), Malformed> {
    let (index, flags) = (body.u32()? as usize, body.u8()?);
    if flags & !OF_LIST != 0 {
        return Err(Malformed("return path"));
    }
    let path = ReversePath::parse(rest(body)?, true).map_err(|_| Malformed("return path"))?;
    let recipient = envelope.recipients.get_mut(index).ok_or(Malformed("return path of no recipient"))?;
    recipient.set_return_path(ReturnPath { path, is_list: flags & OF_LIST != 0 });
    Ok(())
}

fn read_copy(body: &mut Reader<'_>, envelope: &mut Envelope) -> Result<(), Malformed> {
    let index = body.u32()? as usize;
    let recipient = envelope.recipients.get_mut(index).ok_or(Malformed("copy of no recipient"))?;
    recipient.options.get_or_insert_default().is_copy = true;
    Ok(())
}

fn read_target(body: &mut Reader<'_>, envelope: &mut Envelope) -> Result<(), Malformed> {
    let index = body.u32()? as usize;
    let kind = match body.u8()? {
        PROGRAM => AliasTarget::Program,
        FILE => AliasTarget::File,
        ROUTE => AliasTarget::Route,
        LATER => |_| AliasTarget::Later,
        _ => return Err(Malformed("a target of a later version")),
    };
    let target = kind(rest(body)?.into());
    let recipient = envelope.recipients.get_mut(index).ok_or(Malformed("target of no recipient"))?;
    recipient.options.get_or_insert_default().target = Some(target);
    Ok(())
}

fn mailbox(text: &str) -> Result<Mailbox, Malformed> {
    Mailbox::parse(text, true).map_err(|_| Malformed("expanded address"))
}

/// Returns the bytes that are left, as text.
fn rest<'a>(body: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let bytes = body.bytes(body.0.len())?;
    std::str::from_utf8(bytes).map_err(|_| Malformed("not UTF-8"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use mail::{ForwardPath, RecipientOptions};
    use proptest::{option, prelude::*};

    fn address() -> impl Strategy<Value = String> {
        "[a-z0-9]{1,12}(\\.[a-zä]{1,8})?@[a-z]{1,9}\\.test"
    }

    fn mailboxes() -> impl Strategy<Value = Mailbox> {
        address().prop_map(|text| Mailbox::parse(&text, true).expect("it is an address"))
    }

    /// Any options, none of them too.
    pub(crate) fn any_options() -> impl Strategy<Value = DeliveryOptions> {
        let auth = prop_oneof![Just(ReversePath::Null), mailboxes().prop_map(ReversePath::Mailbox),];
        let mode = prop_oneof![Just(DeliverByMode::Notify), Just(DeliverByMode::Return)];
        let by = (any::<u64>(), mode, any::<bool>()).prop_map(|(deadline, mode, trace)| DeliverBy {
            deadline: UnixMillis(deadline),
            mode,
            trace,
        });
        let login = option::of(any::<String>().prop_map(Into::into));
        let priority = option::of((-9i8..=9).prop_map(|value| Priority::new(value).expect("it is in range")));
        let release = option::of(any::<u64>().prop_map(UnixMillis));
        (login, option::of(auth), any::<bool>(), option::of(by), release, priority).prop_map(
            |(login, auth, requiretls, deliver_by, release, priority)| DeliveryOptions {
                login,
                auth,
                requiretls,
                deliver_by,
                release,
                priority,
            },
        )
    }

    fn any_expansion() -> impl Strategy<Value = Expansion> {
        (mailboxes(), prop::collection::vec(mailboxes(), 0..5))
            .prop_map(|(original, through)| Expansion { original, through })
    }

    /// An envelope with any options, whose recipients have expansions or none.
    pub(crate) fn any_envelope() -> impl Strategy<Value = Envelope> {
        let return_path = (mailboxes(), any::<bool>())
            .prop_map(|(mailbox, is_list)| ReturnPath { path: ReversePath::Mailbox(mailbox), is_list });
        let target = prop_oneof![
            any::<String>().prop_map(|text| AliasTarget::Program(text.into())),
            any::<String>().prop_map(|text| AliasTarget::File(text.into())),
            any::<String>().prop_map(|text| AliasTarget::Route(text.into())),
            Just(AliasTarget::Later),
        ];
        let extensions =
            (option::of(any_expansion()), option::of(return_path), option::of(target), any::<bool>());
        let recipient =
            (mailboxes(), extensions).prop_map(|(mailbox, (expansion, return_path, target, is_copy))| {
                let options = RecipientOptions { expansion, return_path, target, is_copy }.boxed();
                Recipient { options, ..Recipient::new(ForwardPath::Mailbox(mailbox)) }
            });
        (any_options(), prop::collection::vec(recipient, 1..6)).prop_map(|(options, recipients)| {
            let options = options.boxed();
            Envelope { recipients, options, ..Envelope::new(ReversePath::Null) }
        })
    }

    /// The envelope without what the section has.
    fn bare(envelope: &Envelope) -> Envelope {
        let bare = |r: &Recipient| Recipient { options: None, ..r.clone() };
        let recipients = envelope.recipients.iter().map(bare).collect();
        Envelope { recipients, options: None, ..envelope.clone() }
    }

    fn written(envelope: &Envelope, unknown: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, envelope, "", unknown);
        out
    }

    fn read_back(bytes: &[u8], envelope: &mut Envelope) -> Result<Box<[u8]>, Malformed> {
        let mut r = Reader(bytes);
        let read = read(section(&mut r)?, envelope)?;
        assert!(r.0.is_empty());
        Ok(read.unknown)
    }

    fn one() -> Envelope {
        let path = ForwardPath::parse("c@d.test", true).unwrap();
        Envelope { recipients: vec![Recipient::new(path)], ..Envelope::new(ReversePath::Null) }
    }

    #[test]
    fn an_unknown_tag_below_128_is_skipped_and_returned() {
        let unknown = [99, 3, 0, 0, 0, b'x', b'y', b'z', 127, 0, 0, 0, 0];
        let mut envelope = one();
        envelope.options = DeliveryOptions { requiretls: true, ..DeliveryOptions::default() }.boxed();
        let mut again = one();
        assert_eq!(read_back(&written(&envelope, &unknown), &mut again).as_deref(), Ok(&unknown[..]));
        assert_eq!(again, envelope);
    }

    #[test]
    fn an_unknown_tag_from_128_on_is_refused() {
        for tag in (MUST_KNOW..=u8::MAX).filter(|tag| !(REQUIRETLS..=RELEASE).contains(tag) && *tag != TARGET)
        {
            let refused = read_back(&written(&one(), &[tag, 0, 0, 0, 0]), &mut one());
            assert_eq!(refused, Err(Malformed("an extension of a later version")), "{tag}");
        }
    }

    #[test]
    fn extensions_that_make_no_sense_are_refused() {
        for (bad, why) in [
            (&[PRIORITY, 1, 0, 0, 0, 10][..], "priority"),
            (&[REQUIRETLS, 1, 0, 0, 0, 1], "extension length"),
            (&[DELIVER_BY, 9, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 4], "deadline"),
            (&[RELEASE, 7, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7], "cut short"),
            (&[LOGIN, 1, 0, 0, 0, 0xff], "not UTF-8"),
            (&[AUTH, 1, 0, 0, 0, b'x'], "AUTH"),
            (&[EXPANSION, 9, 0, 0, 0, 1, 0, 0, 0, 3, 0, b'a', b'@', b'b'], "expansion of no recipient"),
            (&[EXPANSION, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, b'a'], "expanded address"),
            (&[RETURN_PATH, 8, 0, 0, 0, 0, 0, 0, 0, 2, b'a', b'@', b'b'], "return path"),
            (&[RETURN_PATH, 6, 0, 0, 0, 0, 0, 0, 0, 1, b'a'], "return path"),
            (&[RETURN_PATH, 8, 0, 0, 0, 1, 0, 0, 0, 1, b'a', b'@', b'b'], "return path of no recipient"),
            (&[LOGIN, 200, 0, 0, 0], "cut short"),
            (&[TARGET, 6, 0, 0, 0, 1, 0, 0, 0, PROGRAM, b'/'], "target of no recipient"),
            (&[TARGET, 6, 0, 0, 0, 0, 0, 0, 0, 9, b'/'], "a target of a later version"),
        ] {
            assert_eq!(read_back(&written(&one(), bad), &mut one()), Err(Malformed(why)), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn options_and_expansions_are_read_as_written(envelope in any_envelope()) {
            let bytes = written(&envelope, &[]);
            let mut again = bare(&envelope);
            prop_assert_eq!(read_back(&bytes, &mut again), Ok(Box::default()));
            prop_assert!(bytes.len() <= 4 + bytes_max(&envelope));
            prop_assert_eq!(again, envelope);
        }

        #[test]
        fn arbitrary_sections_never_panic(bytes: Vec<u8>) {
            let mut envelope = one();
            if let Ok(Extra { unknown, .. }) = read(&bytes, &mut envelope) {
                let mut again = one();
                prop_assert_eq!(read_back(&written(&envelope, &unknown), &mut again), Ok(unknown));
                prop_assert_eq!(again, envelope);
            }
        }
    }
}
