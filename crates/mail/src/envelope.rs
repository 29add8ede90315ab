//! The envelope: reverse-path, forward-paths, and their parameters.

use crate::{
    address::{ForwardPath, Mailbox, ReversePath},
    delivery_options::{DeliverBy, DeliveryOptions},
};

/// The body type that the client declared (RFC 6152, RFC 3030).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum BodyType {
    /// Nothing said, or `BODY=7BIT`.
    #[default]
    SevenBit,
    /// `BODY=8BITMIME`.
    EightBit,
    /// `BODY=BINARYMIME`; only BDAT can carry it.
    Binary,
}

/// `RET=` (RFC 3461 §4.3): how much of the message a failure DSN returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ret {
    /// `FULL`: DSNs about failures return the whole message.
    Full,
    /// `HDRS`: DSNs return its header only.
    Headers,
}

/// `NOTIFY=` (RFC 3461 §4.1) as a small set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Notify {
    /// `SUCCESS`: send a DSN when the message is delivered.
    pub success: bool,
    /// `FAILURE`: send a DSN when the delivery fails.
    pub failure: bool,
    /// `DELAY`: send a DSN when the delivery is delayed.
    pub delay: bool,
    /// True if the client gave `NOTIFY=`; the default is not passed on as a parameter.
    pub explicit: bool,
}

impl Default for Notify {
    /// Not given: failure and delay are reported (RFC 3461 §4.1).
    fn default() -> Self {
        Self { success: false, failure: true, delay: true, explicit: false }
    }
}

impl Notify {
    /// `NOTIFY=NEVER`.
    pub const NEVER: Self = Self { success: false, failure: false, delay: false, explicit: true };
}

/// One forward-path with its DSN parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// The forward-path of RCPT, or what an alias put in its place.
    pub path: ForwardPath,
    /// `NOTIFY=`: which outcomes the sender wants to hear of (RFC 3461 §4.1).
    pub notify: Notify,
    /// `ORCPT=`, decoded: `rfc822;user@example.com` (RFC 3461 §4.2).
    pub orcpt: Option<Box<str>>,
    /// Options that few recipients have; never a box without any.
    pub options: Option<Box<RecipientOptions>>,
}

/// Options that few recipients have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecipientOptions {
    /// The expansion that made this recipient; `None` if the client gave the address itself.
    pub expansion: Option<Expansion>,
    /// The reverse-path of the copies for this recipient, if it is not the one of the message.
    pub return_path: Option<ReturnPath>,
    /// The program or file that an alias names, where the path of the recipient is the alias, or the route that a rule or
    /// a map has chosen. `None`: the mail goes where the route of the path leads.
    pub target: Option<AliasTarget>,
    /// A copy that the configuration adds, of which the sender does not know.
    pub is_copy: bool,
}

impl RecipientOptions {
    /// Returns the options as a recipient has them: none if no option is set.
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// A target that does not follow from the address: of an alias, a rule, or the map of a route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AliasTarget {
    /// A program with its arguments, as the alias has them.
    Program(Box<str>),
    /// A file in the mbox format, by its path.
    File(Box<str>),
    /// The name of a configured route.
    Route(Box<str>),
    /// None yet: the address is to be expanded later, because its aliases were wrong or a map did not answer.
    Later,
}

impl Recipient {
    /// A recipient without parameters.
    pub fn new(path: ForwardPath) -> Self {
        Self { path, notify: Notify::default(), orcpt: None, options: None }
    }

    /// The expansion that made this recipient; `None` if the client gave the address itself.
    pub fn expansion(&self) -> Option<&Expansion> {
        self.options.as_ref()?.expansion.as_ref()
    }

    /// Returns [`RecipientOptions::return_path`].
    pub fn return_path(&self) -> Option<&ReturnPath> {
        self.options.as_ref()?.return_path.as_ref()
    }

    /// Returns [`RecipientOptions::target`].
    pub fn target(&self) -> Option<&AliasTarget> {
        self.options.as_ref()?.target.as_ref()
    }

    /// Sets the route that the mail takes, by its name.
    pub fn set_route(&mut self, name: &str) {
        self.options.get_or_insert_default().target = Some(AliasTarget::Route(name.into()));
    }

    /// Sets an option; the others stay as they are.
    pub fn set_return_path(&mut self, path: ReturnPath) {
        self.options.get_or_insert_default().return_path = Some(path);
    }

    /// Returns a recipient of a copy that the configuration adds. Nobody is notified of it.
    pub fn copy(path: ForwardPath) -> Self {
        let options = RecipientOptions { is_copy: true, ..RecipientOptions::default() };
        Self { notify: Notify::NEVER, options: options.boxed(), ..Self::new(path) }
    }

    /// Returns whether the deadline of the message (RFC 2852) is for this recipient. It ends at a mailing list, which has the
    /// message by then, and copies of which the sender does not know have none.
    pub fn has_deadline(&self) -> bool {
        !self.is_of_list() && !self.options.as_ref().is_some_and(|options| options.is_copy)
    }

    /// Returns whether the path is an alias, and no user: a program or a file gets the mail.
    pub fn is_alias(&self) -> bool {
        matches!(self.target(), Some(AliasTarget::Program(_) | AliasTarget::File(_)))
    }

    /// Returns whether a mailing list sends the copies for this recipient: ENVID and RET of the message are not for
    /// them (RFC 3461 §5.2.7.1).
    pub fn is_of_list(&self) -> bool {
        self.return_path().is_some_and(|path| path.is_list)
    }
}

/// A reverse-path of the copies for one recipient: the owner of a list (RFC 5321 §3.9.2), or an address that names the
/// recipient (VERP). A message with the null reverse-path has none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReturnPath {
    /// The reverse-path to send, and so the address of DSNs.
    pub path: ReversePath,
    /// True if it is the owner of a list.
    pub is_list: bool,
}

/// The expansion of an address by aliases and lists, of which a recipient is a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expansion {
    /// The address that the client gave. DSNs name it, and not the address that the message was sent to.
    pub original: Mailbox,
    /// The addresses between the original and the recipient, in the order of their expansion.
    pub through: Vec<Mailbox>,
}

/// Everything MAIL and RCPT said. Recipients are named by their index elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// From MAIL: the sender, or `<>` for a DSN.
    pub reverse_path: ReversePath,
    /// In the order of their RCPT commands.
    pub recipients: Vec<Recipient>,
    /// Declared content type.
    pub body: BodyType,
    /// `SMTPUTF8` was given (RFC 6531 §3.4).
    pub smtputf8: bool,
    /// `RET=` (RFC 3461 §4.3): what of the message a DSN about a failure returns.
    pub ret: Option<Ret>,
    /// `ENVID=`, decoded (RFC 3461 §4.4). DSNs repeat it.
    pub envid: Option<Box<str>>,
    /// Options that few messages have.
    pub options: Option<Box<DeliveryOptions>>,
}

impl Envelope {
    /// An envelope without recipients and parameters.
    pub fn new(reverse_path: ReversePath) -> Self {
        Self {
            reverse_path,
            recipients: Vec::new(),
            body: BodyType::SevenBit,
            smtputf8: false,
            ret: None,
            envid: None,
            options: None,
        }
    }

    /// Returns the reverse-path of the copies for the recipient with this index.
    pub fn reverse_path_of(&self, index: u32) -> &ReversePath {
        let recipient = self.recipients.get(index as usize);
        let own = recipient.and_then(Recipient::return_path);
        own.map_or(&self.reverse_path, |own| &own.path)
    }

    /// Returns the deadline of the message for a recipient.
    pub fn deliver_by(&self, index: u32) -> Option<DeliverBy> {
        let by = self.options.as_ref()?.deliver_by?;
        self.recipients.get(index as usize).is_none_or(Recipient::has_deadline).then_some(by)
    }

    /// Returns the number of recipients at the front of `indexes` whose copies have the same reverse-path and deadline, and
    /// either all or none of which are of a list: they can share a transaction.
    pub fn together(&self, indexes: &[u32]) -> usize {
        let own = |index: &u32| self.recipients.get(*index as usize).and_then(Recipient::return_path);
        let of = |index: &u32| (own(index), self.deliver_by(*index));
        let Some(first) = indexes.first().map(of) else { return 0 };
        indexes.iter().take_while(|index| of(index) == first).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipients_with_equal_reverse_paths_go_together() {
        let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
        for (own, is_list) in
            [("", false), ("", false), ("o@b.test", true), ("o@b.test", true), ("o@b.test", false)]
        {
            let mut recipient = Recipient::new(ForwardPath::parse("c@d.test", false).unwrap());
            let path = ReversePath::parse(own, false).unwrap();
            if !own.is_empty() {
                recipient.set_return_path(ReturnPath { path, is_list });
            }
            envelope.recipients.push(recipient);
        }
        for (indexes, count) in [(&[0, 1, 2][..], 2), (&[2, 3, 4], 2), (&[4], 1), (&[1, 2], 1), (&[], 0)] {
            assert_eq!(envelope.together(indexes), count, "{indexes:?}");
        }
        let paths: Vec<&str> = (0..6).map(|index| envelope.reverse_path_of(index).as_str()).collect();
        assert_eq!(paths, ["a@b.test", "a@b.test", "o@b.test", "o@b.test", "o@b.test", "a@b.test"]);
    }
}
