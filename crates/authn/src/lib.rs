//! Authentication of mail: signs messages and verifies signatures by DomainKeys Identified Mail (DKIM, RFC 6376, RFC 8301,
//! RFC 8463), checks clients by the Sender Policy Framework (SPF, RFC 7208), and asks the domain of From what it makes of both
//! (DMARC, RFC 9989). Writes the results in a field of the message (RFC 8601).
//!
//! Pure: header and body in, a field out; no clock, no files, no DNS. Machines that need the DNS return [`Question`]s, and are
//! evaluated again with the [`Answers`]. Read [`Signer`], [`Spf`], [`Verifier`] and [`Dmarc`] first.
//!
//! ```
//! use authn::{Answer, Answers, Spf, SpfResult, Step};
//!
//! let client = "192.0.2.1".parse()?;
//! let spf = Spf { client, hello: "mail.a.test", sender: Some("ann@a.test"), receiver: "mx.test", now: 0 };
//! let mut answers = Answers::default();
//! let outcome = loop {
//!     match spf.evaluate(&answers) {
//!         Step::Done(outcome) => break outcome,
//!         // A resolver would answer, all at the same time.
//!         Step::Ask(questions) => {
//!             questions.into_iter().for_each(|question| answers.add(question, Answer::NoName));
//!         }
//!     }
//! };
//! assert_eq!(outcome.result, SpfResult::None);
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

mod canonical;
mod dkim;
mod dmarc;
mod key;
mod question;
mod results;
mod sign;
mod spf;
mod tags;

pub use canonical::BodyHasher;
pub use dkim::{DkimOutcome, DkimResult, Signatures, Verifier};
pub use dmarc::{Dmarc, DmarcOutcome, DmarcPolicy, DmarcResult, FromError, from_domain};
pub use key::{Algorithm, KeyError, SigningKey, key_name};
pub use question::{Answer, Answers, Name, Question, Step};
pub use results::{AuthenticationResults, IprevResult, has_server_id};
pub use sign::{Signer, from_mailbox, has_signature};
pub use spf::{Spf, SpfOutcome, SpfResult};
pub use tags::tag_value;
