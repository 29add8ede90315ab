//! The check that asks mail of an unknown origin to come again (RFC 6647). It is the last at RCPT: what is refused for another reason
//! is not remembered.

use super::{
    authentication::{Asker, is_asked, sender_of, spf},
    rules::client_name,
};
use crate::{
    check::{Check, View},
    memory::{CheckMemories, CheckMemory, own},
    sources::GreylistTable,
};
use authn::SpfResult;
use config::{Greylisting, Settings};
use inbound::Answer;
use limits::Greeted;
use mail::{Enhanced, Reply, ReversePath, UnixMillis};
use policy::{ClientName, Source, Stage, Verdict};
use route::dns::Dns;
use std::{sync::Arc, time::Duration};

/// Time for SPF. A client whose look-ups take longer is suspect.
const LOOKUPS_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the table of origins.
pub(crate) struct Greylisted {
    settings: Greylisting,
    table: Arc<GreylistTable>,
    dns: Arc<Dns>,
}

impl Greylisted {
    /// Returns `None` if no mail has to come again.
    pub(crate) fn new(
        settings: &Settings,
        table: Option<&Arc<GreylistTable>>,
        dns: &Arc<Dns>,
    ) -> Option<Self> {
        Some(Self { settings: settings.rules.greylist?, table: table?.clone(), dns: dns.clone() })
    }
}

/// What is known in a transaction.
#[derive(Default)]
struct Memory {
    is_suspect: Option<bool>,
    /// The recipient that was judged last and may have the mail: an alias stands for many, and is judged once.
    passed: Option<String>,
}

impl CheckMemory for Memory {
    fn begin_transaction(&mut self) {
        *self = Self::default();
    }
}

impl Check for Greylisted {
    fn stages(&self) -> Vec<Stage> {
        vec![Stage::Rcpt]
    }

    fn begin(&self, _: &mut CheckMemories) -> Option<Box<dyn CheckMemory>> {
        Some(Box::<Memory>::default())
    }

    fn check<'a>(&'a self, memory: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Answer<'a, Verdict> {
        let Some(memory) = own::<Memory>(memory).filter(|_| is_asked(&view)) else {
            return Answer::Ready(Verdict::Pass);
        };
        // Without findings nobody sends: an address is asked about.
        if view.findings.is_none_or(crate::findings::Findings::is_spared) {
            return Answer::Ready(Verdict::Pass);
        }
        match memory.is_suspect {
            known if self.settings.is_for_all || known == Some(true) => {
                Answer::Ready(self.judge(memory, &view))
            }
            Some(_) => Answer::Ready(Verdict::Pass),
            None => Answer::later(async move {
                let is_suspect = self.is_suspect(&view).await;
                memory.is_suspect = Some(is_suspect);
                if is_suspect { self.judge(memory, &view) } else { Verdict::Pass }
            }),
        }
    }
}

impl Greylisted {
    /// A client that its sender's domain permits, and whose address has a name, would come again: only others wait for it.
    async fn is_suspect(&self, view: &View<'_>) -> bool {
        let (Source::Smtp { peer, .. }, Some(envelope)) = (&view.facts.source, view.envelope) else {
            return false;
        };
        let has_name = matches!(client_name(view).wait().await, ClientName::Verified(_));
        if !has_name {
            view.note("greylist", || "the client is suspect: its address has no verified name".to_owned());
            return true;
        }
        let sender = sender_of(envelope);
        let spf = spf(view, peer.ip(), sender.as_deref(), UnixMillis::now().0 / 1000);
        let mut asker = Asker::new(&self.dns, LOOKUPS_TIMEOUT);
        let found = asker.decide(|answers| spf.evaluate(answers)).await;
        let is_suspect = found.result != SpfResult::Pass;
        view.note("greylist", || {
            let is = if is_suspect { "suspect" } else { "not suspect" };
            format!("the client is {is}: SPF {}", found.result.as_str())
        });
        is_suspect
    }

    fn judge(&self, memory: &mut Memory, view: &View<'_>) -> Verdict {
        let (Source::Smtp { peer, .. }, Some(envelope), Some(recipient)) =
            (&view.facts.source, view.envelope, view.recipient)
        else {
            return Verdict::Pass;
        };
        // The address that the client gave.
        let to = recipient.expansion().map_or_else(|| recipient.path.key(), |found| found.original.key());
        if memory.passed.as_deref() == Some(&to) {
            return Verdict::Pass;
        }
        let from = match &envelope.reverse_path {
            ReversePath::Mailbox(sender) => sender.key(),
            ReversePath::Null => String::new(),
        };
        // A test of the configuration is no mail that came.
        let (now, times) = (UnixMillis::now().0 / 1000, self.settings.times);
        let greeted = match view.observer {
            Some(_) => self.table.list().look(peer.ip(), &from, &to, now, times),
            None => self.table.list().judge(peer.ip(), &from, &to, now, times),
        };
        view.note("greylist", || match greeted {
            Greeted::Known => "the origin is known".to_owned(),
            Greeted::Wait(seconds) => format!("the origin is unknown: it has to come again in {seconds} s"),
            Greeted::Full => "the table is full, and the origin unknown".to_owned(),
        });
        match greeted {
            Greeted::Known | Greeted::Full => {
                memory.passed = Some(to);
                Verdict::Pass
            }
            Greeted::Wait(seconds) => {
                let unit = if seconds == 1 { "second" } else { "seconds" };
                let text = format!("Greylisted: try again in {seconds} {unit} or later");
                Verdict::Defer(Reply::new(451, Enhanced(4, 7, 1), text))
            }
        }
    }
}
