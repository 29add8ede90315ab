//! The check of routes that decide when mail is taken: those that hold it, and those that refuse it.

use super::{Check, View};
use config::Target;
use engine::accept::{Stage, Verdict};
use inbound::Answer;

/// Holds or refuses mail for recipients whose route says so.
pub(crate) struct RouteDecides;

impl Check for RouteDecides {
    fn stages(&self) -> Vec<Stage> {
        vec![Stage::Rcpt]
    }

    fn check<'a>(&'a self, view: View<'a>) -> Answer<'a, Verdict> {
        let recipient = view.recipient.filter(|recipient| recipient.target().is_none());
        let sender = view.envelope.map(|envelope| &envelope.reverse_path);
        let path = recipient.map(|recipient| &recipient.path);
        let route = path.and_then(|path| view.rules.routes.explicit(path, sender));
        Answer::Ready(match route.map(|route| &route.target) {
            Some(Target::Reject(text)) => Verdict::Reject(text.reply()),
            Some(Target::Hold) => {
                let path = path.map_or("", |path| path.as_str());
                Verdict::Hold(format!("the route of {path} holds mail").into())
            }
            _ => Verdict::Pass,
        })
    }
}
