//! `postlab source`: sends mail, with every message of Postfix's smtp-source(1), and measures.
//!
//! [`session`] decides what one session does next, [`client_session`] speaks for it, [`event`] drives many.
//! Read first: [`session::Session::turn`] and [`event::Loop`].

mod args;
mod arrivals;
mod client;
mod counts;
mod event;
mod exchange;
mod line;
mod live;
pub mod pause;
mod plan;
mod report;
mod session;
mod setup;
mod template;
mod tls;
mod transcript;

pub use args::SourceArgs;

use crate::{
    rounds::{Progress, beside},
    usage::cpu_time,
};
pub use counts::Phase;
use counts::SourceCounts;
pub use live::LiveView;
pub use plan::Plan;
pub use report::{Report, Times};
pub(crate) use report::{add_times, times_of};
pub use setup::Setup;
use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
pub(crate) use template::read_bounded;

/// Sends everything, prints the result; true if all went well.
pub fn run(args: &SourceArgs) -> Result<bool, String> {
    let setup = args.setup()?;
    let plan = Arc::new(args.plan());
    crate::signals::on_end({
        let plan = plan.clone();
        move || plan.stop()
    })?;
    let report = watched(args, &setup, &plan)?;
    if args.shows_count() {
        println!();
    }
    report.print(args.format, args.percentiles)?;
    let refusals_only = report.server_failures == 0
        && report.failures.keys().all(|kind| kind.ends_with(|c: char| c.is_ascii_digit()));
    Ok(report.is_good() || (args.refusals_are_fine && refusals_only))
}

/// Measures, and shows how far it is, unless -c does.
fn watched(args: &SourceArgs, setup: &Setup, plan: &Plan) -> Result<Report, String> {
    if args.shows_count() {
        return measure(args, setup, plan);
    }
    let seconds = args.duration.map(|time| time.as_secs());
    let progress = Progress::new("send", seconds.unwrap_or(args.messages));
    let mut view = LiveView::new("send", plan);
    let look = || {
        if let Some(line) = progress.is_visible().then(|| view.look(plan, None, Instant::now())).flatten() {
            progress.running(line);
        }
        progress.at(if seconds.is_some() { plan.begin().elapsed().as_secs() } else { plan.progress().0 });
    };
    beside(LOOK, look, || measure(args, setup, plan))
}

/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(200);

/// One loop a thread, the sessions dealt out among them.
pub fn measure(args: &SourceArgs, setup: &Setup, plan: &Plan) -> Result<Report, String> {
    measure_all(args, setup, plan).map(|(report, _)| report)
}

/// As [`measure`]; returns the histograms, too.
pub(crate) fn measure_all(
    args: &SourceArgs,
    setup: &Setup,
    plan: &Plan,
) -> Result<(Report, SourceCounts), String> {
    let sessions = args.sessions as usize;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores.div_ceil(2), usize::from).min(sessions);
    let share = |i: usize| sessions / threads + usize::from(i < sessions % threads);
    let send = |i: usize| {
        let sent = event::Loop::new(setup, plan, share(i)).and_then(event::Loop::run);
        sent.map_err(|e| {
            plan.stop();
            format!("send mail: {}", io::Error::from(e))
        })
    };
    let cpu = cpu_time();
    let all_counts: Vec<Result<SourceCounts, String>> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|i| scope.spawn(move || send(i))).collect();
        let mine = send(0);
        let theirs = others.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a loop panicked".into())));
        std::iter::once(mine).chain(theirs).collect()
    });
    let elapsed = plan.begin().elapsed();
    let mut all = SourceCounts::default();
    for counts in all_counts {
        all.add(&counts?);
    }
    if let Some(path) = &args.hdr {
        crate::hdr::append(path, all.histograms(), elapsed)?;
    }
    let (done, count) = plan.progress();
    let stopped_early = plan.is_stopped() && done < count;
    let report = Report::new(&all, plan.begin(), elapsed, cpu_time().saturating_sub(cpu), stopped_early);
    Ok((report, all))
}
