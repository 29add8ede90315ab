//! The hosts that a queue run delivers to: sinks in processes of their own, each as far away as it is told to be.

use crate::arguments::seconds_of;
use clap::Args;
use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The hosts of the recipients, and the way to them.
#[derive(Debug, Args)]
pub(super) struct HostArgs {
    /// The number of recipient hosts: host0.test and so on [default: 1000; with --runners 10, each with its own sink]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    hosts: Option<u32>,
    /// With --runners: this host waits before its greeting, and before its reply to each message; `*` stands for all
    /// other hosts
    #[arg(long, value_name = "HOST=SECONDS,…", value_delimiter = ',', requires = "runners", value_parser = latency_of)]
    latency: Vec<(String, Duration)>,
    /// Wait after creating or restoring the queue, so that the file system settles
    #[arg(long, value_name = "SECONDS", default_value = "0", hide_default_value = true, value_parser = seconds_of)]
    pub(super) settle: Duration,
    /// With --runners: run the sinks in a network namespace of their own; needs root and ip(8)
    #[arg(long, requires = "runners")]
    netns: bool,
}

/// More would be processes without end.
const MOST_SINKS: u32 = 100;

impl HostArgs {
    /// Returns the number of hosts.
    pub(super) fn count(&self, delivers: bool) -> Result<u32, String> {
        let count = self.hosts.unwrap_or(if delivers { 10 } else { 1000 });
        if delivers && count > MOST_SINKS {
            return Err(format!(
                "--hosts {count}: a sink for each is started, at most {MOST_SINKS} with --runners"
            ));
        }
        Ok(count)
    }

    /// Returns how long each host delays its replies.
    fn latencies(&self) -> Result<Vec<Duration>, String> {
        let count = self.count(true)?;
        let mut all = vec![Duration::ZERO; count as usize];
        let everyone = self.latency.iter().rev().find(|(name, _)| name == "*");
        everyone.inspect(|(_, time)| all.fill(*time));
        for (name, time) in self.latency.iter().filter(|(name, _)| name != "*") {
            let number = (0..count).find(|n| *name == host(*n) || *name == format!("host{n}"));
            let Some(number) = number else {
                return Err(format!("--latency {name}: the hosts are host0 to host{}, and *", count - 1));
            };
            all[number as usize] = *time;
        }
        Ok(all)
    }

    /// Starts one sink for each host.
    pub(super) fn start(&self) -> Result<Hosts, String> {
        let netns = self.netns.then(Netns::new).transpose()?;
        let start = |latency: &Duration| Sink::start(*latency, netns.as_ref());
        let sinks = self.latencies()?.iter().map(start).collect::<Result<_, _>>()?;
        Ok(Hosts { sinks, _netns: netns })
    }

    /// Says what the figures of deliveries depend on.
    pub(super) fn note(&self) -> String {
        let slow: Vec<String> = self
            .latency
            .iter()
            .map(|(name, time)| format!("{name} {} ms", crate::stat::spread::shown(time.as_secs_f64() * 1e3)))
            .collect();
        let slow = if slow.is_empty() { "no host waits".to_owned() } else { slow.join(", ") };
        let place = if self.netns { " and a network namespace of their own" } else { "" };
        format!("Sinks in processes of their own{place}; before greeting and reply: {slow}.")
    }

    /// Says how the queue was treated before each round.
    pub(super) fn rest(&self) -> String {
        match self.settle {
            Duration::ZERO => "Not settled (--settle SECONDS).".into(),
            time => format!("Settled for {} s.", time.as_secs_f64()),
        }
    }
}

/// Returns the name of the host with this number.
pub(super) fn host(number: u32) -> String {
    format!("host{number}.test")
}

fn latency_of(text: &str) -> Result<(String, Duration), String> {
    let (name, time) = text.rsplit_once('=').ok_or_else(|| format!("`{text}` is not HOST=SECONDS"))?;
    Ok((name.to_owned(), seconds_of(time)?))
}

/// A sink for each host, and the network namespace that they are in.
#[derive(Debug)]
pub(super) struct Hosts {
    sinks: Vec<Sink>,
    _netns: Option<Netns>,
}

/// What all sinks together have taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) messages: u64,
    pub(super) sessions: u64,
}

impl Hosts {
    /// Returns the address of each host's sink.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.sinks.iter().map(|sink| sink.address.clone()).collect()
    }

    /// Returns a route to each host, as Postrider's configuration has it.
    pub(super) fn routes(&self) -> String {
        let route = |(number, sink): (usize, &Sink)| {
            format!(
                "[[route]]\ndomains = [{:?}]\nsmarthost = {:?}\ntls = \"off\"\n\n",
                host(number as u32),
                sink.address
            )
        };
        self.sinks.iter().enumerate().map(route).collect()
    }

    /// Stops all sinks, and returns what they took.
    pub(super) fn stop(mut self) -> Result<Taken, String> {
        let mut all = Taken::default();
        for sink in std::mem::take(&mut self.sinks) {
            let taken = sink.stop()?;
            all.messages += taken.messages;
            all.sessions += taken.sessions;
        }
        Ok(all)
    }
}

/// One host's sink; killed when dropped.
#[derive(Debug)]
struct Sink {
    child: Child,
    address: String,
}

impl Sink {
    fn start(latency: Duration, netns: Option<&Netns>) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|e| format!("find this program: {e}"))?;
        let mut command = netns.map_or_else(|| Command::new(&own), |netns| netns.command(&own));
        command.args(["sink", "--json", "-m", "20000"]);
        if !latency.is_zero() {
            let seconds = latency.as_secs_f64();
            command.args(["-W".to_owned(), format!("CONNECT:{seconds}")]);
            command.args(["-W".to_owned(), format!(".:{seconds}")]);
        }
        command.arg(format!("{}:0", netns.map_or("127.0.0.1", |netns| &netns.far)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|e| format!("start a sink: {e}"))?;
        let mut sink = Self { child, address: String::new() };
        let mut lines = BufReader::new(sink.child.stderr.take().ok_or("a sink without standard error")?);
        let mut line = String::new();
        lines.read_line(&mut line).map_err(|e| format!("start a sink: {e}"))?;
        let address = line.split_once("listens on ").map(|(_, address)| address.trim().to_owned());
        sink.address = address.ok_or_else(|| format!("start a sink: {}", line.trim()))?;
        // A sink must never wait for a reader.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Ok(sink)
    }

    fn stop(mut self) -> Result<Taken, String> {
        crate::signals::end(&self.child);
        let mut text = String::new();
        let mut output = self.child.stdout.take().ok_or("a sink without standard output")?;
        output.read_to_string(&mut text).map_err(|e| format!("read a sink's counters: {e}"))?;
        self.child.wait().map_err(|e| format!("wait for a sink: {e}"))?;
        let value: serde_json::Value =
            serde_json::from_str(text.trim()).map_err(|e| format!("read a sink's counters: {e}"))?;
        let count = |name: &str| value[name].as_u64().unwrap_or_default();
        Ok(Taken { messages: count("messages"), sessions: count("sessions") })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A network namespace with a pair of virtual interfaces to it, removed when dropped.
#[derive(Debug)]
struct Netns {
    name: String,
    /// Address at the other end of the link.
    far: String,
}

impl Netns {
    fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("--netns: only root may make a network namespace".into());
        }
        // 198.18.0.0/15 is for benchmarks (RFC 2544); four addresses of it.
        let (name, block) = (format!("postlab{}", std::process::id()), fastrand::u32(..1 << 15) * 4);
        let address =
            |last: u32| format!("198.{}.{}.{}", 18 + (block >> 16), block >> 8 & 255, block & 255 | last);
        let netns = Self { name: name.clone(), far: address(2) };
        let (near, far) = (format!("pl{}a", std::process::id()), format!("pl{}b", std::process::id()));
        for words in [
            format!("netns add {name}"),
            format!("link add {near} type veth peer name {far} netns {name}"),
            format!("address add {}/30 dev {near}", address(1)),
            format!("link set {near} up"),
            format!("-n {name} address add {}/30 dev {far}", netns.far),
            format!("-n {name} link set {far} up"),
            format!("-n {name} link set lo up"),
        ] {
            ip(&words)?;
        }
        Ok(netns)
    }

    /// Returns a command that runs `program` inside.
    fn command(&self, program: &std::path::Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // The interfaces go with it. What is left is seen in `ip netns`.
        let _ = ip(&format!("netns delete {}", self.name));
    }
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.map_err(|e| format!("--netns: run ip: {e}; it is in Debian's iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("--netns: ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(words: &[&str]) -> Result<Vec<u64>, String> {
        #[derive(clap::Parser)]
        struct Cli {
            #[arg(long)]
            runners: Option<u32>,
            #[command(flatten)]
            hosts: HostArgs,
        }
        let cli = <Cli as clap::Parser>::try_parse_from([&["x", "--runners", "1"], words].concat());
        let cli = cli.map_err(|e| e.to_string())?;
        assert_eq!(cli.runners, Some(1));
        Ok(cli.hosts.latencies()?.iter().map(|time| time.as_millis() as u64).collect())
    }

    #[test]
    fn a_latency_is_of_the_named_host_and_the_star_is_all_others() {
        let all = latencies(&["--hosts", "4", "--latency", "host2=0.5,*=0.01,host0.test=2"]).unwrap();
        assert_eq!(all, [2000, 10, 500, 10]);
        assert_eq!(latencies(&[]).unwrap(), [0; 10]);
        let error = latencies(&["--hosts", "2", "--latency", "host2=1"]).unwrap_err();
        assert_eq!(error, "--latency host2: the hosts are host0 to host1, and *");
        assert!(latencies(&["--latency", "host1"]).unwrap_err().contains("`host1` is not HOST=SECONDS"));
        assert!(latencies(&["--hosts", "101"]).unwrap_err().contains("at most 100 with --runners"));
    }
}
