//! `postlab postmark`: PostMark 1.5's commands, presets and report, and a mode that syncs as a mail queue
//! does.

mod config;
mod report;
mod work;

use crate::{
    rounds::too_short,
    table::{Format, Table},
};
use clap::Args;
use config::{Config, HELP};
use std::{
    fs::File,
    io::{self, BufRead, IsTerminal as _, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use work::Work;

/// Create, read, append to and delete many small files, as PostMark does
///
/// Commands come from a file or standard input; `help` lists them.
#[derive(Debug, Args)]
pub struct PostmarkArgs {
    /// Begin with the settings of a test: t1 (1,000 files, 50,000 transactions), t2 (20,000 files), t3 (100,000
    /// transactions), t4 (100 subdirectories)
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Settings before the first command, as after `set`: "number 1000"
    #[arg(long = "set", value_name = "SETTING")]
    settings: Vec<String>,
    /// Run once with these settings and read no commands
    #[arg(long)]
    run: bool,
    #[command(flatten)]
    format: Format,
    /// Commands
    file: Option<PathBuf>,
}

/// The effect of a command: to go on, or to end.
#[derive(Debug, PartialEq, Eq)]
enum Go {
    On,
    Out,
}

/// Reads and does the commands.
pub fn run(args: &PostmarkArgs) -> Result<(), String> {
    let mut config = Config::default();
    if let Some(name) = &args.preset {
        config.preset(name)?;
    }
    for setting in &args.settings {
        let words: Vec<&str> = setting.split_whitespace().collect();
        config
            .set(&words)
            .map_err(|e| format!("set {setting}: {}", if e.is_empty() { "no such setting" } else { &e }))?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    crate::signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    let table = Table::new(args.format, &report::COLUMNS, None);
    let mut shell = Shell { config, stop, loading: 0, format: args.format, table };
    match &args.file {
        _ if args.run => shell.work(),
        Some(path) => shell.interpret(open(path)?, false),
        None => shell.interpret(io::stdin().lock(), io::stdin().is_terminal()),
    }?;
    shell.table.finish();
    Ok(())
}

struct Shell {
    config: Config,
    stop: Arc<AtomicBool>,
    /// Files that are being read, each named by the one before.
    loading: u32,
    format: Format,
    /// One row for each `run`.
    table: Table<'static>,
}

/// A file that names itself is read so often.
const NESTED: u32 = 16;

fn open(path: &Path) -> Result<io::BufReader<File>, String> {
    let file = File::open(path).map_err(|e| format!("open {}: {e}", path.display()))?;
    Ok(io::BufReader::new(file))
}

impl Shell {
    /// Reads the commands of a file; one that cannot be read is reported and skipped, as PostMark does.
    fn load(&mut self, path: &Path) -> Result<(), String> {
        if self.loading == NESTED {
            self.tell(Err(format!("{NESTED} files load each other")));
            return Ok(());
        }
        self.loading += 1;
        let done = match open(path) {
            Ok(file) => self.interpret(file, false),
            Err(error) => {
                self.tell(Err(error));
                Ok(())
            }
        };
        self.loading -= 1;
        done
    }

    fn interpret(&mut self, input: impl BufRead, prompts: bool) -> Result<(), String> {
        let prompt = if prompts { "pm>" } else { "" };
        self.say(prompt);
        for line in input.lines() {
            let line = line.map_err(|e| format!("read commands: {e}"))?;
            let words: Vec<&str> = line.split_whitespace().collect();
            if self.command(&words)? == Go::Out || self.stop.load(Relaxed) {
                break;
            }
            self.say(prompt);
        }
        Ok(())
    }

    /// One command. A wrong one is reported and skipped, as PostMark does.
    fn command(&mut self, words: &[&str]) -> Result<Go, String> {
        match words {
            [] => {}
            ["quit" | "exit"] => return Ok(Go::Out),
            ["help"] => self.say(&help("")),
            ["help", rest @ ..] => self.say(&help(&rest.join(" "))),
            ["show"] => self.say(&self.config.text()),
            ["preset", name] => {
                let done = self.config.preset(name);
                self.tell(done);
            }
            ["set", rest @ ..] => {
                let done = self.config.set(rest);
                self.tell(done);
            }
            ["run"] => self.work()?,
            ["load", path] => self.load(Path::new(path))?,
            _ => self.say("Eh?\n"),
        }
        Ok(Go::On)
    }

    fn work(&mut self) -> Result<(), String> {
        let quiet = !self.config.verbose && !io::stdout().is_terminal();
        let progress = |text: &str| {
            if !quiet {
                self.say(text);
            }
        };
        let done = Work::new(&self.config).run(progress, || self.stop.load(Relaxed))?;
        if self.stop.load(Relaxed) {
            self.table.text(STOPPED);
        }
        let text = if self.config.verbose { report::verbose(&done) } else { report::terse(&done) };
        self.table.text(&text);
        self.table.record(report::cells(&done));
        let stopped = self.stop.load(Relaxed).then_some(STOPPED);
        let remarks = stopped.into_iter().chain(too_short(done.total.as_secs_f64()));
        for remark in remarks {
            if remark != STOPPED {
                // The text is that of the original.
                eprintln!("{remark}");
            }
            self.table.silent_remark(remark);
        }
        Ok(())
    }

    fn tell(&self, result: Result<(), String>) {
        match result {
            Ok(()) => {}
            Err(error) if error.is_empty() => self.say("Eh?\n"),
            Err(error) => self.say(&format!("Error: {error}\n")),
        }
    }

    /// Prints what is no result: in other forms than text on standard error.
    fn say(&self, text: &str) {
        if !self.format.is_text() {
            eprint!("{text}");
            return;
        }
        print!("{text}");
        // Nothing can be done where nobody can see it.
        let _ = io::stdout().flush();
    }
}

const STOPPED: &str = "Stopped early; this is what was done until then.";

fn help(about: &str) -> String {
    let sets = HELP.iter().map(|(name, text)| (format!("set {name}"), *text));
    let others = [
        ("preset", "Takes the settings of a test: t1, t2, t3 or t4"),
        ("run", "Runs one iteration of benchmark"),
        ("load", "Read configuration file"),
        ("show", "Displays current configuration"),
        ("help", "Prints out available commands"),
        ("quit", "Exit program"),
    ];
    let all = sets.chain(others.iter().map(|(name, text)| ((*name).to_owned(), *text)));
    all.filter(|(name, _)| name.starts_with(about)).map(|(name, text)| format!("{name} - {text}\n")).collect()
}
