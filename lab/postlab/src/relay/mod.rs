//! `postlab relay`: how fast mail servers accept and deliver, and what limits them.
//!
//! [`measure`] does one run, [`observe`] watches the server meanwhile; [`case`] joins the runs, and [`bottleneck`] and
//! [`knee`] judge them. Read first: [`run`] and [`bottleneck::Evidence`].

mod bottleneck;
mod case;
mod delays;
mod explain;
mod knee;
mod measure;
mod observe;
mod owner;
mod require;
mod running;
mod table;
mod target;

use crate::{
    Failure,
    arguments::{arguments, seconds_of},
    rounds::Progress,
    run::{
        append, begin,
        machine::Machine,
        make_directory,
        scenario::{Experiment, Load, Mta as MtaTable, Scenario, SinkTable, Variant},
    },
    sink::served::Served,
    table::{Form, Format},
};
use case::{Known, servers};
use clap::Args;
use explain::{Mta, Recognized, Redirection};
use measure::{Bench, Case, RelayRun};
use require::{Checked, Requirement};
use std::{
    fs::{self, File},
    io::IsTerminal as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use table::Results;
pub(crate) use table::sessions_text;
use target::{About, Target};
pub(crate) use target::{OWNER, Started};

/// Measure how fast mail servers accept and deliver, and find what limits them
///
/// A server is HOST:PORT, or the name of a peer that a script starts: postfix, exim, opensmtpd, sendmail, stalwart or postrider,
/// followed by :stock (the default) or :tuned. NAME:unsynced is NAME:tuned without waiting for the disk; compared with
/// NAME:tuned, it shows what durability costs. postrider:queue-dirs keeps its mail in queue directories. For HOST:PORT, the
/// command first explains how to route mail for the test domain to the sink. In each round, all servers are measured in turn,
/// with each number of sessions.
///
/// The exit code is 1 if messages failed or stayed in a queue, a requirement was missed, or the measurement was cut short.
#[derive(Debug, Args)]
pub(crate) struct RelayArgs {
    /// The servers: HOST:PORT, or NAME[:stock|:tuned]
    #[arg(value_name = "SERVER", required_unless_present = "explain")]
    servers: Vec<String>,
    /// Print what to put into the configuration of this server, and measure nothing
    #[arg(long, value_name = "NAME", conflicts_with = "servers")]
    explain: Option<Mta>,
    /// Print the difference between the stock and the tuned configuration of the peers, and measure nothing
    #[arg(long)]
    diff: bool,
    /// Numbers of sessions
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', default_value = "1,10,50,100",
        value_parser = clap::value_parser!(u32).range(1..=20_000))]
    sessions: Vec<u32>,
    /// Send all messages of a session over one connection
    #[arg(short = 'd', long)]
    keep: bool,
    /// The number of rounds; figures are the median, the smallest and the largest
    #[arg(long, value_name = "COUNT", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How long each run sends; the same for all servers
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = duration_of)]
    duration: Duration,
    /// Time limit for the queue to drain into the sink
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds_of)]
    drain: Duration,
    /// Time limit for the test message to arrive at the sink
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds_of)]
    wait: Duration,
    /// Octets of payload
    #[arg(short = 'l', long, value_name = "BYTES", default_value = "1024", value_parser = clap::value_parser!(u64).range(..=1 << 30))]
    length: u64,
    /// The domain of the recipient
    #[arg(long, value_name = "NAME", default_value = "postlab.test", value_parser = domain_of)]
    domain: String,
    /// The address of the sink [default: 127.0.0.1:2600 for HOST:PORT, a free port for peers]
    #[arg(long, value_name = "HOST:PORT")]
    sink: Option<String>,
    /// Further options for `postlab sink`, as in '-W .:0.1' for a slow next hop
    #[arg(
        long,
        value_name = "OPTIONS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    sink_options: String,
    /// Further options for `postlab source`, as in '--rate 100 --arrivals poisson' for an open loop; a --duration given
    /// here is that of each run
    #[arg(
        long,
        value_name = "OPTIONS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    source_options: String,
    /// The queue directory of HOST:PORT, for the figures of its disk [default: as on Debian]
    #[arg(long, value_name = "DIRECTORY")]
    queue: Option<PathBuf>,
    /// The log of HOST:PORT, for Postfix's delays [default: /var/log/mail.log]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The scripts of the peers [default: $POSTLAB_PEERS, or lab/peers]
    #[arg(long, value_name = "DIRECTORY")]
    peers: Option<PathBuf>,
    /// A figure that each case must reach, as in 'p99<50ms' or 'drained@50>1000/s'; may be repeated
    #[arg(long, value_name = "FIGURE<LIMIT", value_parser = Requirement::parse)]
    require: Vec<Requirement>,
    /// Write the requirements with their results to this file, as JUnit XML
    #[arg(long, value_name = "FILE", requires = "require")]
    junit: Option<PathBuf>,
    /// The directory of the results; a new directory is created in it
    #[arg(long, value_name = "DIRECTORY", default_value = "results")]
    results: PathBuf,
    #[command(flatten)]
    format: Format,
}

/// The sink's address where the administrator has to write it down.
const KNOWN_SINK: &str = "127.0.0.1:2600";
/// Besides the sending, for the estimate: start, warm-up, stop.
const AROUND_SECONDS: f64 = 5.0;

fn duration_of(text: &str) -> Result<Duration, String> {
    match seconds_of(text) {
        Ok(time) if time >= Duration::from_millis(100) => Ok(time),
        Ok(_) => Err(format!("`{text}` is too short: write 0.1 or more")),
        Err(error) => Err(error),
    }
}

fn domain_of(text: &str) -> Result<String, String> {
    let is_good = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
    if is_good {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not a domain: write one as postlab.test"))
    }
}

/// Measures, and prints the result; true if all is as required.
pub(crate) fn run(args: &RelayArgs) -> Result<bool, Failure> {
    if let Some(mta) = args.explain {
        print!("{}", mta.settings(args.redirection(args.sink.as_deref().unwrap_or(KNOWN_SINK))));
        return Ok(true);
    }
    let targets = args.targets().map_err(Failure::Usage)?;
    let differences = differences(&targets)?;
    if args.diff {
        for (peer, difference) in &differences {
            println!("{peer}:\n{difference}");
        }
        return Ok(true);
    }
    args.check_paths()?;
    let scenario = args.scenario(&targets).map_err(Failure::Usage)?;
    let are_measured = args.require.iter().try_for_each(|requirement| requirement.is_of(&args.sessions));
    are_measured.map_err(Failure::Usage)?;
    let abouts: Vec<About> = targets.iter().map(Target::about).collect::<Result<_, _>>()?;
    let stop = Arc::new(AtomicBool::new(false));
    crate::signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    let sink = Served::start(&scenario.sink(&Variant::default())?)?;
    let measured = measure_all(args, &scenario, &targets, &abouts, &sink, &stop);
    sink.stop()?;
    let labels: Vec<String> = targets.iter().map(Target::label).collect();
    if let (Err(_), Some(path)) = (&measured, &args.junit) {
        // Who reads the file must not take an old one for the result.
        write(path, &require::junit(&args.check(&[], &labels)))?;
    }
    let (directory, machine, measured) = measured?;
    let servers = servers(&measured.runs, &labels, &measured.known);
    let checked = args.check(&servers, &labels);
    let results = Results {
        machine: &machine,
        runs: &measured.runs,
        servers,
        next_hop_ms: measured.known.next_hop_ms,
        checked,
        differences,
    };
    args.print(&results, &directory)?;
    let is_complete = |run: &RelayRun| run.run.complete && run.run.source.messages_failed == 0;
    let is_good = measured.runs.iter().all(is_complete) && results.checked.iter().all(|check| check.is_met);
    Ok(is_good && !measured.has_errors && !stop.load(Relaxed))
}

/// The difference between stock and tuned of each peer, once.
fn differences(targets: &[Target]) -> Result<Vec<(String, String)>, Failure> {
    let mut found: Vec<(String, String)> = Vec::new();
    for target in targets {
        if let Some(difference) = target.difference()?
            && !found.contains(&difference)
        {
            found.push(difference);
        }
    }
    Ok(found)
}

/// All runs, with what was found out about the servers.
#[derive(Debug, Default)]
struct Measured {
    runs: Vec<RelayRun>,
    known: Known,
    /// A server could not be started or reached in a run.
    has_errors: bool,
}

fn measure_all(
    args: &RelayArgs,
    scenario: &Scenario,
    targets: &[Target],
    abouts: &[About],
    sink: &Served,
    stop: &AtomicBool,
) -> Result<(PathBuf, Machine, Measured), String> {
    let (mut measured, mut abouts) = (Measured::default(), abouts.to_vec());
    for (target, about) in targets.iter().zip(&mut abouts) {
        if let Target::Address(endpoint) = target {
            let server = lead_to_sink(args, scenario, endpoint, sink)?;
            measured.known.mtas.extend(server.mta.map(|mta| (target.label(), mta)));
            *about = running::about(endpoint);
            if about.version.is_empty() {
                about.version = server.version;
            }
        } else if let Some(mta) = peer_kind(target) {
            measured.known.mtas.insert(target.label(), mta);
        }
    }
    let directory = make_directory(&args.results, &scenario.title)?;
    let text = toml::to_string(scenario).map_err(|e| format!("write TOML: {e}"))?;
    write(&directory.join("scenario.toml"), &text)?;
    let mut machine = Machine::here(&directory);
    // Those that are installed are not those that are measured.
    machine.versions = targets.iter().zip(&abouts).map(|(t, about)| (t.label(), about.text())).collect();
    let file = begin(&directory, &machine)?;
    let runs = args.rounds as usize * args.sessions.len() * (targets.len() + 1);
    let progress = Progress::new("relay", runs as u64);
    let source = scenario.source(&Variant::default(), 1, measure::MESSAGES, "127.0.0.1:25")?;
    measured.known.is_paced = source.is_paced();
    // A duration among the options of the source is that of each run.
    let (duration, drain) = (source.duration.unwrap_or(args.duration), args.drain);
    let bench = Bench {
        scenario,
        keeps_connections: args.keep,
        duration,
        drain,
        stop,
        // All that has been sent yet are test messages, which have arrived.
        expected: AtomicU64::new(sink.sink_state.counts().messages),
        progress: &progress,
    };
    measured.known.next_hop_ms = bench.next_hop_ms(&sink.address)?;
    let about = targets.iter().zip(&abouts).collect::<Vec<_>>();
    rounds(args, &bench, &about, sink, &Output { file: &file, directory: &directory }, &mut measured)?;
    Ok((directory, machine, measured))
}

/// Where the runs are written while they are measured.
struct Output<'a> {
    file: &'a File,
    directory: &'a Path,
}

/// Returns which known server the peer is: the rules know the habits of some.
fn peer_kind(target: &Target) -> Option<Mta> {
    let Target::Peer { name, .. } = target else { return None };
    [("postfix", Mta::Postfix), ("exim", Mta::Exim), ("opensmtpd", Mta::Opensmtpd)]
        .into_iter()
        .find(|(known, _)| known == name)
        .map(|(_, mta)| mta)
}

/// Says how to lead the test domain to the sink, and checks with a message that it is so.
fn lead_to_sink(
    args: &RelayArgs,
    scenario: &Scenario,
    endpoint: &str,
    sink: &Served,
) -> Result<Recognized, String> {
    let redirection = args.redirection(&sink.address);
    let server = explain::recognize(endpoint);
    if let Some(server) = &server {
        eprintln!(
            "{endpoint} is {}. All mail for {} must lead to the sink on {}.",
            server.name(),
            redirection.domain,
            redirection.sink
        );
    }
    let server = server.unwrap_or_default();
    let mta = server.mta;
    match measure::probe(scenario, endpoint, &sink.sink_state, args.wait) {
        Ok(()) => {
            eprintln!("A test message for {} arrived at the sink.", redirection.domain);
            Ok(server)
        }
        Err(lost) => Err(lost.advice(mta, endpoint, redirection)),
    }
}

fn rounds(
    args: &RelayArgs,
    bench: &Bench<'_>,
    targets: &[(&Target, &About)],
    sink: &Served,
    output: &Output<'_>,
    measured: &mut Measured,
) -> Result<(), String> {
    let cases = args.rounds as usize * args.sessions.len();
    let seconds = cases as f64
        * (bench.duration.as_secs_f64() * (targets.len() + 1) as f64 + AROUND_SECONDS * targets.len() as f64);
    eprintln!(
        "{} runs, about {:.0} min; Ctrl-C keeps what was measured",
        cases * (targets.len() + 1),
        (seconds / 60.0).ceil()
    );
    let mut turn = 0;
    for round in 1..=args.rounds {
        for sessions in &args.sessions {
            let about = About::default();
            if crate::run::has_room(*sessions, round) {
                let run = bench.ceiling(&Case { label: "", about: &about, round, sessions: *sessions });
                keep(run, "ceiling", bench, output, measured)?;
            }
            // The order rotates: nobody is always behind the same other.
            for i in 0..targets.len() {
                if bench.stop.load(Relaxed) {
                    return Ok(());
                }
                let (target, about) = targets[(i + turn) % targets.len()];
                let label = target.label();
                let case = Case { label: &label, about, round, sessions: *sessions };
                let run = relay(args, bench, target, &case, sink, output, &measured.known);
                keep(run, &label, bench, output, measured)?;
            }
            turn += 1;
        }
    }
    Ok(())
}

/// Keeps a run at once; one that failed is reported and ends nothing else.
fn keep(
    run: Result<RelayRun, String>,
    label: &str,
    bench: &Bench<'_>,
    output: &Output<'_>,
    measured: &mut Measured,
) -> Result<(), String> {
    // What was cut short is not a measurement.
    if bench.stop.load(Relaxed) {
        return Ok(());
    }
    match run {
        Ok(run) => {
            let sessions = sessions_text(run.run.sessions);
            let (accepted, drained) = (run.run.source.rate, run.run.drained_rate);
            bench.progress.beside(|| {
                eprintln!(
                    "round {}, {sessions}, {label}: accepted {accepted:.0}/s, drained {drained:.0}/s",
                    run.run.round
                );
            });
            append(output.file, &run)?;
            measured.runs.push(run);
        }
        Err(error) => {
            bench.progress.beside(|| eprintln!("postlab: {label}: {error}"));
            measured.has_errors = true;
        }
    }
    bench.progress.step();
    Ok(())
}

fn relay(
    args: &RelayArgs,
    bench: &Bench<'_>,
    target: &Target,
    case: &Case<'_>,
    sink: &Served,
    output: &Output<'_>,
    known: &Known,
) -> Result<RelayRun, String> {
    let started = match target {
        Target::Peer { script, profile, .. } => {
            let port = sink.address.rsplit(':').next().unwrap_or_default();
            Started::peer(script, profile, port, &output.directory.join("peers.log"))?
        }
        Target::Address(endpoint) => {
            let mta = known.mtas.get(case.label).copied();
            let place = |given: &Option<PathBuf>, usual: Option<&str>| {
                given.clone().or_else(|| usual.map(PathBuf::from).filter(|path| path.exists()))
            };
            let (queue, log) =
                (place(&args.queue, mta.map(Mta::queue)), place(&args.log, mta.map(Mta::log_file)));
            Started::running(endpoint, queue, log)
        }
    };
    bench.relay(case, &started, &sink.sink_state)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("write {}: {e}", path.display()))
}

impl RelayArgs {
    /// Checks paths before anything is measured, rather than after minutes.
    fn check_paths(&self) -> Result<(), Failure> {
        let given = [("--queue", &self.queue), ("--log", &self.log)];
        let given = given.into_iter().filter_map(|(option, path)| Some((option, path.as_ref()?)));
        for (option, path) in given {
            fs::metadata(path).map_err(|e| Failure::Usage(format!("{option} {}: {e}", path.display())))?;
        }
        if let Some(path) = &self.junit {
            let file = fs::OpenOptions::new().append(true).create(true).open(path);
            file.map_err(|e| Failure::Usage(format!("write {}: {e}", path.display())))?;
        }
        Ok(())
    }

    fn redirection<'a>(&'a self, sink: &'a str) -> Redirection<'a> {
        Redirection { domain: &self.domain, sink }
    }

    fn targets(&self) -> Result<Vec<Target>, String> {
        let named = self.peers.clone().or_else(|| std::env::var_os("POSTLAB_PEERS").map(PathBuf::from));
        let peers = named.unwrap_or_else(|| "lab/peers".into());
        // A script is run from any directory.
        let peers = fs::canonicalize(&peers).unwrap_or(peers);
        let targets: Vec<Target> =
            self.servers.iter().map(|text| Target::parse(text, &peers)).collect::<Result<_, _>>()?;
        match targets.iter().enumerate().find(|(i, target)| targets[..*i].contains(target)) {
            Some((_, target)) => Err(format!("{} is named twice", target.label())),
            None => Ok(targets),
        }
    }

    /// The experiment as a scenario, which `compare` and `report` read.
    fn scenario(&self, targets: &[Target]) -> Result<Scenario, String> {
        let variant = |target: &Target| Variant { name: target.label(), ..Variant::default() };
        let address = targets.iter().find_map(|target| match target {
            Target::Address(address) => Some(address.clone()),
            Target::Peer { .. } => None,
        });
        let free = if address.is_some() { KNOWN_SINK } else { "127.0.0.1:0" };
        let keep = if self.keep { "-d " } else { "" };
        let scenario = Scenario {
            show_seconds: false,
            overhead: None,
            raw_tcp: false,
            title: "relay".into(),
            hypothesis: String::new(),
            experiment: Experiment::Relay,
            repeats: self.rounds,
            load: Load {
                messages: measure::MESSAGES,
                sessions: self.sessions.clone(),
                options: format!(
                    "{keep}-l {} -f sender@{domain} -t recipient@{domain} {}",
                    self.length,
                    self.source_options,
                    domain = self.domain
                ),
                ceiling_messages: None,
                warm_up: 0,
            },
            sink: SinkTable {
                listen: self.sink.clone().unwrap_or_else(|| free.into()),
                options: self.sink_options.clone(),
            },
            mta: Some(MtaTable {
                unsynced_env: Default::default(),
                name: targets.iter().map(Target::label).collect::<Vec<_>>().join(" "),
                endpoint: address.unwrap_or_else(|| "127.0.0.1:25".into()),
                start: None,
                stop: None,
                describe: None,
                cgroup: None,
                durability: String::new(),
                queue: self.queue.clone(),
                idle_timeout_seconds: 0,
            }),
            prediction: String::new(),
            variant: targets.iter().map(variant).collect(),
        };
        scenario
            .source(&Variant::default(), 1, 1, "127.0.0.1:25")
            .map_err(|e| format!("--source-options: {e}"))?;
        arguments::<crate::sink::SinkArgs>(&[&self.sink_options, &scenario.sink.listen])
            .map_err(|e| format!("--sink or --sink-options: {e}"))?;
        Ok(scenario)
    }

    /// Checks the requirements. Of a server that could not be measured they are missed.
    fn check(&self, servers: &[case::Server<'_>], labels: &[String]) -> Vec<Checked> {
        let cases = || servers.iter().flat_map(|server| &server.cases);
        let is_measured =
            |label: &str, sessions| cases().any(|case| case.label == label && case.sessions == sessions);
        let missing: Vec<(&str, u32)> = labels
            .iter()
            .flat_map(|label| self.sessions.iter().map(move |sessions| (label.as_str(), *sessions)))
            .filter(|(label, sessions)| !is_measured(label, *sessions))
            .collect();
        let all = |requirement: &Requirement| -> Vec<Checked> {
            let measured = cases().filter_map(|case| requirement.check(case));
            let unmeasured =
                missing.iter().filter_map(|(label, sessions)| requirement.unmeasured(label, *sessions));
            measured.chain(unmeasured).collect()
        };
        self.require.iter().flat_map(all).collect()
    }

    /// Writes the files, and prints what was asked for.
    fn print(&self, results: &Results<'_>, directory: &Path) -> Result<(), String> {
        let json = serde_json::to_string_pretty(&results.json()).map_err(|e| format!("write JSON: {e}"))?;
        write(&directory.join("relay.json"), &json)?;
        write(&directory.join("relay.csv"), &results.csv())?;
        write(&directory.join("relay.md"), &results.markdown())?;
        if let Some(path) = &self.junit {
            write(path, &require::junit(&results.checked))?;
        }
        match self.format.form() {
            Form::Json => println!("{json}"),
            Form::Csv => print!("{}", results.csv()),
            Form::Markdown => print!("{}", results.markdown()),
            Form::Text => print!("{}", results.text()),
        }
        if std::io::stdout().is_terminal() {
            println!();
        }
        eprintln!("{}", directory.display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{detect, runner::Run};

    /// Returns a run of a server with this accepted rate.
    pub(super) fn run(label: &str, sessions: u32, rate: f64) -> RelayRun {
        let run = detect::tests::run("relay", 1, rate, 1.0, 1.0);
        RelayRun {
            run: Run { variant: label.to_owned(), sessions, ..run },
            about: About::default(),
            keeps_connections: false,
            observed: observe::Observed::default(),
            delays: None,
            earlier: 0,
        }
    }
}
