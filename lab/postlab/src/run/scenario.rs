//! A scenario: a short TOML file that says what is tried, and what it should show.

use load::{sink::SinkArgs, source::SourceArgs};
use measure::arguments::arguments;

use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// A scenario, as its file has it.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// Names the result.
    pub(crate) title: String,
    /// What was believed before it was measured.
    #[serde(default)]
    pub(crate) hypothesis: String,
    pub(crate) experiment: Experiment,
    /// Rounds; each walks through all cases, so that noise meets them all.
    #[serde(default = "three")]
    pub(crate) repeats: u32,
    pub(crate) load: Load,
    /// Show the time of a run beside its rate.
    #[serde(default)]
    pub(crate) show_seconds: bool,
    /// Measure a bare TCP connection in each round, and show the sink's megabytes a second as a share of it.
    #[serde(default)]
    pub(crate) raw_tcp: bool,
    /// Two variants whose difference is the cost of something.
    pub(crate) overhead: Option<Overhead>,
    #[serde(default)]
    pub(crate) sink: SinkTable,
    /// The MTA that the mail goes through; `relay` needs it.
    pub(crate) mta: Option<Mta>,
    /// The expected results, in figures; the results stand beside them.
    #[serde(default)]
    pub(crate) prediction: String,
    /// The variants; each is run with each number of sessions. None: one that varies nothing.
    #[serde(default)]
    pub(crate) variant: Vec<Variant>,
}

/// The cost of something: a variant that has it, beside one that has not.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Overhead {
    /// What costs something.
    pub(crate) of: String,
    /// The variant with it.
    pub(crate) with: String,
    /// The variant without it.
    pub(crate) without: String,
}

/// One of the ways that are compared.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    pub(crate) name: String,
    /// More options for the source and for the sink.
    #[serde(default)]
    pub(crate) options: String,
    #[serde(default)]
    pub(crate) sink_options: String,
    /// Messages of a run, in place of those of the load: for variants of very different rates.
    pub(crate) messages: Option<u64>,
    /// Connections that are open and silent while the mail goes through.
    #[serde(default)]
    pub(crate) idle: u32,
    /// Variables for the commands below.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Run by the shell before the MTA starts and behind its end.
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
    /// The events that an accepted message survives; the text stands beside each figure.
    #[serde(default)]
    pub(crate) durability: String,
    /// Set when the variant may lose accepted mail: each of its rows is stamped.
    #[serde(default, rename = "unsafe")]
    pub(crate) is_unsafe: bool,
}

/// The name of the run's directory in a scenario.
const WORK: &str = "$LAB_WORK";

/// Whether the mail goes through an MTA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Experiment {
    /// Source straight into sink.
    Ceiling,
    /// Source into an MTA, and the MTA into the sink; the ceiling is measured beside it.
    Relay,
}

/// What mail the source sends.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    pub(crate) messages: u64,
    /// Each number of sessions is a case.
    pub(crate) sessions: Vec<u32>,
    /// More options of `postlab source`.
    #[serde(default)]
    pub(crate) options: String,
    /// For the ceiling, which is so much faster that fewer would be over before anything is measured
    /// [default: ten times `messages` beside a relay, else as many].
    pub(crate) ceiling_messages: Option<u64>,
    /// Messages before each measured run of a relay.
    #[serde(default)]
    pub(crate) warm_up: u64,
}

/// Where the mail arrives.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SinkTable {
    #[serde(default = "any_port")]
    pub(crate) listen: String,
    /// More options of `postlab sink`.
    #[serde(default)]
    pub(crate) options: String,
}

/// The MTA that is measured, and how it is run.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mta {
    pub(crate) name: String,
    pub(crate) endpoint: String,
    /// Run by the shell before each run; `$SINK_PORT` is the sink's port.
    pub(crate) start: Option<String>,
    /// Run by the shell behind each run.
    pub(crate) stop: Option<String>,
    /// Run by the shell for each variant; prints name, version, and a hash of the configuration, a line each.
    pub(crate) describe: Option<String>,
    /// The control group of the MTA, for processor time and memory: a path, or a name below /sys/fs/cgroup or its cpuacct
    pub(crate) cgroup: Option<String>,
    /// The events that a message survives after a 250 of the MTA, where no variant says so.
    #[serde(default)]
    pub(crate) durability: String,
    /// For `start`, in place of what a variant says: the MTA does not wait for its disk. `--durability-cost` needs it.
    #[serde(default)]
    pub(crate) unsynced_env: BTreeMap<String, String>,
    /// On the disk its queue lies on, for writes and syncs a message.
    pub(crate) queue: Option<PathBuf>,
    /// A run ends when no message has arrived at the sink for this long.
    #[serde(default = "minute")]
    pub(crate) idle_timeout_seconds: u64,
}

impl Default for SinkTable {
    fn default() -> Self {
        Self { listen: any_port(), options: String::new() }
    }
}

fn three() -> u32 {
    3
}

fn minute() -> u64 {
    60
}

fn any_port() -> String {
    "127.0.0.1:0".to_owned()
}

impl Scenario {
    /// Reads and checks a file: what is wrong is said before anything starts.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let say = |e: String| format!("read the scenario {}: {e}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| say(e.to_string()))?;
        Self::parse(&text).map_err(say)
    }

    /// Checks a scenario's text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let scenario: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), String> {
        if self.title.trim().is_empty() {
            return Err("title is empty".into());
        }
        let has_empty_variant = self.variant.iter().any(|variant| variant.messages == Some(0));
        if self.repeats == 0 || self.load.messages == 0 || has_empty_variant || self.load.sessions.is_empty()
        {
            return Err("repeats, load.messages and load.sessions must not be nothing".into());
        }
        if self.experiment == Experiment::Relay && self.mta.is_none() {
            return Err("a relay experiment needs an [mta] table".into());
        }
        if let Some(overhead) = &self.overhead {
            for name in [&overhead.with, &overhead.without] {
                if !self.variant.iter().any(|variant| variant.name == *name) {
                    return Err(format!("overhead names the variant `{name}`, which is not there"));
                }
            }
        }
        let endpoint = self.mta.as_ref().map_or("127.0.0.1:1", |mta| &mta.endpoint);
        for variant in self.variants() {
            let named =
                |e: String| if variant.name.is_empty() { e } else { format!("{}: {e}", variant.name) };
            for sessions in &self.load.sessions {
                self.source(&variant, *sessions, self.load.messages, endpoint).map_err(named)?;
            }
            self.sink(&variant).map_err(named)?;
        }
        Ok(())
    }

    /// Puts the directory of the run in the place of `$LAB_WORK`; the scripts find it in their environment, too.
    pub(crate) fn place(&mut self, work: &Path) {
        let work = work.display().to_string();
        self.variant = self.variants();
        for env in self.variant.iter_mut().map(|variant| &mut variant.env) {
            env.values_mut().for_each(|value| *value = value.replace(WORK, &work));
            env.insert(WORK[1..].to_owned(), work.clone());
        }
        if let Some(queue) = self.mta.as_mut().and_then(|mta| mta.queue.as_mut()) {
            *queue = queue.display().to_string().replace(WORK, &work).into();
        }
    }

    /// Returns the variants; at least one that varies nothing.
    pub(crate) fn variants(&self) -> Vec<Variant> {
        if self.variant.is_empty() { vec![Variant::default()] } else { self.variant.clone() }
    }

    /// Returns the number of messages of a run.
    pub(crate) fn messages(&self, variant: &Variant, is_ceiling: bool) -> u64 {
        let load = &self.load;
        if let (Some(messages), Experiment::Ceiling) = (variant.messages, self.experiment) {
            return messages;
        }
        let of_relay = variant.messages.unwrap_or(load.messages);
        match (is_ceiling, self.experiment) {
            (false, _) => of_relay,
            (true, Experiment::Ceiling) => load.ceiling_messages.unwrap_or(load.messages),
            (true, Experiment::Relay) => load.ceiling_messages.unwrap_or(of_relay.saturating_mul(10)),
        }
    }

    /// Returns the command line of the source for a case.
    pub(crate) fn source(
        &self,
        variant: &Variant,
        sessions: u32,
        messages: u64,
        endpoint: &str,
    ) -> Result<SourceArgs, String> {
        let fixed = format!("-s {sessions} -m {messages}");
        arguments(&[&fixed, &self.load.options, &variant.options, endpoint]).map_err(|e| format!("load: {e}"))
    }

    /// Returns the arguments of the sink.
    pub(crate) fn sink(&self, variant: &Variant) -> Result<SinkArgs, String> {
        // Room for what an MTA opens at its worst, unless the options say else.
        let is_bound = |word: &str| word.starts_with("-m") && !word.starts_with("--");
        let options = format!("{} {}", self.sink.options, variant.sink_options);
        let room = if options.split_whitespace().any(is_bound) { "" } else { "-m 20000" };
        arguments(&[room, &options, &self.sink.listen]).map_err(|e| format!("sink: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELAY: &str = "title = \"x\"\nexperiment = \"relay\"\n[load]\nmessages = 10\nsessions = [1, 5]\n\
                         options = \"-l 100 -d\"\n[mta]\nname = \"m\"\nendpoint = \"127.0.0.1:25\"\n";

    #[test]
    fn a_scenario_says_what_its_tools_are_told() {
        let scenario = Scenario::parse(RELAY).unwrap();
        let source = scenario.source(&Variant::default(), 5, 10, "127.0.0.1:25").unwrap();
        assert_eq!((source.sessions, source.messages, scenario.repeats), (5, 10, 3));
    }

    #[test]
    fn what_is_wrong_is_said_before_anything_starts() {
        let error = |from: &str, to: &str| Scenario::parse(&RELAY.replace(from, to)).unwrap_err();
        assert!(error("title", "titel").contains("unknown field `titel`"));
        assert!(error("[1, 5]", "[]").contains("must not be nothing"));
        assert!(error("-l 100", "-l x").contains("load: invalid value 'x'"));
        assert!(error("\"relay\"", "\"race\"").contains("unknown variant `race`"));
        assert_eq!(
            Scenario::parse(RELAY.split("[mta]").next().unwrap()).unwrap_err(),
            "a relay experiment needs an [mta] table"
        );
    }
}
