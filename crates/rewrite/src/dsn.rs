//! DSN parameters and the reverse-path of the recipients that take the place of one (RFC 3461 §5.2.7).

use mail::{ForwardPath, Mailbox, Notify, Recipient, ReturnPath, ReversePath};

/// The part that a recipient has in the expansion of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role<'o> {
    /// The only target of aliases (RFC 3461 §5.2.7.2).
    Single,
    /// One of several targets of an alias (RFC 3461 §5.2.7.3).
    OneOfSeveral,
    /// A member of a list with this owner (§5.2.7.1).
    OfList(&'o Mailbox),
}

/// Returns the recipient for one target of an alias.
///
/// For a single target all parameters stay. ENVID and RET belong to the message; ORCPT stays, or names the address that
/// was given (§4.2), so that each notification names the recipient that the sender wrote. One of several targets does not
/// report success: the sender gets a notification "expanded" instead. A list is another sender: its members have none of
/// the parameters, and their notifications go to the owner.
pub fn passed_on(given: &Recipient, target: Mailbox, role: Role<'_>) -> Recipient {
    let orcpt = || given.orcpt.clone().or_else(|| given.path.mailbox().map(original));
    let notify = match role {
        Role::OneOfSeveral if given.notify.success => Notify { success: false, ..given.notify },
        _ => given.notify,
    };
    let path = ForwardPath::Mailbox(target);
    match role {
        Role::Single | Role::OneOfSeveral => Recipient { path, notify, orcpt: orcpt(), ..given.clone() },
        Role::OfList(owner) => {
            let path_back = ReturnPath { path: ReversePath::Mailbox(owner.clone()), is_list: true };
            let mut member = Recipient::new(path);
            member.set_return_path(path_back);
            member
        }
    }
}

/// `rfc822;joe@example.com`; `utf-8;` for an address that is not ASCII (RFC 6533 §3).
fn original(mailbox: &Mailbox) -> Box<str> {
    let kind = if mailbox.needs_smtputf8() { "utf-8" } else { "rfc822" };
    format!("{kind};{mailbox}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox(text: &str) -> Mailbox {
        Mailbox::parse(text, true).unwrap()
    }

    #[test]
    fn parameters_stay_and_the_original_recipient_is_named() {
        let passed = |given: &Recipient| passed_on(given, mailbox("joe@b.test"), Role::Single);
        let mut given = Recipient::new(ForwardPath::Mailbox(mailbox("list@a.test")));
        given.notify = Notify::NEVER;
        assert_eq!((passed(&given).path.as_str(), passed(&given).notify), ("joe@b.test", Notify::NEVER));
        assert_eq!(passed(&given).orcpt.as_deref(), Some("rfc822;list@a.test"));
        given.orcpt = Some("rfc822;first@c.test".into());
        assert_eq!(passed(&given).orcpt.as_deref(), Some("rfc822;first@c.test"));
        let given = Recipient::new(ForwardPath::Mailbox(mailbox("jürgen@a.test")));
        assert_eq!(passed(&given).orcpt.as_deref(), Some("utf-8;jürgen@a.test"));
        assert_eq!(passed(&Recipient::new(ForwardPath::Postmaster)).orcpt, None);
    }

    #[test]
    fn one_of_several_targets_does_not_report_success() {
        let mut given = Recipient::new(ForwardPath::Mailbox(mailbox("staff@a.test")));
        let several = |given: &Recipient| passed_on(given, mailbox("joe@b.test"), Role::OneOfSeveral).notify;
        assert_eq!(several(&given), Notify::default());
        given.notify = Notify { success: true, failure: true, delay: false, explicit: true };
        assert_eq!(several(&given), Notify { success: false, ..given.notify });
        given.notify = Notify { success: true, ..Notify::NEVER };
        assert_eq!(several(&given), Notify::NEVER);
    }

    #[test]
    fn a_member_of_a_list_has_none_of_the_parameters_and_the_owner_gets_its_reports() {
        let mut given = Recipient::new(ForwardPath::Mailbox(mailbox("list@a.test")));
        given.notify = Notify::NEVER;
        given.orcpt = Some("rfc822;x@c.test".into());
        let owner = mailbox("owner-list@a.test");
        let member = passed_on(&given, mailbox("joe@b.test"), Role::OfList(&owner));
        assert_eq!((member.notify, member.orcpt.as_deref()), (Notify::default(), None));
        let back = member.return_path().unwrap();
        assert_eq!((back.path.as_str(), back.is_list), ("owner-list@a.test", true));
    }
}
