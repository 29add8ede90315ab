//! DSN parameters of the recipients that take the place of one (RFC 3461 §5.2.7).

use mail::{ForwardPath, Mailbox, Recipient};

/// Returns the recipient for one target of an alias.
///
/// ENVID and RET belong to the message and stay. NOTIFY stays: for an alias with one target as §5.2.7.2 says, and with
/// several (§5.2.7.3) each target reports for itself, until this server composes a notification "expanded". ORCPT stays,
/// or names the address that was given (§4.2), so that each notification names the recipient that the sender wrote.
pub fn passed_on(given: &Recipient, target: Mailbox) -> Recipient {
    let orcpt = given.orcpt.clone().or_else(|| given.path.mailbox().map(original));
    Recipient { path: ForwardPath::Mailbox(target), orcpt, ..given.clone() }
}

/// `rfc822;joe@example.com`; `utf-8;` for an address that is not ASCII (RFC 6533 §3).
fn original(mailbox: &Mailbox) -> Box<str> {
    let kind = if mailbox.needs_smtputf8() { "utf-8" } else { "rfc822" };
    format!("{kind};{mailbox}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::Notify;

    #[test]
    fn parameters_stay_and_the_original_recipient_is_named() {
        let mailbox = |text: &str| Mailbox::parse(text, true).unwrap();
        let mut given = Recipient::new(ForwardPath::Mailbox(mailbox("list@a.test")));
        given.notify = Notify::NEVER;
        let passed = passed_on(&given, mailbox("joe@b.test"));
        assert_eq!((passed.path.as_str(), passed.notify), ("joe@b.test", Notify::NEVER));
        assert_eq!(passed.orcpt.as_deref(), Some("rfc822;list@a.test"));
        given.orcpt = Some("rfc822;first@c.test".into());
        assert_eq!(passed_on(&given, mailbox("joe@b.test")).orcpt.as_deref(), Some("rfc822;first@c.test"));
        let given = Recipient::new(ForwardPath::Mailbox(mailbox("jürgen@a.test")));
        assert_eq!(passed_on(&given, mailbox("joe@b.test")).orcpt.as_deref(), Some("utf-8;jürgen@a.test"));
        let given = Recipient::new(ForwardPath::Postmaster);
        assert_eq!(passed_on(&given, mailbox("joe@b.test")).orcpt, None);
    }
}
