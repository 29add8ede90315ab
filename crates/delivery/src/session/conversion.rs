//! Content that the next hop does not take unchanged is converted to 7 bits.

use super::Session;
use crate::{EightBit, WorkSource, active_lease::ActiveLease};
use mail::{
    Enhanced, Outcome, Part, SharedMessage,
    seven_bit::{Plan, Scan, Unconvertible},
};
use std::sync::Arc;

impl<J: WorkSource> Session<'_, J> {
    /// Decides how content is sent that the next hop does not take unchanged: converted by a plan, or unchanged in
    /// spite of that (`None`). An error is the outcome of all recipients.
    ///
    /// A DSN of this server has the null reverse-path: if it were returned, its sender would never get the report. A
    /// DSN is converted in each mode, and sent unchanged if it cannot be converted.
    pub(super) async fn conversion(&self, active: &mut ActiveLease) -> Result<Option<Arc<Plan>>, Outcome> {
        let (is_binary, is_report) = (active.message.content.traits.is_binary, active.message.is_report());
        let mode = if is_report { EightBit::Convert } else { self.settings.eight_bit };
        if !matches!(mode, EightBit::Auto | EightBit::Convert) {
            return Ok(None);
        }
        let plan = match &active.plan {
            Some(plan) => plan.clone(),
            None => active.plan.insert(self.scan(&active.message).await?).clone(),
        };
        let may_be_sent = mode == EightBit::Auto && !is_binary;
        match plan {
            Ok(plan) if plan.is_signed() && may_be_sent => Ok(None),
            Ok(plan) => Ok(Some(plan)),
            Err(_) if may_be_sent || (is_report && !is_binary) => Ok(None),
            Err(why) => {
                let lack = if is_binary { "BINARYMIME" } else { "8BITMIME" };
                let text =
                    format!("the next hop does not offer {lack}, and the message cannot be converted: {why}");
                Err(Outcome::failed(Enhanced(5, 6, 3), text))
            }
        }
    }

    /// Reads the content once, a piece at a time.
    async fn scan(&self, message: &SharedMessage) -> Result<Result<Arc<Plan>, Unconvertible>, Outcome> {
        let mut scan = Scan::default();
        for part in message.content.parts() {
            match part {
                Part::Memory(bytes) => scan.push(bytes),
                Part::Stored { chunk_id, .. } => scan.push(&self.source.chunk(*chunk_id).await?),
            }
        }
        Ok(scan.finish().map(Arc::new))
    }
}
