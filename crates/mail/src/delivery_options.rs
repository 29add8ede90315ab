//! Delivery options: parameters of MAIL that few messages have, and the login that submitted the message.

use crate::{address::ReversePath, time::UnixMillis};

/// The options of one message. An envelope without any has none of this; see [`DeliveryOptions::boxed`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeliveryOptions {
    /// The authenticated login that submitted the message.
    pub login: Option<Box<str>>,
    /// `AUTH=` (RFC 4954 §5), decoded: the submitter as earlier servers vouch for it. [`ReversePath::Null`] stands for
    /// `AUTH=<>`: unknown, or not trusted.
    pub auth: Option<ReversePath>,
    /// `REQUIRETLS` (RFC 8689 §2): the message leaves over verified connections only.
    pub requiretls: bool,
    /// `BY=` (RFC 2852 §4).
    pub deliver_by: Option<DeliverBy>,
    /// `HOLDFOR=` or `HOLDUNTIL=` (RFC 4865 §4): no attempt is made before this time.
    pub release: Option<UnixMillis>,
    /// `MT-PRIORITY=` (RFC 6710 §4).
    pub priority: Option<Priority>,
}

impl DeliveryOptions {
    /// Returns the options as an envelope holds them: `None` if nothing is set.
    pub fn boxed(self) -> Option<Box<Self>> {
        if self == Self::default() { None } else { Some(Box::new(self)) }
    }
}

/// `BY=` of MAIL (RFC 2852 §4), counted from the time of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeliverBy {
    /// The by-time, as an absolute time.
    pub deadline: UnixMillis,
    /// The by-mode: what happens when the deadline is over.
    pub mode: DeliverByMode,
    /// The by-trace flag `T`: each relay sends a DSN.
    pub trace: bool,
}

/// The treatment of a message whose deadline is over (RFC 2852 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliverByMode {
    /// `N`: the sender gets a delay DSN, and delivery continues.
    Notify,
    /// `R`: the message is returned as undeliverable.
    Return,
}

/// The priority of a message (RFC 6710 §4), from -9 to 9. Messages without the parameter have 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority(i8);

impl Priority {
    /// Returns the priority of this value; `None` outside of -9 to 9.
    pub fn new(value: i8) -> Option<Self> {
        (-9..=9).contains(&value).then_some(Self(value))
    }

    /// Returns the value, from -9 to 9.
    pub fn value(self) -> i8 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Envelope, Recipient};

    #[test]
    fn priorities_end_at_nine() {
        let valid: Vec<i8> = (i8::MIN..=i8::MAX).filter(|value| Priority::new(*value).is_some()).collect();
        assert_eq!(valid, (-9..=9).collect::<Vec<_>>());
        assert_eq!(Priority::new(-9).map(Priority::value), Some(-9));
    }

    #[test]
    fn options_of_which_none_is_set_take_no_box() {
        assert_eq!(DeliveryOptions::default().boxed(), None);
        let options = DeliveryOptions { priority: Some(Priority::default()), ..DeliveryOptions::default() };
        assert_eq!(options.clone().boxed().as_deref(), Some(&options));
    }

    #[test]
    fn a_message_without_options_pays_for_one_pointer_in_envelope_and_recipient() {
        assert_eq!(size_of::<Option<Box<DeliveryOptions>>>(), size_of::<usize>());
        assert!(size_of::<Envelope>() <= 96 && size_of::<Recipient>() <= 56);
    }
}
