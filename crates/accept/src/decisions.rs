//! Decisions: what the checks of each stage found of a draft, and the message that the draft
//! becomes. A driver runs the checks, which may have to wait; what their verdicts mean is decided here.

mod expanded;

use bytes::Bytes;
pub use expanded::Expanded;
use mail::{
    AliasTarget, Edits, Envelope, Message, Origin, Part, QueueId, ReceivedContent, Recipient, Reply,
    ReversePath, UnixMillis,
};
use policy::{Stage, Verdict};
use std::collections::HashMap;

/// What the pipeline does after a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Ask the next check.
    Continue,
    /// Ask no further check at this stage.
    StageOver,
    /// Ask the next check about these recipients, in place of the one that was judged.
    ContinueWith(Vec<Recipient>),
    /// Ask no further check: the client gets this reply.
    Refuse(Reply),
}

/// What happens to the message as a whole. A discard outweighs a hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Treatment {
    #[default]
    Deliver,
    Hold(Box<str>),
    Discard(Box<str>),
}

/// The verdicts on one transaction, beside the envelope as it was given. A transaction begins with the verdicts on its
/// connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decisions {
    /// By index of the given recipient, ascending: who takes its place.
    redirects: Vec<(usize, Vec<Recipient>)>,
    /// Replaces all recipients; `None` if no check did.
    recipients: Option<Vec<Recipient>>,
    /// Names of routes of given recipients, by index.
    routes: Vec<(usize, Box<str>)>,
    /// The name of the route of all other recipients.
    route: Option<Box<str>>,
    /// The new reverse-path; `None` leaves that of the client.
    sender: Option<ReversePath>,
    /// Reasons to discard given recipients, by index.
    discarded: Vec<(usize, Box<str>)>,
    /// Targets of aliases that get no mail, with the reasons.
    missing: Vec<(Box<str>, Box<str>)>,
    edits: Edits,
    /// The new body; `None` leaves that of the client.
    body: Option<Bytes>,
    /// Further recipients, who get a copy if anybody gets the message.
    bcc: Vec<Recipient>,
    /// Further recipients, who get the message even if nobody else does.
    added: Vec<Recipient>,
    treatment: Treatment,
}

/// A draft whose checks are over: to be stored, or thrown away.
#[derive(Debug, PartialEq, Eq)]
pub enum Accepted {
    /// To be made durable.
    Message {
        /// The message as it was decided: final recipients, reverse-path and content.
        message: Message,
        /// The reason to hold the message, if it is held.
        held: Option<Box<str>>,
        /// Given recipients that were discarded, or one of whose replacements was, and missing targets of aliases; with the
        /// reasons.
        discarded: Box<[(Box<str>, Box<str>)]>,
        /// Given recipients whose sender asked for a report of success, and gets it now.
        expanded: Option<Box<Expanded>>,
    },
    /// Nothing is stored; the client is answered 250.
    Discarded {
        /// The reply of 250 names it, though no message has it.
        id: QueueId,
        /// As the client gave it, for the log.
        envelope: Envelope,
        /// The content, whose chunks are to be given back.
        content: ReceivedContent,
        /// For the log: what the check that discarded it said.
        reason: Box<str>,
    },
}

impl Decisions {
    /// Notes a verdict. `at` is the index that the judged recipient has in the envelope if it is accepted.
    pub fn note(&mut self, stage: Stage, verdict: Verdict, at: usize) -> Next {
        match verdict {
            Verdict::Pass => Next::Continue,
            Verdict::Accept => Next::StageOver,
            Verdict::Reject(reply) | Verdict::Defer(reply) => Next::Refuse(reply),
            Verdict::Discard(reason) if stage == Stage::Rcpt => {
                self.discard_recipient(at, reason);
                self.redirect(at, Vec::new());
                Next::StageOver
            }
            Verdict::Discard(reason) => {
                self.treatment = Treatment::Discard(reason);
                Next::StageOver
            }
            Verdict::Hold(reason) => {
                if self.treatment == Treatment::Deliver {
                    self.treatment = Treatment::Hold(reason);
                }
                Next::Continue
            }
            Verdict::Redirect(recipients) if stage == Stage::Rcpt => Next::ContinueWith(recipients),
            Verdict::Redirect(recipients) => {
                self.recipients = Some(recipients);
                Next::Continue
            }
            Verdict::Settle(recipients) if stage == Stage::Rcpt => {
                self.redirect(at, recipients);
                Next::StageOver
            }
            Verdict::Settle(recipients) => self.note(stage, Verdict::Redirect(recipients), at),
            Verdict::Bcc(recipients) => {
                for recipient in recipients {
                    if self.bcc.iter().all(|known| known.path != recipient.path) {
                        self.bcc.push(recipient);
                    }
                }
                Next::Continue
            }
            Verdict::Missing(targets) => {
                self.missing.extend(targets);
                Next::Continue
            }
            Verdict::All(verdicts) => {
                for verdict in verdicts {
                    match self.note(stage, verdict, at) {
                        Next::Continue => {}
                        next => return next,
                    }
                }
                Next::Continue
            }
            Verdict::Route(name) if stage == Stage::Rcpt => {
                self.routes.push((at, name));
                Next::Continue
            }
            Verdict::Route(name) => {
                self.route.get_or_insert(name);
                Next::Continue
            }
            Verdict::ReplaceSender(sender) => {
                self.sender = Some(sender);
                Next::Continue
            }
            Verdict::Edit(edits) => {
                // A rule that several recipients meet changes the header once.
                if !self.edits.ends_with(&edits) {
                    self.edits.extend(edits);
                }
                Next::Continue
            }
            Verdict::ReplaceBody(body) => {
                self.body = Some(body);
                Next::Continue
            }
        }
    }

    /// Will the message not be delivered to anybody?
    pub fn is_discarded(&self, envelope: &Envelope) -> bool {
        matches!(self.treatment, Treatment::Discard(_)) || self.discards_all(envelope)
    }

    /// Is another body decided on?
    pub fn replaces_body(&self) -> bool {
        self.body.is_some()
    }

    /// Changes the content as it was decided. Returns the parts of a body that was replaced: its chunks are to be given back.
    pub fn change(&mut self, content: &mut ReceivedContent) -> Vec<Part> {
        content.edit(&std::mem::take(&mut self.edits));
        self.body.take().map_or_else(Vec::new, |body| content.replace_body(body))
    }

    /// Replaces the given recipient with this index by other recipients.
    pub fn redirect(&mut self, at: usize, recipients: Vec<Recipient>) {
        debug_assert!(self.redirects.last().is_none_or(|(last, _)| *last < at), "one decision a recipient");
        self.redirects.push((at, recipients));
    }

    /// Removes the given recipient with this index, and all that take its place.
    pub fn remove_recipient(&mut self, at: usize, reason: Box<str>) {
        match self.redirects.binary_search_by_key(&at, |(index, _)| *index) {
            Ok(known) if self.redirects[known].1.is_empty() => return,
            Ok(known) => self.redirects[known].1.clear(),
            Err(place) => self.redirects.insert(place, (at, Vec::new())),
        }
        self.discard_recipient(at, reason);
    }

    /// Adds recipients, who get the message even if all others are removed.
    pub fn add_recipients(&mut self, recipients: Vec<Recipient>) {
        self.added.extend(recipients);
    }

    /// Removes further recipients with an address.
    pub fn remove_added(&mut self, is_meant: impl Fn(&Recipient) -> bool) {
        self.bcc.retain(|recipient| !is_meant(recipient));
        self.added.retain(|recipient| !is_meant(recipient));
    }

    /// Returns the recipients that take the place of the given one with this index, if it is replaced.
    pub fn redirected(&self, at: usize) -> Option<&[Recipient]> {
        self.redirects.iter().find(|(index, _)| *index == at).map(|(_, recipients)| &**recipients)
    }

    /// Number of recipients that took the place of given ones.
    pub fn replacement_count(&self) -> usize {
        self.redirects.iter().map(|(_, to)| to.len()).sum()
    }

    /// Notes why the given recipient with this index, or one that took its place, is discarded.
    pub fn discard_recipient(&mut self, at: usize, reason: Box<str>) {
        self.discarded.push((at, reason));
    }

    /// Is no recipient left?
    fn discards_all(&self, envelope: &Envelope) -> bool {
        if !self.added.is_empty() {
            return false;
        }
        match &self.recipients {
            Some(recipients) => recipients.is_empty(),
            None => {
                self.redirects.len() == envelope.recipients.len()
                    && self.redirects.iter().all(|(_, to)| to.is_empty())
            }
        }
    }

    /// The recipients that mail goes to, in place of those that were given.
    fn resolve(&mut self, given: &mut Vec<Recipient>) {
        if let Some(recipients) = self.recipients.take() {
            *given = recipients;
            return;
        }
        match &mut self.redirects[..] {
            [] => {}
            // The usual redirection takes no new list.
            redirects if redirects.iter().all(|(_, to)| to.len() == 1) => {
                for (at, to) in redirects {
                    given[*at] = to.remove(0);
                }
            }
            redirects => {
                let mut resolved = Vec::with_capacity(given.len());
                for (at, recipient) in given.drain(..).enumerate() {
                    match redirects.iter_mut().find(|(index, _)| *index == at) {
                        Some((_, to)) => resolved.append(to),
                        None => resolved.push(recipient),
                    }
                }
                *given = resolved;
            }
        }
    }

    /// Makes a report of this server, of which `content` is the content; `None` where it was discarded. A report is not
    /// held.
    pub fn finish_report(self, report: Message, content: ReceivedContent) -> Option<Message> {
        let Message { id, arrived, origin, envelope, .. } = report;
        match self.finish(id, arrived, origin, envelope, content) {
            Accepted::Message { message, .. } => Some(message),
            Accepted::Discarded { .. } => None,
        }
    }

    /// Makes the message: recipients resolved, header changed. A message that no recipient is left of is discarded.
    ///
    /// # Panics
    /// When another body was decided on, and [`Self::change`] was not called.
    pub fn finish(
        mut self,
        id: QueueId,
        arrived: UnixMillis,
        origin: Origin,
        mut envelope: Envelope,
        mut content: ReceivedContent,
    ) -> Accepted {
        let held = match std::mem::take(&mut self.treatment) {
            Treatment::Discard(reason) => return Accepted::Discarded { id, envelope, content, reason },
            Treatment::Hold(reason) => Some(reason),
            Treatment::Deliver => None,
        };
        if self.discards_all(&envelope) {
            let first = self.discarded.into_iter().next().map(|(_, reason)| reason);
            let reason = first.unwrap_or_else(|| "every recipient was discarded".into());
            return Accepted::Discarded { id, envelope, content, reason };
        }
        let of = |(at, reason): (usize, Box<str>)| (envelope.recipients[at].path.as_str().into(), reason);
        let discarded = std::mem::take(&mut self.discarded).into_iter().map(of);
        let discarded = discarded.chain(std::mem::take(&mut self.missing)).collect();
        if let Some(sender) = self.sender.take() {
            envelope.reverse_path = sender;
        }
        let expanded = Expanded::of(&self.redirects, &envelope);
        // What a rule says of one recipient replaces what one says of the message.
        if let Some(name) = self.route.take() {
            let redirected = self.redirects.iter_mut().flat_map(|(_, to)| to);
            for recipient in
                envelope.recipients.iter_mut().chain(redirected).chain(self.recipients.iter_mut().flatten())
            {
                set_route(std::slice::from_mut(recipient), &name);
            }
        }
        for (at, name) in std::mem::take(&mut self.routes) {
            match self.redirects.iter_mut().find(|(index, _)| *index == at) {
                Some((_, to)) => set_route(to, &name),
                None => set_route(&mut envelope.recipients[at..=at], &name),
            }
        }
        self.resolve(&mut envelope.recipients);
        remove_repeated(&mut envelope.recipients);
        add_copies(&mut envelope.recipients, std::mem::take(&mut self.added));
        add_copies(&mut envelope.recipients, std::mem::take(&mut self.bcc));
        content.edit(&self.edits);
        assert!(self.body.is_none(), "the old body has chunks to give back");
        Accepted::Message {
            message: Message { id, arrived, origin, envelope, content: content.into_content() },
            held,
            discarded,
            expanded,
        }
    }
}

/// Removes recipients that were given before with the same parameters: one copy is enough, and one report.
fn remove_repeated(recipients: &mut Vec<Recipient>) {
    if recipients.len() < 2 {
        return;
    }
    let mut seen: HashMap<String, Vec<usize>> = HashMap::with_capacity(recipients.len());
    let is_new = |(index, recipient): (usize, &Recipient)| {
        let known = seen.entry(recipient.path.key()).or_default();
        // Only its own server knows whether letter case makes another mailbox (RFC 5321 §2.4).
        let is_new = known.iter().all(|&known| recipients[known] != *recipient);
        known.push(index);
        is_new
    };
    let mut keep = recipients.iter().enumerate().map(is_new).collect::<Vec<_>>().into_iter();
    recipients.retain(|_| keep.next() == Some(true));
}

/// Adds recipients that get a copy, except those whose mailbox gets the message anyway.
fn add_copies(recipients: &mut Vec<Recipient>, copies: Vec<Recipient>) {
    for copy in copies {
        let key = copy.path.key();
        // Where an alias names a program or a file, the path is the alias.
        let has_mail = |known: &Recipient| {
            !matches!(known.target(), Some(AliasTarget::Program(_) | AliasTarget::File(_)))
                && known.path.key() == key
        };
        if !recipients.iter().any(has_mail) {
            recipients.push(copy);
        }
    }
}

/// Sets the route of recipients, except of programs and files that aliases name.
fn set_route(recipients: &mut [Recipient], name: &str) {
    for recipient in recipients.iter_mut().filter(|recipient| !recipient.is_alias()) {
        recipient.set_route(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Edit, Enhanced, Field, ForwardPath, ReversePath};

    fn recipient(address: &str) -> Recipient {
        Recipient::new(ForwardPath::parse(address, false).unwrap())
    }

    fn finish(decisions: Decisions, recipients: &[&str]) -> Accepted {
        let mut envelope = Envelope::new(ReversePath::Null);
        envelope.recipients = recipients.iter().map(|address| recipient(address)).collect();
        let content = ReceivedContent::from_bytes("Subject: x\r\n\r\nbody\r\n", 0);
        decisions.finish(QueueId(1), UnixMillis(2), Origin::Dsn, envelope, content)
    }

    fn message(accepted: Accepted) -> (Vec<String>, String, Option<Box<str>>) {
        let Accepted::Message { message, held, .. } = accepted else { panic!("discarded") };
        let recipients = message.envelope.recipients.iter().map(|r| r.path.to_string()).collect();
        let content = message.content.in_memory().unwrap();
        (recipients, String::from_utf8(content.to_vec()).unwrap(), held)
    }

    #[test]
    fn recipients_that_are_added_get_the_message_even_if_all_others_are_removed() {
        let mut decisions = Decisions::default();
        decisions.remove_recipient(0, "x".into());
        decisions.remove_recipient(0, "x again".into());
        decisions.add_recipients(vec![recipient("new@b.test"), recipient("other@b.test")]);
        decisions.remove_added(|to| to.path.as_str() == "other@b.test");
        let accepted = finish(decisions, &["a@b.test"]);
        let Accepted::Message { discarded, .. } = &accepted else { panic!("discarded") };
        assert_eq!(discarded.len(), 1);
        assert_eq!(message(accepted).0, ["new@b.test"]);
    }

    #[test]
    fn a_draft_without_verdicts_is_the_message_that_was_given() {
        let (recipients, content, held) = message(finish(Decisions::default(), &["a@b.test", "c@d.test"]));
        assert_eq!(recipients, ["a@b.test", "c@d.test"]);
        assert_eq!((content.as_str(), held), ("Subject: x\r\n\r\nbody\r\n", None));
    }

    #[test]
    fn recipients_are_replaced_expanded_and_discarded_in_their_places() {
        let mut decisions = Decisions::default();
        decisions.redirect(0, vec![recipient("x@y.test")]);
        assert_eq!(message(finish(decisions.clone(), &["a@b.test", "c@d.test"])).0, ["x@y.test", "c@d.test"]);
        decisions.redirect(1, vec![recipient("1@y.test"), recipient("2@y.test")]);
        let discard = Verdict::Discard("unwanted".into());
        assert_eq!(decisions.note(Stage::Rcpt, discard, 2), Next::StageOver);
        let given = ["a@b.test", "c@d.test", "e@f.test", "g@h.test"];
        assert_eq!(message(finish(decisions, &given)).0, ["x@y.test", "1@y.test", "2@y.test", "g@h.test"]);
    }

    #[test]
    fn routes_of_recipients_go_before_that_of_the_message_and_targets_of_aliases_before_both() {
        let mut decisions = Decisions::default();
        decisions.note(Stage::Rcpt, Verdict::Route("one".into()), 0);
        let program = AliasTarget::Program("/bin/x".into());
        let target = Some(program.clone());
        let options = mail::RecipientOptions { target, ..Default::default() }.boxed();
        let own = Recipient { options, ..recipient("x@y.test") };
        decisions.note(Stage::Rcpt, Verdict::Route("one".into()), 1);
        decisions.redirect(1, vec![recipient("1@y.test"), own]);
        decisions.note(Stage::Content, Verdict::Route("all".into()), 0);
        decisions.note(Stage::Content, Verdict::Route("other".into()), 0);
        decisions.note(Stage::Content, Verdict::Bcc(vec![recipient("copy@y.test")]), 0);
        let given = ["a@b.test", "c@d.test", "e@f.test"];
        let Accepted::Message { message, .. } = finish(decisions, &given) else { panic!("discarded") };
        let targets: Vec<_> = message.envelope.recipients.iter().map(|r| r.target().cloned()).collect();
        let route = |name: &str| Some(AliasTarget::Route(name.into()));
        assert_eq!(targets, [route("one"), route("one"), Some(program), route("all"), None]);
    }

    #[test]
    fn a_recipient_gets_no_copy_beside_the_message() {
        let mut decisions = Decisions::default();
        decisions.redirect(0, vec![recipient("joe@x.test"), recipient("ann@x.test")]);
        decisions.note(
            Stage::Content,
            Verdict::Bcc(vec![recipient("Joe@X.test"), recipient("copy@x.test")]),
            0,
        );
        let (recipients, ..) = message(finish(decisions, &["list@x.test"]));
        assert_eq!(recipients, ["joe@x.test", "ann@x.test", "copy@x.test"]);
    }

    #[test]
    fn a_redirection_of_the_message_replaces_all_recipients() {
        let mut decisions = Decisions::default();
        decisions.redirect(0, Vec::new());
        let all = Verdict::Redirect(vec![recipient("x@y.test")]);
        assert_eq!(decisions.note(Stage::Content, all, 0), Next::Continue);
        assert_eq!(message(finish(decisions, &["a@b.test", "c@d.test"])).0, ["x@y.test"]);
    }

    #[test]
    fn a_message_is_held_or_discarded_and_discarding_wins() {
        let mut decisions = Decisions::default();
        decisions.note(Stage::Mail, Verdict::Hold("first".into()), 0);
        decisions.note(Stage::Content, Verdict::Hold("second".into()), 0);
        assert_eq!(message(finish(decisions.clone(), &["a@b.test"])).2.as_deref(), Some("first"));
        decisions.note(Stage::Header, Verdict::Discard("unwanted".into()), 0);
        decisions.note(Stage::Content, Verdict::Hold("third".into()), 0);
        let Accepted::Discarded { reason, .. } = finish(decisions, &["a@b.test"]) else {
            panic!("a message")
        };
        assert_eq!(&*reason, "unwanted");
    }

    #[test]
    fn a_message_without_recipients_is_discarded() {
        let mut decisions = Decisions::default();
        decisions.redirect(0, Vec::new());
        assert!(matches!(finish(decisions, &["a@b.test"]), Accepted::Discarded { .. }));
    }

    #[test]
    fn the_header_is_changed_in_the_order_of_the_verdicts() {
        let add =
            |name: &str| Verdict::Edit([Edit::Append(Field::new(name, "1").unwrap())].into_iter().collect());
        let mut decisions = Decisions::default();
        decisions.note(Stage::Mail, add("X-A"), 0);
        decisions.note(Stage::Content, add("X-B"), 0);
        let content = message(finish(decisions, &["a@b.test"])).1;
        assert_eq!(content, "Subject: x\r\nX-A: 1\r\nX-B: 1\r\n\r\nbody\r\n");
    }

    #[test]
    fn the_last_reverse_path_replaces_the_one_that_was_given() {
        let mut decisions = Decisions::default();
        for sender in ["a@b.test", "root@b.test"] {
            let sender = ReversePath::parse(sender, false).unwrap();
            assert_eq!(decisions.note(Stage::Mail, Verdict::ReplaceSender(sender), 0), Next::Continue);
        }
        let Accepted::Message { message, .. } = finish(decisions, &["c@d.test"]) else { panic!("discarded") };
        assert_eq!(message.envelope.reverse_path.as_str(), "root@b.test");
    }

    #[test]
    fn a_refusal_is_for_the_client() {
        let reply = Reply::fixed(550, Enhanced(5, 7, 1), "No");
        let mut decisions = Decisions::default();
        assert_eq!(decisions.note(Stage::Rcpt, Verdict::Reject(reply.clone()), 0), Next::Refuse(reply));
        assert_eq!(decisions, Decisions::default());
    }
}
