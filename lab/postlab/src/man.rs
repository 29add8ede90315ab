//! Man pages, generated from the definition of the command line.

use clap::{Args, CommandFactory as _};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Write man pages: postlab.1, and one for each command
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory to write to
    directory: PathBuf,
}

/// An example: the command line, and what it does.
type Example = (&'static str, &'static str);

/// The examples of a page, by the page's name.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "postlab",
        &[
            ("postlab sink -c 127.0.0.1:2600", "Accept mail and discard it."),
            (
                "postlab source -s 10 -m 1000 127.0.0.1:2600",
                "Send 1,000 messages over 10 sessions to that sink.",
            ),
        ],
    ),
    (
        "postlab-sink",
        &[
            ("postlab sink -c 127.0.0.1:2600", "Accept mail and discard it; print counters."),
            ("postlab sink --defer 12 127.0.0.1:2600", "Reply 450 to 12 % of the RCPT commands."),
            (
                "postlab sink --tls --auth me:secret 127.0.0.1:2600",
                "Offer STARTTLS, and accept mail only after AUTH.",
            ),
            (
                "postlab sink --verify --json 127.0.0.1:2600",
                "Verify the checksums that bodies carry, and print JSON.",
            ),
        ],
    ),
    (
        "postlab-source",
        &[
            (
                "postlab source -s 10 -m 1000 -d --percentiles 127.0.0.1:2600",
                "Send 1,000 messages over 10 connections that stay open.",
            ),
            (
                "postlab source --tls --auth me:secret --bdat -m 1000 127.0.0.1:2600",
                "Send over TLS with AUTH, with BDAT instead of DATA.",
            ),
            ("postlab source --rate 500 -m 5000 -s 50 127.0.0.1:2600", "Send 500 messages a second."),
            (
                "postlab source --rate 500 --arrivals poisson --duration 60 -s 50 --hdr times.hlog 127.0.0.1:2600",
                "Send 500 messages a second at random times for a minute, and keep the histograms.",
            ),
        ],
    ),
    (
        "postlab-hdr",
        &[(
            "postlab hdr merge one.hlog two.hlog",
            "Add the histograms of two sources up, and print percentiles.",
        )],
    ),
    (
        "postlab-hdr-merge",
        &[("postlab hdr merge -o all.hlog one.hlog two.hlog", "Write the sums to a file too.")],
    ),
    (
        "postlab-agent",
        &[(
            "postlab agent run -k lab.key -a 192.0.2.1:2580,192.0.2.2:2580 -- -s 50 -m 10000 192.0.2.9:25",
            "Send 10,000 messages from each of two machines.",
        )],
    ),
    (
        "postlab-hostile",
        &[
            (
                "postlab hostile --idle 10000 --slow 2000 127.0.0.1:25",
                "Keep 10,000 idle sessions and 2,000 slow ones open for 30 seconds.",
            ),
            (
                "postlab hostile --connects 5000 --guesses 200 --for 60 127.0.0.1:25",
                "For a minute, make 5,000 connections and guess 200 passwords a second.",
            ),
        ],
    ),
    ("postlab-agent-key", &[("postlab agent key lab.key", "Make a key file; copy it to all machines.")]),
    (
        "postlab-agent-listen",
        &[("postlab agent listen -k lab.key 192.0.2.1:2580", "Wait for a controller on this address.")],
    ),
    (
        "postlab-agent-run",
        &[(
            "postlab agent run -k lab.key -a 192.0.2.1:2580,192.0.2.2:2580 --json -- --rate 500 --duration 60 192.0.2.9:25",
            "Send 500 messages a second from each machine for a minute, and print JSON.",
        )],
    ),
    (
        "postlab-slam",
        &[(
            "postlab slam -p 7 -t 50 -m 5000 -w 1 127.0.0.1:2600",
            "Send from 7 processes with 50 threads each, with a pause of a second.",
        )],
    ),
    (
        "postlab-smtpc",
        &[("postlab smtpc -t 100 -s 1000 -r 127.0.0.1:2600", "Send with a connection for each message.")],
    ),
    (
        "postlab-gatling",
        &[(
            "postlab gatling -m 100 -c 5000 -z 1 -Z 16 127.0.0.1:2600",
            "Print the overall and the peak rate of 5,000 messages.",
        )],
    ),
    (
        "postlab-postal",
        &[(
            "postlab postal -m 10 -p 16 -c 3 -r 6000 127.0.0.1:2600 users",
            "Print a CSV line each minute; the file users has an address on each line.",
        )],
    ),
    (
        "postlab-run",
        &[("postlab run lab/scenarios/sizes.toml --repeats 5", "Run a scenario with five repeats.")],
    ),
    ("postlab-completions", &[("postlab completions bash", "Print the completion script for bash.")]),
    ("postlab-schema", &[("postlab schema", "Print the schema, for a program that reads results.")]),
    (
        "postlab-relay",
        &[
            (
                "postlab relay --explain postfix",
                "Print the lines that lead the mail for the test domain from Postfix to the sink.",
            ),
            (
                "postlab relay --queue /var/spool/postfix --log /var/log/mail.log 127.0.0.1:25",
                "Measure the server of this machine, and name its bottleneck.",
            ),
            (
                "postlab relay postfix:stock postfix:tuned exim",
                "Start three servers in turn, and measure them with the same load.",
            ),
            (
                "postlab relay --require p99<50ms --require drained@50>1000/s --junit relay.xml 127.0.0.1:25",
                "Exit with 1 if the server is slower than required.",
            ),
        ],
    ),
    (
        "postlab-reproduce",
        &[
            ("postlab reproduce all --quick", "Repeat the experiments of all papers, with few messages."),
            ("postlab reproduce S4", "Repeat the experiments of one paper in full."),
            ("postlab reproduce S1 --again", "Measure one paper again; the page keeps the others."),
            ("postlab reproduce --page", "Write the page from the rounds that are kept."),
        ],
    ),
    (
        "postlab-compare",
        &[
            (
                "postlab compare results/A results/B",
                "Print the differences between two runs that are statistically proven.",
            ),
            (
                "postlab compare --gate --max-slower 5% results/A results/B",
                "Exit with 1 unless it is proven that no case became slower by more than 5 %.",
            ),
        ],
    ),
    (
        "postlab-chart",
        &[(
            "postlab chart results/20261126-101500-relay/relay.md -o relay.svg",
            "Draw the table of a comparison of servers.",
        )],
    ),
    (
        "postlab-report",
        &[("postlab report results/20261121-overload -o report.html", "Make a page of a run.")],
    ),
    (
        "postlab-postmark",
        &[("postlab postmark --preset t1 --run", "Run PostMark's benchmark with a preset.")],
    ),
    (
        "postlab-kv",
        &[(
            "postlab kv -T 1000,100,1 -l 20,1024",
            "Write records to stores, with a sync after 1,000, 100 and 1 of them.",
        )],
    ),
    (
        "postlab-delete-cost",
        &[(
            "postlab delete-cost /var/spool",
            "Measure what the deletion of stored messages costs, with both backends.",
        )],
    ),
    ("postlab-bonnie", &[("postlab bonnie -d /var/spool -n 16:10k:0", "Run Bonnie++'s file tests.")]),
    (
        "postlab-ipc",
        &[
            ("postlab ipc", "Measure each transport."),
            (
                "postlab ipc -c 32,65536 --over local,futex,io_uring --markdown",
                "Compare three of them with small and large messages.",
            ),
        ],
    ),
    ("postlab-map-lookup", &[("postlab map-lookup", "Measure maps in the process and over a socket.")]),
    (
        "postlab-log-buffering",
        &[("postlab log-buffering /var/log", "Compare line and block buffering of a log.")],
    ),
    (
        "postlab-syslog-loss",
        &[(
            "postlab syslog-loss --rate 10000,0 --sync /var/log",
            "Count the lines that UDP and TCP lose on the way to a collector that syncs each.",
        )],
    ),
    (
        "postlab-commit-window",
        &[(
            "postlab commit-window -w 100,10000 -s 100 /var/spool",
            "Count the commits of 1,000 messages, by the longest time that one may wait to share its commit.",
        )],
    ),
    ("postlab-log-format", &[("postlab log-format", "Measure what formatting a log line costs.")]),
    (
        "postlab-dd",
        &[("postlab dd bs=8192 count=124000", "Write a file; print the speed of the cache and of the disk.")],
    ),
    (
        "postlab-queuedirs",
        &[
            (
                "postlab queuedirs --slope /var/spool",
                "Measure queue files with several directories and senders.",
            ),
            (
                "postlab queuedirs --layout flat,hashed --processes 1,2,4 -s 4 -o base.json /var/spool",
                "Measure both layouts with 1, 2 and 4 processes, and keep the result.",
            ),
            ("postlab queuedirs --baseline base.json /var/spool", "Compare with a result that was kept."),
            (
                "postlab queuedirs --mta postrider -m 10000 /var/spool",
                "Measure queue creation by a daemon, over SMTP.",
            ),
        ],
    ),
    (
        "postlab-queuerun",
        &[
            ("postlab queuerun /var/spool", "Measure reading and sorting a queue in each order."),
            (
                "postlab queuerun -m 1000 --runners 1,4 --latency *=0.01,host3=0.2 --order priority,host /var/spool",
                "Deliver to hosts of which one is slow: does host order empty the queue sooner?",
            ),
            (
                "postlab queuerun --mta postrider --cold --runners 1,20 /var/spool",
                "Measure queue runs of Postrider with a cold cache.",
            ),
        ],
    ),
    (
        "postlab-syscalls",
        &[
            (
                "postlab syscalls -p 4242 -m 1000 --then 5 -- postlab source -m 1000 127.0.0.1:2525",
                "Count the system calls of a process while a command runs.",
            ),
            (
                "postlab syscalls --histogram -- postlab queuedirs -q 1 -s 10 -m 1000 /var/spool",
                "Show how long the calls of ten senders take.",
            ),
        ],
    ),
    (
        "postlab-io-mix",
        &[(
            "postlab io-mix -m 1000 -d /var/spool/postrider trace",
            "Count the operations of a trace that strace -f -y -s 0 -o trace -p PID wrote.",
        )],
    ),
    (
        "postlab-flame",
        &[
            (
                "postlab flame -o create.svg -- postlab queuedirs -q 1 -s 10 -m 5000 /var/spool",
                "Draw where the creation of queue files uses CPU time.",
            ),
            ("postlab flame -p 4242 --seconds 30", "Watch a process for half a minute."),
        ],
    ),
    (
        "postlab-dns-packets",
        &[
            (
                "postlab dns-packets -m 1000 -- bash lab/scenarios/dns.sh 1000 10",
                "Count what Postrider asks for 1,000 messages to 10 domains.",
            ),
            (
                "postlab dns-packets -m 200 --resolv-conf --listen 127.0.0.53:53 --answer 127.0.0.2 -- env MTA=postfix bash lab/scenarios/dns.sh 200 10",
                "Count what Postfix of lab/peers asks; as root.",
            ),
        ],
    ),
    (
        "postlab-iostat",
        &[(
            "postlab iostat -m 1000 -- postlab source -m 1000 127.0.0.1:25",
            "Print disk writes and flushes for each message.",
        )],
    ),
    (
        "postlab-fsync-check",
        &[("postlab fsync-check /var/spool", "Measure whether a sync reaches the disk.")],
    ),
    (
        "postlab-readwrite",
        &[("postlab readwrite -s -f 100 -p 10 /var/spool", "Measure ten processes that sync.")],
    ),
    (
        "postlab-fsperf1",
        &[("postlab fsperf1 -c -r 1000 100 /var/spool", "Create, sync and rename queue files.")],
    ),
    (
        "postlab-fsseq1",
        &[(
            "postlab fsseq1 -C 1,10,100 /var/spool",
            "Write lines to a log, with a sync after 1, 10 and 100 of them.",
        )],
    ),
    (
        "postlab-fsseq2",
        &[(
            "postlab fsseq2 -C 1,10,100 /var/spool",
            "Write buffered records, with a sync after 1, 10 and 100 of them.",
        )],
    ),
    (
        "postlab-fsseq3",
        &[(
            "postlab fsseq3 -C 1,10,100 /var/spool",
            "Write records one by one, with a sync after 1, 10 and 100 of them.",
        )],
    ),
    (
        "postlab-fsseq4",
        &[(
            "postlab fsseq4 -C 1,10,100 /var/spool",
            "Write small records, with a sync after 1, 10 and 100 of them.",
        )],
    ),
    ("postlab-man", &[("postlab man ./man", "Write the man pages to a directory.")]),
    ("postlab-stat", &[("postlab stat before.txt after.txt", "Compare two samples as ministat does.")]),
];

/// Writes the man pages.
pub(crate) fn run(args: &ManArgs) -> Result<(), String> {
    let say = |e: io::Error| format!("write man pages to {}: {e}", args.directory.display());
    fs::create_dir_all(&args.directory).map_err(say)?;
    write_all(&args.directory).map_err(say)
}

fn write_all(dir: &Path) -> io::Result<()> {
    // Without the commit: the pages are kept in the repository, and would differ with each.
    clap_mangen::generate_to(crate::Cli::command().version(env!("CARGO_PKG_VERSION")), dir)?;
    for (name, examples) in EXAMPLES {
        let path = dir.join(format!("{name}.1"));
        let mut page = fs::read_to_string(&path)?;
        page.push_str(".SH EXAMPLES\n");
        for (command, about) in *examples {
            page.push_str(&format!(".TP\n\\fB{}\\fR\n{}\n", escape(command), escape(about)));
        }
        page.push_str(".SH SEE ALSO\n");
        let related = match *name {
            "postlab" => EXAMPLES[1..].iter().map(|(name, _)| *name).collect(),
            _ => vec!["postlab"],
        };
        let related: Vec<String> =
            related.into_iter().map(|name| format!(".BR {} (1)", escape(name))).collect();
        page.push_str(&(related.join(",\n") + "\n"));
        fs::write(path, page)?;
    }
    Ok(())
}

/// Escapes text for roff: backslashes, and hyphens, which would become dashes.
fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_examples_and_see_also() {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path()).unwrap();
        let mut count = 0;
        for entry in fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            let page = fs::read_to_string(&path).unwrap();
            for title in ["EXAMPLES", "SEE ALSO"] {
                assert_eq!(
                    page.matches(&format!("\n.SH {title}\n")).count(),
                    1,
                    "{title} in {}",
                    path.display()
                );
            }
            count += 1;
        }
        assert_eq!(count, EXAMPLES.len());
    }

    #[test]
    fn every_example_is_a_command_line_that_is_understood() {
        for (_, examples) in EXAMPLES {
            for (line, _) in *examples {
                if let Err(error) = crate::Cli::command().try_get_matches_from(line.split(' ')) {
                    panic!("{line}: {error}");
                }
            }
        }
    }
}
