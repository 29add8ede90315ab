//! Delivery without the scheduler's decisions, for the laboratory: what do they cost?
//!
//! With `POSTRIDER_UNSCHEDULED` in the environment of a build with `--features lab`, mail is delivered in the order of its
//! arrival, by as many connections as `delivery.max_connections` permits, each opened at once. Bypassed are the order of
//! messages, the limits of destinations and groups, the slow start, the backlog of a connection, and the quantum after which
//! a connection makes room. What stays is the bookkeeping without which nothing can be delivered: jobs and leases, retry
//! times, the suspension of destinations that fail, and the limit of all connections together.

/// The variable that a build for the laboratory obeys.
const VARIABLE: &str = "POSTRIDER_UNSCHEDULED";

/// Is the scheduler to be bypassed? Never in a normal build.
pub(super) fn is_wanted() -> bool {
    cfg!(feature = "lab") && std::env::var_os(VARIABLE).is_some()
}

/// Warns at a start without the scheduler.
///
/// # Errors
/// A normal build, which has no such mode: a measurement would be wrong.
pub(super) fn check_start() -> Result<(), String> {
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(());
    }
    if !cfg!(feature = "lab") {
        return Err(format!("{VARIABLE} is set, and this build has a scheduler: build with --features lab"));
    }
    tracing::warn!("{VARIABLE} is set: mail is delivered without order and limits, for the laboratory only");
    Ok(())
}

/// Returns settings that decide nothing.
pub(super) fn without(scheduled: &queue::QueueSettings) -> queue::QueueSettings {
    let free = |group: queue::Group| queue::Group {
        order: queue::SortOrder::None,
        priority: 0,
        connections_max: u32::MAX,
        initial_concurrency: scheduled.connections_max,
        concurrency_limit: scheduled.connections_max,
        ..group
    };
    queue::QueueSettings {
        groups: scheduled.groups.iter().cloned().map(free).collect(),
        quantum_bytes: u64::MAX,
        backlog_per_connection: 0,
        max_head_wait: std::time::Duration::ZERO,
        ..scheduled.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_order_and_no_limit_but_that_of_all_connections_is_left() {
        let scheduled = queue::QueueSettings { connections_max: 77, ..queue::QueueSettings::default() };
        let free = without(&scheduled);
        let group = &free.groups[0];
        assert_eq!(
            (group.order, group.concurrency_limit, free.connections_max),
            (queue::SortOrder::None, 77, 77)
        );
        assert_eq!(group.retry_min, scheduled.groups[0].retry_min, "retries are no scheduling");
    }
}
