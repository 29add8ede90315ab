//! Mail of programs on this machine.

use crate::{
    accept_config::AcceptConfig, acceptor::Acceptor, acceptor::extensions::carry_priority, check::View,
    decisions::Decisions, intake::Intake, pipeline::SessionMemory,
};
use inbound::Draft;
use mail::{BodyType, Part, QueueId, Reply, header::ContentScanner};
use policy::{SessionFacts, Source, Stage, Verdict};
use smtp::server::replies;
use std::sync::Arc;
use submission::Refusal;

impl<I: Intake> Acceptor<I> {
    /// Takes a message of this machine through the pipeline, and makes it durable and queues it.
    ///
    /// # Errors
    /// Why the daemon does not take it, for good or for now.
    pub async fn accept_local(self: &Arc<Self>, uid: u32, mut draft: Draft) -> Result<QueueId, Refusal> {
        let (config, facts) = (self.intake.config(), SessionFacts::new(Source::Local { uid }));
        let (pipeline, rules) = (&config.pipeline, config.rules());
        let (mut memory, mut decisions) = (pipeline.begin(SessionMemory::default()), Decisions::default());
        self.room().map_err(|reply| refusal(&reply))?;
        within_limits(&config.settings.limits, &draft).map_err(|reply| refusal(&reply))?;
        let id = draft.id;
        let Draft { envelope, content, .. } = &mut draft;
        let judged = pipeline.judge(rules, &facts, envelope, content, &mut memory, &mut decisions);
        judged.await.map_err(|reply| refusal(&reply))?;
        carry_priority(&config.settings, true, envelope, content);
        let view = View::new(Stage::Content, rules, &facts).with_envelope(envelope);
        let finished = self.finish_content(&config, view, &mut memory, id, content, &mut decisions).await;
        if let Err(reply) = finished {
            self.forget(content.parts());
            return Err(refusal(&reply));
        }
        self.accept_draft(config, draft, decisions).await
    }

    /// Accepts a message that was refused for good, and holds it: it is about to be returned to its sender. If the daemon ends
    /// before, the message waits with the reason.
    ///
    /// # Errors
    /// Why the daemon does not take it, for good or for now.
    pub async fn hold_refused(self: &Arc<Self>, draft: Draft, why: &str) -> Result<QueueId, Refusal> {
        let config = self.intake.config();
        self.room().map_err(|reply| refusal(&reply))?;
        within_limits(&config.settings.limits, &draft).map_err(|reply| refusal(&reply))?;
        let mut decisions = Decisions::default();
        decisions.note(Stage::Content, Verdict::Hold(why.into()), 0);
        self.accept_draft(config, draft, decisions).await
    }

    /// Makes a draft that was decided on durable, and queues it.
    async fn accept_draft(
        self: &Arc<Self>,
        config: Arc<AcceptConfig>,
        draft: Draft,
        decisions: Decisions,
    ) -> Result<QueueId, Refusal> {
        let Draft { id, arrived, origin, envelope, content } = draft;
        let content = self.in_pieces(&envelope, content).await.map_err(|reply| refusal(&reply))?;
        let finished = decisions.finish(id, arrived, origin, envelope, content);
        let reply = self.accept_in_task(config, finished).await;
        if reply.is_positive() { Ok(id) } else { Err(refusal(&reply)) }
    }
}

/// Checks a message of this machine against the limits that hold for clients, too: a loop through a program must end.
/// Number of recipients and size have limits of their own, which [`submission`] checks.
fn within_limits(limits: &smtp::Limits, draft: &Draft) -> Result<(), Reply> {
    let mut header = ContentScanner::default();
    header.scan(draft.content.header());
    limits.check_header(&header)?;
    let has_nul = |part: &Part| matches!(part, Part::Memory(bytes) if bytes.contains(&0));
    if draft.envelope.body != BodyType::Binary && draft.content.parts().iter().any(has_nul) {
        return Err(replies::NUL_IN_CONTENT);
    }
    Ok(())
}

fn refusal(reply: &Reply) -> Refusal {
    let text = reply.to_string();
    if reply.is_transient() { Refusal::temporary(text) } else { Refusal::permanent(text) }
}
