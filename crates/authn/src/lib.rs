//! Authentication of mail: signs messages by DomainKeys Identified Mail (DKIM, RFC 6376, RFC 8301, RFC 8463).
//!
//! Pure: header and body in, a field out; no clock, no files, no DNS. Read [`Signer`] first, then [`BodyHasher`].

mod canonical;
mod key;
mod sign;

pub use canonical::BodyHasher;
pub use key::{Algorithm, KeyError, SigningKey};
pub use sign::{Signer, from_mailbox, has_signature};
