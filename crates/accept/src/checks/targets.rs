//! The checks of routes when mail is taken: those that hold it, those that refuse it, and those that maps decide on.

use crate::{
    check::{Check, LOOKUP_FAILED, REPORT_RETRIES, View},
    mailboxes::Refused,
    memory::CheckMemory,
};
use config::{Route, Target};
use inbound::Answer;
use mail::{Recipient, ReversePath};
use maps::LookupError;
use policy::{Source, Stage, Verdict};
use tokio::time::sleep;

/// Holds or refuses mail for recipients whose route says so.
pub(crate) struct RouteDecides;

impl Check for RouteDecides {
    fn stages(&self) -> Vec<Stage> {
        vec![Stage::Rcpt]
    }

    fn judges_addresses(&self) -> bool {
        true
    }

    fn check<'a>(&'a self, _: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Answer<'a, Verdict> {
        let Some(recipient) = view.recipient.filter(|recipient| recipient.target().is_none()) else {
            return Answer::Ready(Verdict::Pass);
        };
        let (routes, path) = (view.rules.routes, &recipient.path);
        if !routes.ask_maps() {
            return Answer::Ready(verdict(routes.explicit(path, sender(&view)), recipient, &view));
        }
        Answer::later(async move {
            match routes.explicit_by_maps(path, sender(&view), |_| true).await {
                Ok(chosen) => verdict(chosen.map(|chosen| chosen.route), recipient, &view),
                Err(error) => failed(&view, recipient, &error),
            }
        })
    }
}

/// One target of several and mail of a program on this machine are returned by the queue: the other recipients get the message.
fn verdict(route: Option<&Route>, recipient: &Recipient, view: &View<'_>) -> Verdict {
    let is_queued = view.replacement_count > 1 || matches!(view.facts.source, Source::Local { .. });
    match route.map(|route| &route.target) {
        Some(Target::Reject(_)) if is_queued => Verdict::Pass,
        Some(Target::Reject(text)) => Verdict::Reject(text.reply()),
        Some(Target::Hold) => {
            Verdict::Hold(format!("the route of {} holds mail", recipient.path.as_str()).into())
        }
        _ => Verdict::Pass,
    }
}

/// Stores the route of a recipient with it where maps decide on the route: delivery does not wait for maps, nor for those
/// that fail.
pub(crate) struct MapsChooseRoute;

impl Check for MapsChooseRoute {
    fn stages(&self) -> Vec<Stage> {
        vec![Stage::Rcpt]
    }

    fn judges_addresses(&self) -> bool {
        true
    }

    fn check<'a>(&'a self, _: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Answer<'a, Verdict> {
        let Some(recipient) = view.recipient else { return Answer::Ready(Verdict::Pass) };
        Answer::later(async move {
            let mut chosen = recipient.clone();
            if let Err(refused) = choose(&view, &mut chosen).await {
                return refused;
            }
            // With maps of addresses, the expansion has asked.
            if matches!(view.facts.source, Source::Smtp { .. }) && view.rules.expansion.is_none() {
                match view.mailboxes().check(&chosen.path, chosen.target()).wait().await {
                    Ok(()) => {}
                    Err(Refused::Address(reply)) => return Verdict::Reject(reply),
                    Err(Refused::Unknown(error)) => return failed(&view, &chosen, &error),
                }
            }
            if chosen == *recipient { Verdict::Pass } else { Verdict::Redirect(vec![chosen]) }
        })
    }
}

/// Stores the route of a recipient with it, if maps decide on the route.
///
/// # Errors
/// The verdict, if a map does not answer.
pub(super) async fn choose(view: &View<'_>, recipient: &mut Recipient) -> Result<(), Verdict> {
    let routes = view.rules.routes;
    if recipient.target().is_some() || !routes.ask_maps() {
        return Ok(());
    }
    let intervals = if view.facts.can_be_refused() { &[] } else { &REPORT_RETRIES[..] };
    let mut intervals = intervals.iter();
    let name = loop {
        match (routes.stored_name(&recipient.path, sender(view)).await, intervals.next()) {
            (Ok(name), _) => break name,
            (Err(_), Some(interval)) => sleep(*interval).await,
            (Err(error), None) => return Err(failed(view, recipient, &error)),
        }
    };
    if let Some(name) = name {
        recipient.set_route(&name);
    }
    Ok(())
}

/// As [`choose`], for several recipients.
pub(super) async fn choose_all(
    view: &View<'_>,
    mut recipients: Vec<Recipient>,
) -> Result<Vec<Recipient>, Verdict> {
    for recipient in &mut recipients {
        choose(view, recipient).await?;
    }
    Ok(recipients)
}

fn sender<'a>(view: &View<'a>) -> Option<&'a ReversePath> {
    view.envelope.map(|envelope| &envelope.reverse_path)
}

pub(super) fn failed(view: &View<'_>, recipient: &Recipient, error: &LookupError) -> Verdict {
    view.failed("route", &format_args!("find where mail for {} goes: {error}", recipient.path));
    Verdict::Defer(LOOKUP_FAILED)
}
