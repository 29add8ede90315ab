//! Extensions that the daemon answers: VRFY, EXPN and ETRN; and the priority that a client may give its mail.

use crate::{
    accept_config::AcceptConfig,
    acceptor::{Acceptor, SessionContext},
    check::{LOOKUP_FAILED, LOOKUP_TIMEOUT, View, is_trusted_client},
    decisions::Decisions,
    intake::Intake,
};
use config::{DomainPattern, ForClients, Settings};
use inbound::Answer;
use mail::{
    Destination, Edit, Enhanced, Envelope, Field, ForwardPath, Mailbox, NextHop, Priority, ReceivedContent,
    Recipient, Reply, ReversePath,
};
use policy::{SessionFacts, Source, Stage};
use smtp::{
    command::EtrnNode,
    server::{Keyword, Query, replies},
};
use std::sync::Arc;
use tokio::time::timeout;

/// The field that carries a priority through servers without MT-PRIORITY (RFC 6758 §3).
const PRIORITY_FIELD: &str = "MT-Priority";

impl SessionContext {
    /// Returns whether the client is one of `relay.networks`, or has logged in.
    fn is_trusted(&self) -> bool {
        is_trusted_client(&self.facts, &self.config.policy)
    }

    /// Returns whether the client is neither one of ours, nor a program on this machine.
    pub(super) fn is_stranger(&self) -> bool {
        !self.is_trusted()
            && !matches!(self.facts.source, Source::Smtp { peer, .. } if peer == inbound::UNIX_CLIENT)
    }

    /// Returns whether the client may use the command of the keyword.
    pub(super) fn offers(&self, keyword: Keyword) -> bool {
        offers(&self.config, &self.facts, keyword)
    }

    /// Returns whether the priority of the message is above the client's right.
    pub(super) fn lowers_priority(&self, envelope: &Envelope) -> bool {
        let priority = envelope.options.as_ref().and_then(|options| options.priority);
        priority.is_some_and(|priority| priority > Priority::default()) && !self.is_trusted()
    }

    /// Gives the message the priority that the client may have.
    pub(super) fn set_priority(&self, envelope: &mut Envelope, content: &mut ReceivedContent) {
        if self.lowers_priority(envelope)
            && let Some(options) = &mut envelope.options
        {
            options.priority = Some(Priority::default());
        }
        carry_priority(&self.config.settings, self.is_trusted(), envelope, content);
    }
}

/// Returns whether a configuration lets the client use the command of the keyword.
fn offers(config: &AcceptConfig, facts: &SessionFacts, keyword: Keyword) -> bool {
    let extensions = &config.settings.extensions;
    let clients = match keyword {
        Keyword::Vrfy => extensions.vrfy,
        Keyword::Expn => extensions.expn,
        Keyword::Etrn => extensions.etrn,
        _ => return true,
    };
    match clients {
        ForClients::Nobody => false,
        ForClients::Trusted => is_trusted_client(facts, &config.policy),
        ForClients::Everybody => true,
    }
}

/// Reads the priority from the header, where it is not in the envelope and the client is trusted; and writes the priority
/// of the envelope into the header, in place of what is there (RFC 6758 §3).
pub(super) fn carry_priority(
    settings: &Settings,
    is_trusted: bool,
    envelope: &mut Envelope,
    content: &mut ReceivedContent,
) {
    if !settings.extensions.priority_header {
        return;
    }
    let found = priority_fields(content.header());
    let mut priority = envelope.options.as_ref().and_then(|options| options.priority);
    if let [Some(said)] = found[..]
        && priority.is_none()
        && is_trusted
    {
        priority = Some(said);
        envelope.options.get_or_insert_default().priority = Some(said);
    }
    let remove = (!found.is_empty()).then(|| Edit::Remove { name: PRIORITY_FIELD.into(), occurrence: None });
    let value = priority.map(|priority| priority.value().to_string());
    let add = value.and_then(|value| Field::new(PRIORITY_FIELD, &value).ok()).map(Edit::Append);
    content.edit(&remove.into_iter().chain(add).collect());
}

/// The fields with a priority; `None` for one whose value is none.
fn priority_fields(header: &[u8]) -> Vec<Option<Priority>> {
    let lines = header.split(|b| *b == b'\n');
    let value = |line: &[u8]| {
        let (name, value) = line.split_at_checked(PRIORITY_FIELD.len())?;
        let value = value.trim_ascii_start().strip_prefix(b":")?;
        name.eq_ignore_ascii_case(PRIORITY_FIELD.as_bytes()).then(|| parse_priority(value))
    };
    lines.filter_map(value).collect()
}

fn parse_priority(value: &[u8]) -> Option<Priority> {
    std::str::from_utf8(value).ok()?.trim().parse().ok().and_then(Priority::new)
}

impl<I: Intake> Acceptor<I> {
    pub(super) fn answer_query<'a>(
        &'a self,
        context: &'a mut SessionContext,
        query: Query,
    ) -> Answer<'a, Reply> {
        // A transaction that is open keeps its own.
        let (config, facts) = (self.intake.config(), &context.facts);
        let offers = |keyword| offers(&config, facts, keyword);
        match query {
            Query::Verify(_) if !offers(Keyword::Vrfy) => Answer::Ready(replies::CANNOT_VERIFY),
            Query::Expand(_) if !offers(Keyword::Expn) => Answer::Ready(replies::NOT_OFFERED),
            Query::StartQueue(_) if !offers(Keyword::Etrn) => Answer::Ready(replies::NODE_NOT_ALLOWED),
            Query::Verify(user) => Answer::later(verify(config, facts, user)),
            Query::Expand(list) => Answer::later(expand(config, facts, list)),
            Query::StartQueue(node) => Answer::later(self.start_queue(config, node)),
        }
    }

    /// ETRN (RFC 1985): makes what is queued for a domain due now.
    async fn start_queue(&self, config: Arc<AcceptConfig>, node: EtrnNode) -> Reply {
        let routes = &config.routes;
        let path = Mailbox::parse(&format!("postmaster@{}", node.domain), true).map(ForwardPath::Mailbox);
        let own = match path {
            Ok(path) => routes.recipient_by_maps(&path, None).await,
            Err(_) => Ok(routes.domain(&node.domain)),
        };
        let own = match own {
            Ok(own) => own,
            Err(error) => {
                tracing::error!("ETRN for {}: {error}", node.domain);
                return replies::CANNOT_QUEUE;
            }
        };
        // Mail of this machine waits for nobody.
        let is_here = |one: &Destination| matches!(one.next_hop, NextHop::Maildir(_) | NextHop::Discard);
        if is_here(&own) {
            return replies::NODE_NOT_ALLOWED;
        }
        let mut own = vec![own];
        if node.with_subdomains {
            own.extend(routes.below(&node.domain).into_iter().filter(|one| !is_here(one)));
        }
        // What requires TLS has a destination of its own.
        let own: Vec<Destination> =
            own.into_iter().flat_map(|one| [one.clone(), one.requiring_tls()]).collect();
        let subdomains = DomainPattern::Below(node.domain.to_string());
        let is_meant = |destination: &Destination| {
            let is_subdomain =
                |next_hop: &NextHop| matches!(next_hop, NextHop::Mx(domain) if subdomains.matches(domain));
            own.contains(destination) || node.with_subdomains && is_subdomain(&destination.next_hop)
        };
        let is_shared = own.iter().any(|own| routes.is_shared(own, &node.domain));
        let Some(count) = self.intake.start_queue(is_meant).await else { return replies::CANNOT_QUEUE };
        if count == 0 {
            return replies::NOTHING_QUEUED;
        }
        tracing::info!("ETRN: the queue for {} is started", node.domain);
        // The number would be that of other domains, too.
        if node.with_subdomains || is_shared {
            return replies::QUEUING_STARTED;
        }
        let text = format!("Ok, {count} pending messages for {} started", node.domain);
        Reply::new(253, Enhanced(2, 0, 0), text)
    }
}

/// The argument of VRFY or EXPN: `<user@domain>`, `user@domain`, or `user` of this server, and perhaps the parameter of RFC 6531
/// §3.7.4.2, by which the reply may have UTF-8.
struct Asked {
    path: ForwardPath,
    takes_utf8: bool,
}

impl Asked {
    fn parse(text: &str, settings: &Settings) -> Result<Self, Reply> {
        let has_parameter = |(_, parameter): &(&str, &str)| parameter.eq_ignore_ascii_case("SMTPUTF8");
        let split = text.trim().rsplit_once(' ').filter(has_parameter);
        let (text, takes_utf8) = split.map_or((text.trim(), false), |(text, _)| (text.trim_end(), true));
        let text = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text);
        if !takes_utf8 && !text.is_ascii() {
            return Err(replies::NEEDS_SMTPUTF8);
        }
        let here = || format!("{text}@{}", settings.hostname);
        let whole = if text.contains('@') { text.to_owned() } else { here() };
        let path = ForwardPath::parse(&whole, takes_utf8).map_err(|_| replies::BAD_RECIPIENT)?;
        Ok(Self { path, takes_utf8 })
    }

    /// Composes the reply to EXPN or VRFY, a line for each address. Addresses beyond ASCII need SMTPUTF8.
    fn reply(&self, addresses: &[String]) -> Reply {
        if !self.takes_utf8 && !addresses.iter().all(|address| address.is_ascii()) {
            return replies::NEEDS_SMTPUTF8_REPLY;
        }
        let lines: Vec<String> = addresses.iter().map(|address| format!("<{address}>")).collect();
        Reply::new(250, Enhanced(2, 1, 5), lines.join("\n"))
    }
}

/// Looks the address up as RCPT does, and returns who takes its place, if it is an alias.
async fn look_up(
    config: &AcceptConfig,
    facts: &SessionFacts,
    path: &ForwardPath,
) -> Result<Option<Vec<Recipient>>, Reply> {
    let rules = config.rules();
    let mailbox = path.mailbox();
    let key = mailbox.map(|mailbox| mailbox.domain().key()).unwrap_or_default();
    let is_local = match rules.expansion {
        _ if rules.policy.is_local(&key) => true,
        Some(expansion) => expansion.is_local(&key).await.unwrap_or(false),
        None => false,
    };
    if !is_local {
        return Err(replies::CANNOT_VERIFY);
    }
    let (envelope, recipient) = (Envelope::new(ReversePath::Null), Recipient::new(path.clone()));
    let view = View::new(Stage::Rcpt, rules, facts).with_envelope(&envelope);
    let view = View { recipient: Some(&recipient), ..view };
    let mut decisions = Decisions::default();
    let judged = config.pipeline.run_for_address(view, &mut decisions).wait();
    timeout(LOOKUP_TIMEOUT, judged).await.unwrap_or(Err(LOOKUP_FAILED))?;
    Ok(decisions.redirected(0).map(<[Recipient]>::to_vec))
}

async fn verify(config: Arc<AcceptConfig>, facts: &SessionFacts, user: Box<str>) -> Reply {
    let looked = async {
        let asked = Asked::parse(&user, &config.settings)?;
        look_up(&config, facts, &asked.path).await?;
        Ok(asked.reply(&[asked.path.to_string()]))
    };
    looked.await.unwrap_or_else(|refused| refused)
}

async fn expand(config: Arc<AcceptConfig>, facts: &SessionFacts, list: Box<str>) -> Reply {
    let looked = async {
        let asked = Asked::parse(&list, &config.settings)?;
        let members = look_up(&config, facts, &asked.path).await?;
        let members = members.map(|members| members.iter().map(|one| one.path.to_string()).collect());
        Ok(asked.reply(&members.unwrap_or_else(|| vec![asked.path.to_string()])))
    };
    looked.await.unwrap_or_else(|refused| refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(
        settings: &Settings,
        is_trusted: bool,
        given: Option<i8>,
        header: &str,
    ) -> (Option<i8>, String) {
        let mut envelope = Envelope::new(ReversePath::Null);
        if let Some(value) = given {
            envelope.options.get_or_insert_default().priority = Priority::new(value);
        }
        let mut content = ReceivedContent::from_bytes(format!("{header}\r\nbody\r\n"), 0);
        carry_priority(settings, is_trusted, &mut envelope, &mut content);
        let priority = envelope.options.and_then(|options| options.priority).map(Priority::value);
        (priority, String::from_utf8_lossy(content.header()).trim_end().to_owned())
    }

    #[test]
    fn a_priority_passes_through_the_header_of_trusted_clients_only() {
        let settings = config::load_text("[extensions]\npriority_header = true\n").unwrap().settings;
        for (is_trusted, given, header, expected) in [
            (true, None, "mt-priority : -3\r\nTo: a\r\n", (Some(-3), "To: a\r\nMT-Priority: -3")),
            (false, None, "MT-Priority: 3\r\nTo: a\r\n", (None, "To: a")),
            (true, Some(5), "MT-Priority: 3\r\nTo: a\r\n", (Some(5), "To: a\r\nMT-Priority: 5")),
            (true, None, "MT-Priority: 1\r\nMT-Priority: 2\r\nTo: a\r\n", (None, "To: a")),
            (true, None, "MT-Priority: 10\r\nTo: a\r\n", (None, "To: a")),
            (true, None, "To: a\r\n", (None, "To: a")),
        ] {
            let (priority, text) = carried(&settings, is_trusted, given, header);
            assert_eq!((priority, text.as_str()), expected, "{header:?}");
        }
        let (priority, text) = carried(&config::load(None).unwrap(), true, None, "MT-Priority: 3\r\n");
        assert_eq!((priority, text.as_str()), (None, "MT-Priority: 3"), "it is off by default");
    }
}
