//! The negotiation: which version is spoken, what the filter may do, and which steps are left out.

use crate::{ProtocolError, Stage, macros::Wanted, wire::Data};
use std::ops::BitOr;

/// Generates a set of flags: the names of the protocol stand in `mfapi.h` and `mfdef.h`.
macro_rules! flags {
    ($(#[$docs:meta])* $name:ident { $($(#[$flag_docs:meta])* $flag:ident = $bits:literal,)* }) => {
        $(#[$docs])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name(pub u32);

        impl $name {
            $($(#[$flag_docs])* pub const $flag: Self = Self($bits);)*
            /// All flags that this crate knows.
            pub const ALL: Self = Self($($bits)|*);

            /// Returns whether all flags of `other` are set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns the flags that are not in `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
    };
}

flags! {
    /// What a filter may do to a message (`SMFIF_*`).
    Actions {
        /// Add and insert header fields.
        ADD_HEADERS = 0x1,
        /// Replace the body.
        CHANGE_BODY = 0x2,
        /// Add recipients.
        ADD_RECIPIENTS = 0x4,
        /// Delete recipients.
        DELETE_RECIPIENTS = 0x8,
        /// Change and delete header fields.
        CHANGE_HEADERS = 0x10,
        /// Quarantine the message.
        QUARANTINE = 0x20,
        /// Change the sender.
        CHANGE_SENDER = 0x40,
        /// Add recipients with ESMTP parameters.
        ADD_RECIPIENTS_WITH_PARAMETERS = 0x80,
        /// Choose the macros of each stage.
        CHOOSE_MACROS = 0x100,
    }
}

flags! {
    /// Parts of the protocol that the filter leaves out or asks for (`SMFIP_*`).
    Steps {
        /// The filter is not told of connections.
        NO_CONNECT = 0x1,
        /// The filter is not told of HELO.
        NO_HELLO = 0x2,
        /// The filter is not told of MAIL.
        NO_MAIL = 0x4,
        /// The filter is not told of RCPT.
        NO_RECIPIENT = 0x8,
        /// The filter is not sent the body.
        NO_BODY = 0x10,
        /// The filter is not sent the header.
        NO_HEADER = 0x20,
        /// The filter is not told of the end of the header.
        NO_END_OF_HEADERS = 0x40,
        /// The filter does not answer header fields.
        NO_HEADER_ANSWER = 0x80,
        /// The filter is not told of unknown commands.
        NO_UNKNOWN = 0x100,
        /// The filter is not told of DATA.
        NO_DATA = 0x200,
        /// The filter may stop the body with [`crate::Verdict::Skip`].
        SKIP = 0x400,
        /// The filter is also told of recipients that the server rejected.
        REJECTED_RECIPIENTS = 0x800,
        /// The filter does not answer connections.
        NO_CONNECT_ANSWER = 0x1000,
        /// The filter does not answer HELO.
        NO_HELLO_ANSWER = 0x2000,
        /// The filter does not answer MAIL.
        NO_MAIL_ANSWER = 0x4000,
        /// The filter does not answer RCPT.
        NO_RECIPIENT_ANSWER = 0x8000,
        /// The filter does not answer DATA.
        NO_DATA_ANSWER = 0x1_0000,
        /// The filter does not answer unknown commands.
        NO_UNKNOWN_ANSWER = 0x2_0000,
        /// The filter does not answer the end of the header.
        NO_END_OF_HEADERS_ANSWER = 0x4_0000,
        /// The filter does not answer chunks of the body.
        NO_BODY_ANSWER = 0x8_0000,
        /// Values of header fields keep the space behind the colon, in both directions.
        LEADING_SPACE = 0x10_0000,
        /// The filter takes 262,143 octets of data in a packet.
        DATA_256K = 0x1000_0000,
        /// The filter takes 1,048,575 octets of data in a packet.
        DATA_1M = 0x2000_0000,
    }
}

impl Steps {
    /// The flag by which a filter asks not to be told of a stage.
    const fn without_command(stage: Stage) -> Option<Self> {
        Some(match stage {
            Stage::Connect => Self::NO_CONNECT,
            Stage::Hello => Self::NO_HELLO,
            Stage::Mail => Self::NO_MAIL,
            Stage::Recipient => Self::NO_RECIPIENT,
            Stage::Data => Self::NO_DATA,
            Stage::Header => Self::NO_HEADER,
            Stage::EndOfHeaders => Self::NO_END_OF_HEADERS,
            Stage::Body => Self::NO_BODY,
            Stage::Unknown => Self::NO_UNKNOWN,
            Stage::Negotiation | Stage::EndOfMessage => return None,
        })
    }

    /// The flag by which a filter announces that it does not answer at a stage.
    const fn without_answer(stage: Stage) -> Option<Self> {
        Some(match stage {
            Stage::Connect => Self::NO_CONNECT_ANSWER,
            Stage::Hello => Self::NO_HELLO_ANSWER,
            Stage::Mail => Self::NO_MAIL_ANSWER,
            Stage::Recipient => Self::NO_RECIPIENT_ANSWER,
            Stage::Data => Self::NO_DATA_ANSWER,
            Stage::Header => Self::NO_HEADER_ANSWER,
            Stage::EndOfHeaders => Self::NO_END_OF_HEADERS_ANSWER,
            Stage::Body => Self::NO_BODY_ANSWER,
            Stage::Unknown => Self::NO_UNKNOWN_ANSWER,
            Stage::Negotiation | Stage::EndOfMessage => return None,
        })
    }

    /// Returns whether a filter with these steps is told of a stage.
    pub(crate) fn has_command(self, stage: Stage) -> bool {
        Self::without_command(stage).is_none_or(|flag| !self.contains(flag))
    }

    /// Returns whether a filter with these steps answers at a stage.
    pub(crate) fn has_answer(self, stage: Stage) -> bool {
        Self::without_answer(stage).is_none_or(|flag| !self.contains(flag))
    }
}

/// What the server offers to a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The newest version that is spoken: 2 to 6. Others count as the nearest of these.
    pub version: u32,
    /// What the filter may do.
    pub actions: Actions,
    /// The steps that the filter may leave out or ask for.
    pub steps: Steps,
}

impl Default for Offer {
    /// Version 6, all actions, and all steps but for packets of more than 64 KiB: of the filters in use, none asks for those.
    fn default() -> Self {
        let steps = Steps::ALL.without(Steps::DATA_256K | Steps::DATA_1M);
        Self { version: VERSION_MAX, actions: Actions::ALL, steps }
    }
}

const VERSION_MIN: u32 = 2;
const VERSION_MAX: u32 = 6;
/// All actions that version 2 has.
const V2_ACTIONS: u32 = 0x3f;
const V2_STEPS: u32 = 0x7f;

impl Offer {
    /// Returns the offer without what its version does not have.
    pub(crate) fn of_its_version(self) -> Self {
        let version = self.version.clamp(VERSION_MIN, VERSION_MAX);
        if version > VERSION_MIN {
            return Self { version, ..self };
        }
        Self { version, actions: Actions(self.actions.0 & V2_ACTIONS), steps: Steps(self.steps.0 & V2_STEPS) }
    }

    pub(crate) fn push(&self, out: &mut Vec<u8>) {
        for number in [self.version, self.actions.0, self.steps.0] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// What the filter chose of the offer.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    pub(crate) version: u32,
    pub(crate) actions: Actions,
    pub(crate) steps: Steps,
    pub(crate) macros: Wanted,
}

impl Agreement {
    /// Reads the filter's answer to an offer.
    pub(crate) fn parse(offer: &Offer, data: &[u8]) -> Result<Self, ProtocolError> {
        let malformed = |fault| ProtocolError::Malformed { answer: b'O', fault };
        let mut data = Data(data);
        let mut number = || data.number().map_err(malformed);
        let version = number()?;
        let (actions, mut steps) = (Actions(number()?), Steps(number()?));
        if !(VERSION_MIN..=offer.version).contains(&version) {
            return Err(ProtocolError::Version(version));
        }
        // A step that was not offered cannot be ignored: without the answer that the filter leaves out, both sides would wait.
        let (excess_actions, excess_steps) = (actions.without(offer.actions), steps.without(offer.steps));
        if (excess_actions.0, excess_steps.0) != (0, 0) {
            return Err(ProtocolError::NotOffered { actions: excess_actions, steps: excess_steps });
        }
        // Filters before versions 3 and 4 do not know these commands, and close the connection.
        if version < 3 {
            steps = steps | Steps::NO_UNKNOWN;
        }
        if version < 4 {
            steps = steps | Steps::NO_DATA;
        }
        // libmilter sends lists if the server offers to take them, and leaves the flag to the filter.
        let macros = if offer.actions.contains(Actions::CHOOSE_MACROS) {
            Wanted::parse(&mut data).map_err(malformed)?
        } else {
            data.end().map_err(malformed)?;
            Wanted::default()
        };
        Ok(Self { version, actions, steps, macros })
    }

    /// The longest data of a packet to the filter, in octets.
    pub(crate) fn data_max(&self) -> usize {
        let is_1m = self.steps.contains(Steps::DATA_1M);
        let is_256k = self.steps.contains(Steps::DATA_256K);
        let kibibytes = if is_1m {
            1024
        } else if is_256k {
            256
        } else {
            64
        };
        kibibytes * 1024 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(offer: Offer, version: u32, actions: u32, steps: u32) -> Result<Agreement, ProtocolError> {
        let mut data = Vec::new();
        [version, actions, steps].iter().for_each(|number| data.extend_from_slice(&number.to_be_bytes()));
        Agreement::parse(&offer.of_its_version(), &data)
    }

    #[test]
    fn a_filter_speaks_any_version_up_to_the_one_offered() {
        for version in 2..=6 {
            let agreement = parse(Offer::default(), version, 0, 0).unwrap();
            assert_eq!(agreement.version, version);
            assert_eq!(agreement.steps.has_command(Stage::Unknown), version > 2);
            assert_eq!(agreement.steps.has_command(Stage::Data), version > 3);
            assert!(agreement.steps.has_command(Stage::EndOfMessage));
        }
        let v4 = Offer { version: 4, ..Offer::default() };
        for (offer, version) in [(Offer::default(), 0), (Offer::default(), 1), (Offer::default(), 7), (v4, 5)]
        {
            assert_eq!(parse(offer, version, 0, 0).unwrap_err(), ProtocolError::Version(version));
        }
    }

    #[test]
    fn version_2_is_offered_without_what_came_later() {
        let offer = Offer { version: 2, ..Offer::default() };
        let mut out = Vec::new();
        offer.of_its_version().push(&mut out);
        assert_eq!(out, b"\0\0\0\x02\0\0\0\x3f\0\0\0\x7f");
        assert_eq!(Offer { version: 0, ..offer }.of_its_version().version, 2);
        assert_eq!(Offer { version: 9, ..offer }.of_its_version().version, 6);
    }

    #[test]
    fn a_filter_gets_nothing_that_was_not_offered() {
        let steps = Steps::NO_BODY_ANSWER | Steps::DATA_1M;
        let offer = Offer { actions: Actions::ADD_HEADERS, ..Offer::default() };
        assert_eq!(
            parse(offer, 6, 0x3, steps.0).unwrap_err(),
            ProtocolError::NotOffered { actions: Actions::CHANGE_BODY, steps: Steps::DATA_1M }
        );
        assert!(parse(Offer::default(), 6, 0, 0x4000_0000).is_err());
    }

    #[test]
    fn lists_of_macros_need_an_offer_to_take_them() {
        let data = b"\0\0\0\x06\0\0\0\0\0\0\0\0\0\0\0\x01i\0";
        assert!(Agreement::parse(&Offer::default(), data).is_ok());
        let actions = Actions::ALL.without(Actions::CHOOSE_MACROS);
        assert!(Agreement::parse(&Offer { actions, ..Offer::default() }, data).is_err());
        for length in 0..12 {
            assert!(Agreement::parse(&Offer::default(), &data[..length]).is_err());
        }
    }

    #[test]
    fn packets_grow_with_the_size_that_is_negotiated() {
        let offer = Offer { steps: Steps::ALL, ..Offer::default() };
        for (steps, max) in
            [(Steps(0), 65_535), (Steps::DATA_256K, 262_143), (Steps::DATA_256K | Steps::DATA_1M, 1_048_575)]
        {
            assert_eq!(parse(offer, 6, 0, steps.0).unwrap().data_max(), max);
        }
    }
}
