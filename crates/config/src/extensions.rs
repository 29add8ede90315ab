//! `[extensions]`: the values of SMTP extensions, and commands that not every client may use.

use crate::{choice::ForClients, section::section, value::PolicyName};
use std::time::Duration;

section! {
    /// Extensions of SMTP that a site chooses. docs/extensions.md says what each of them does here. A listener can leave
    /// their keywords out by `discard_ehlo_keywords`.
    pub Extensions = "extensions" {
        /// The longest time for which a message can be held before its first attempt (FUTURERELEASE, RFC 4865), on
        /// listeners that need a login; 0: FUTURERELEASE is not offered. More than this: 501 5.5.4.
        max_future_release: Duration = "\"30d\"",
        /// The shortest time of a deadline with return (DELIVERBY, RFC 2852, `BY=seconds;R`). Less: 501 5.5.4.
        min_deliver_by: Duration = "\"1m\"",
        /// The name of the priority assignment policy that is announced by MT-PRIORITY (RFC 6710), such as `MIXER`.
        /// Without this key, no name is announced. Clients outside of `relay.networks` and without a login get no
        /// priority above 0.
        priority_policy: Option<PolicyName> = "",
        /// True if the priority of a message is also written into its header, in the field `MT-Priority` (RFC 6758), so
        /// that it passes servers without MT-PRIORITY; and read from there if the message is from a client in
        /// `relay.networks` or from a login. A field of other clients is removed.
        priority_header: bool = "false",
        /// The clients that may start the queue for a domain by ETRN (RFC 1985): `nobody`, `trusted` (those in
        /// `relay.networks`, and logins), or `everybody`. Other clients get 459 4.7.1, with `nobody` 502 5.5.1.
        etrn: ForClients = "\"nobody\"",
        /// The clients that learn by VRFY whether a user exists. Other clients get 252.
        vrfy: ForClients = "\"nobody\"",
        /// The clients that learn by EXPN to whom an alias leads. Other clients get 502 5.5.1.
        expn: ForClients = "\"nobody\"",
    }
}
