//! `[extensions]`: the values of SMTP extensions, and commands that not every client may use.

use crate::{choice::ForClients, section::section, value::PolicyName};
use std::time::Duration;

section! {
    /// SMTP extensions that you can choose. docs/extensions.md explains what each of them does. `discard_ehlo_keywords`
    /// of a listener leaves their keywords out.
    pub Extensions = "extensions" {
        /// The longest time for which a message can be held before its first attempt (FUTURERELEASE, RFC 4865), on
        /// listeners that require a login. Longer times get 501 5.5.4. With 0, FUTURERELEASE is not offered.
        max_future_release: Duration = "\"30d\"",
        /// The shortest deadline with return that is accepted (DELIVERBY, RFC 2852, `BY=seconds;R`). Shorter ones get 501
        /// 5.5.4.
        min_deliver_by: Duration = "\"1m\"",
        /// The name of the priority assignment policy to announce in MT-PRIORITY (RFC 6710), such as `MIXER`. Without
        /// this key, no name is announced. Clients that are neither in `relay.networks` nor logged in get no priority
        /// above 0.
        priority_policy: Option<PolicyName> = "",
        /// If true, the priority of a message is also written into its header, in the field `MT-Priority` (RFC 6758), so
        /// that it passes servers without MT-PRIORITY. It is read from there in messages from clients in `relay.networks`
        /// and from clients that have logged in; the field is removed from other clients' messages.
        priority_header: bool = "false",
        /// The clients that may start the queue for a domain by ETRN (RFC 1985): `nobody`, `trusted` (those in
        /// `relay.networks`, and those that have logged in), or `everybody`. Others get 459 4.7.1; with `nobody`, 502
        /// 5.5.1.
        etrn: ForClients = "\"nobody\"",
        /// The clients that may ask by VRFY whether a user exists. Others get 252.
        vrfy: ForClients = "\"nobody\"",
        /// The clients that may ask by EXPN where an alias leads. Others get 502 5.5.1.
        expn: ForClients = "\"nobody\"",
    }
}
