//! The content of a draft, from the verdicts of the checks to its storage: changed, shown to filters, and sealed.

use crate::{
    accept_config::AcceptConfig,
    acceptor::{Acceptor, BEHIND},
    check::View,
    checks::filters::ShownContent,
    decisions::Decisions,
    intake::Intake,
    pipeline::SessionMemory,
};
use bytes::Bytes;
use mail::{ChunkId, QueueId, ReceivedContent, Reply};
use policy::Stage;
use spool::SpoolFailure;
use tokio::time::Instant;

impl<I: Intake> Acceptor<I> {
    /// Makes the changes that checks decided on, shows the content to the filters, and seals it. What is replaced in the spool is given
    /// back.
    ///
    /// # Errors
    /// The reply that refuses the message. The caller gives back what is left of its content.
    pub(super) async fn finish_content(
        &self,
        config: &AcceptConfig,
        view: View<'_>,
        memory: &mut SessionMemory,
        id: QueueId,
        content: &mut ReceivedContent,
        decisions: &mut Decisions,
    ) -> Result<(), Reply> {
        let replaced = decisions.change(content);
        let load = |chunk_id| Box::pin(self.load_arriving(chunk_id)) as _;
        let mut shown = ShownContent { id, content, replaced, load: &load };
        let filtered = config.pipeline.filter(view, memory, &mut shown, decisions).await;
        let ShownContent { content, replaced, .. } = shown;
        self.forget(&replaced);
        filtered?;
        if config.pipeline.has(Stage::Seal) {
            config.pipeline.seal(view, memory, content, decisions).await?;
        }
        // Behind the seal: a signature covers what is in memory, or what arrived.
        if let (false, Some(envelope)) = (replaced.is_empty(), view.envelope) {
            *content = self.in_pieces(envelope, content.clone()).await?;
        }
        Ok(())
    }

    /// A piece of content that was handed to the spool a moment ago, and may have yet to be written.
    pub(super) async fn load_arriving(&self, chunk_id: ChunkId) -> Result<Bytes, String> {
        let until = Instant::now() + self.commit_timeout();
        loop {
            match self.intake.load(chunk_id).await {
                Err(SpoolFailure::Missing) if Instant::now() < until => tokio::time::sleep(BEHIND).await,
                loaded => return loaded.map_err(|failure| failure.to_string()),
            }
        }
    }
}
