//! `postlab reproduce`: the five papers' experiments again, one command. Each step is commands of postlab, whose output
//! is kept round for round, so that a run that was cut short goes on where it was. The page is made of all that is kept.

mod against;
mod finding;
mod notes;
mod page;
mod read;
mod record;
mod relays;
mod seeds;
mod step;
mod verdict;

use crate::{Failure, run::machine::Machine, scratch, signals};
use against::Published;
use clap::{Args, ValueEnum};
pub(crate) use finding::thousands;
use finding::{Finding, fill, findings, measured, unread};
use notes::PageNotes;
use record::{Disk, Record};
use seeds::Seeds;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use step::{Places, Step};

/// Repeat the experiments of the five papers, and compare each finding with what is measured here
///
/// A finding agrees, differs, or cannot be told. It cannot be told if there are fewer than three rounds, if its interval
/// overlaps the edge of the prediction, or if there is a remark such as a busy machine. Rounds that are already done are not repeated.
///
/// The exit code is 1 if a step did not run.
#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// The paper whose experiments to repeat; the page keeps the results of the others
    #[arg(value_enum, default_value = "all")]
    seed: Seed,
    /// Run a little of each experiment, in a quarter of an hour
    #[arg(long)]
    quick: bool,
    /// Repeat measurements that are already done
    #[arg(long)]
    again: bool,
    /// Only the steps of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    step: Vec<String>,
    /// Write the page from earlier results, and measure nothing
    #[arg(long, conflicts_with = "again")]
    page: bool,
    /// Texts for the page: `introduction`, in Markdown, and in `[open]` an explanation for each inconclusive finding, by name
    /// [default: reproduce-notes.toml in the directory of the results, if it exists]
    #[arg(long, value_name = "FILE")]
    notes: Option<PathBuf>,
    /// Findings of another day, to see which figures repeat: the `reproduce.json` next to their page
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Write the page to this directory, with the records from which `--page --results DIRECTORY` can make it again
    #[arg(long, value_name = "DIRECTORY")]
    publish: Option<PathBuf>,
    /// Write the records and `reproduce.json` to this directory instead
    #[arg(long, value_name = "DIRECTORY", requires = "publish")]
    records: Option<PathBuf>,
    /// Directory of the results [default: results/reproduce, or results/reproduce-quick]
    #[arg(long, value_name = "DIRECTORY")]
    results: Option<PathBuf>,
    /// A directory on the disk to measure
    #[arg(short = 'd', value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
}

/// A seed document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "UPPER")]
enum Seed {
    /// Queue directories and concurrent senders
    S0,
    /// Queue sort orders
    S1,
    /// One queue directory's system calls
    S2,
    /// Sendmail against Postfix, BSDCon Europe 2002
    S3,
    /// Sendmail X: performance tests and results
    S4,
    /// All five
    #[value(name = "all")]
    All,
}

impl Seed {
    /// The texts, in order.
    const TEXTS: [Self; 5] = [Self::S0, Self::S1, Self::S2, Self::S3, Self::S4];

    /// The text that a place lies in: `S4, Writing a Logfile`.
    fn of(place: &str) -> Option<Self> {
        Self::TEXTS.into_iter().find(|seed| place.starts_with(&format!("{seed:?}")))
    }
}

/// A step, with the record of its rounds and what they say.
struct Kept {
    step: Step,
    record: Option<Record>,
    findings: Vec<Finding>,
}

/// Measures what is missing, writes and prints the page; true if every step ran.
pub(crate) fn run(args: &ReproduceArgs) -> Result<bool, Failure> {
    let steps = step::all()?;
    if let Some(unknown) = args.step.iter().find(|name| !steps.iter().any(|step| step.name == **name)) {
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        return Err(Failure::Usage(format!("there is no step {unknown}: write one of {}", names.join(", "))));
    }
    let is_elsewhere = |step: &&Step| args.seed != Seed::All && step.seed != args.seed;
    if let Some(step) = steps.iter().filter(|step| args.step.contains(&step.name)).find(is_elsewhere) {
        return Err(Failure::Usage(format!(
            "the step {} is one of {:?}: write `postlab reproduce {:?} --step {0}`",
            step.name, step.seed, step.seed
        )));
    }
    let name = if args.quick { "results/reproduce-quick" } else { "results/reproduce" };
    let results = args.results.clone().unwrap_or_else(|| name.into());
    if args.page && !results.is_dir() {
        return Err(Failure::Usage(format!(
            "there is no directory {}: name that of the results",
            results.display()
        )));
    }
    fs::create_dir_all(&results).map_err(|e| format!("create {}: {e}", results.display()))?;
    let results = fs::canonicalize(&results).map_err(|e| format!("look at {}: {e}", results.display()))?;
    // A file that cannot be read must not be noticed after hours.
    let notes = PageNotes::read(args.notes.as_deref(), &results)?;
    let against = args.against.as_deref().map(Published::read).transpose()?;
    let is_good = args.page || measure(args, &steps, &results)?;
    let seeds = Seeds::new()?;
    let keep = |step: Step| {
        let record = Record::read(&results, &step.name)?;
        let findings = findings(&step, record.as_ref(), &seeds)?;
        Ok(Kept { step, record, findings })
    };
    let mut kept = steps.into_iter().map(keep).collect::<Result<Vec<Kept>, String>>()?;
    if args.page && kept.iter().all(|kept| kept.record.is_none()) {
        // A page of nothing would replace the one that is there.
        return Err(Failure::Usage(format!(
            "{} has no record of a step, so nothing is written: name the directory in which `postlab reproduce` measured",
            results.display()
        )));
    }
    let unmeasured: Vec<&str> =
        kept.iter().filter(|kept| kept.record.is_none()).map(|kept| kept.step.name.as_str()).collect();
    if args.page && !unmeasured.is_empty() {
        eprintln!("not on the page, because there is no record of them: {}", unmeasured.join(", "));
    }
    let records = args.records.as_ref().or(args.publish.as_ref());
    {
        let page = records.unwrap_or(&results).join(against::NAME);
        // In place, what cannot be read has no figures to lose.
        let read = || Published::read(&page);
        let then = if records.is_some() { page.is_file().then(read).transpose()? } else { read().ok() };
        let lost: Vec<&str> = then.iter().flat_map(|then| then.lost_steps(&kept)).collect();
        if !lost.is_empty() {
            return Err(Failure::Usage(format!(
                "{} has figures of steps that were not measured here, so nothing is written: {}",
                page.display(),
                lost.join(", ")
            )));
        }
    }
    for what in notes.explain(&mut kept)? {
        eprintln!("the note on `{what}` is left out: the finding can be told now");
    }
    if !notes.is_empty() {
        notes
            .missing(&kept)
            .iter()
            .for_each(|what| eprintln!("no note explains why `{what}` cannot be told"));
    }
    let of_steps = kept.iter().flat_map(|own| own.findings.iter().map(move |finding| (own, finding)));
    let sentences = of_steps.map(|(own, finding)| fill(&finding.sentence, own, &kept));
    let sentences = sentences.collect::<Result<Vec<_>, _>>()?;
    let all = kept.iter_mut().flat_map(|kept| &mut kept.findings);
    all.zip(sentences).for_each(|(finding, sentence)| finding.sentence = sentence);
    let mut text = markdown(&kept, &notes.introduction);
    text += &against.as_ref().map(|then| then.markdown(&kept)).unwrap_or_default();
    let page = page::page(&kept, &seeds, against.as_ref(), &notes.introduction);
    if let Some(place) = records {
        kept.iter().filter_map(|kept| kept.record.as_ref()).try_for_each(|record| record.write(place))?;
    }
    let place = args.publish.as_ref().unwrap_or(&results);
    Published::of(&kept).write(&records.unwrap_or(&results).join(against::NAME))?;
    for (name, text) in [("reproduce.md", &text), ("reproduce.html", &page)] {
        let path = place.join(name);
        fs::write(&path, text).map_err(|e| format!("write {}: {e}", path.display()))?;
    }
    print!("{text}");
    println!("\n{}", place.join("reproduce.html").display());
    Ok(is_good)
}

/// Runs the steps that are asked for; true if each ran.
fn measure(args: &ReproduceArgs, steps: &[Step], results: &Path) -> Result<bool, String> {
    let disk = fs::canonicalize(&args.directory)
        .map_err(|e| format!("look at {}: {e}", args.directory.display()))?;
    step::unpack(results)?;
    let stop = Arc::new(AtomicBool::new(false));
    signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    let is_wanted = |step: &&Step| {
        (args.seed == Seed::All || step.seed == args.seed)
            && (args.step.is_empty() || args.step.contains(&step.name))
    };
    let wanted: Vec<&Step> = steps.iter().filter(is_wanted).collect();
    // A run that was killed has left its own.
    scratch::remove_kept(&record::kept_scratch(results))?;
    let (mut is_good, disk) = (true, Disk::new(&disk)?);
    for (i, step) in wanted.iter().enumerate() {
        if stop.load(Relaxed) {
            is_good = false;
            break;
        }
        // On standard error, and without a bar: a step prints nothing meanwhile, and may take minutes.
        eprintln!("step {} of {}: {}", i + 1, wanted.len(), step.name);
        if let Err(error) = one(args, step, results, &disk, &stop) {
            eprintln!("  not measured: {error}");
            is_good = false;
            continue;
        }
        let unread =
            Record::read(results, &step.name)?.map(|record| unread(step, &record)).unwrap_or_default();
        if !unread.is_empty() {
            // Some tools print none where the time was too short.
            eprintln!("  the output has no figure for: {}", unread.join(", "));
        }
    }
    scratch::remove_kept(&record::kept_scratch(results))?;
    Ok(is_good)
}

/// Measures a step, and keeps why it could not be measured. A reason does not replace rounds that are kept.
fn one(
    args: &ReproduceArgs,
    step: &Step,
    results: &Path,
    disk: &Disk,
    stop: &AtomicBool,
) -> Result<(), String> {
    let places = Places { disk: disk.path(), results };
    let (commands, wanted) = (step.commands(args.quick, places), step.rounds(args.quick));
    let lines: Vec<String> = commands.iter().map(step::Command::line).collect();
    let kept = Record::read(results, &step.name)?.filter(|record| !args.again && record.commands == lines);
    let fresh =
        || Record { step: step.name.clone(), quick: args.quick, commands: lines, ..Record::default() };
    if kept.as_ref().is_some_and(|record| record.rounds.len() >= wanted) {
        return Ok(());
    }
    // Rounds stand under the commit of the first one.
    let is_of_this_build = |record: &Record| {
        let is_it = record.rounds.is_empty() || record.machine.commit == Machine::BUILT_FROM;
        if !is_it {
            eprintln!("  measured from the start: what is kept is of another build");
        }
        is_it
    };
    let mut record = kept.filter(is_of_this_build).unwrap_or_else(fresh);
    let missing = step.missing().map_or(Ok(()), Err);
    let result =
        missing.and_then(|()| record::measure(step, &commands, &mut record, wanted, (results, disk), stop));
    let has_other_rounds = Record::read(results, &step.name)?.is_some_and(|kept| !kept.rounds.is_empty());
    if let Err(error) = &result
        && (!has_other_rounds || !record.rounds.is_empty())
    {
        record.failed = Some(error.clone());
        record.write(results)?;
    }
    result
}

/// Counts of the verdicts in two sentences, that on the direction first.
fn count(kept: &[Kept]) -> String {
    let judged = || kept.iter().flat_map(|kept| &kept.findings).filter(|finding| finding.judged.is_some());
    let of = |word: fn(&Finding) -> &'static str| {
        let count =
            move |wanted| judged().filter(|finding| finding.is_measured() && word(finding) == wanted).count();
        (count("agrees"), count("differs"), count("cannot tell"), count("no effect"))
    };
    let ((agree, differ, open, none), size) = (of(Finding::direction), of(Finding::size));
    let all = agree + differ + open + none;
    let mut out = format!(
        "Of {all} findings, the statement of the text holds here for {agree}, does not hold for {differ}, has no effect that can be seen here for \
         {none}, and cannot be told for {open}. The size of the effect agrees for {}, differs for {}, cannot be told for {}",
        size.0, size.1, size.2
    );
    out += &match all - size.0 - size.1 - size.2 {
        0 => ".".to_owned(),
        count => format!(", and is not compared for {count}."),
    };
    if judged().count() > all {
        out += &format!(" {} more were not measured.", judged().count() - all);
    }
    out
}

/// What the columns of the conclusions mean.
const METHOD: &str = "Each finding is judged twice. *Direction*: does the statement of the text hold here, as a condition on the ratio that was measured? *Size*: is the effect as large, within \
     the range of the machines of the text (*the text's range*), from half to twice the effect of its one machine on a logarithmic scale (*near the text's figure*), or as written? A finding agrees or differs if the whole interval lies inside or outside; \
     where the text has an effect, an interval that comes within a hundredth of one does not confirm it: if it also lies wholly within a tenth of one, there is *no effect*, unless the effect of the text is itself that small. Otherwise, with fewer than three rounds, with rounds that lie further apart than half of their median, or with a remark such as a busy machine, it cannot be told.";

/// Returns all findings; those that differ come first.
fn ordered(kept: &[Kept]) -> Vec<&Finding> {
    let mut all: Vec<&Finding> = kept.iter().flat_map(|kept| &kept.findings).collect();
    all.sort_by_key(|finding| finding.order());
    all
}

fn markdown(kept: &[Kept], introduction: &str) -> String {
    let mut out = "# The five papers' experiments again\n\n".to_owned();
    if !introduction.trim().is_empty() {
        out += &format!("{}\n\n", introduction.trim());
    }
    out += &format!("{}\n\n{METHOD}\n", count(kept));
    let plain = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let of = |wanted: fn(&Finding) -> bool| ordered(kept).into_iter().filter(move |finding| wanted(finding));
    let figures = |finding: &Finding| {
        let (theirs, here) = (finding.theirs_text(), finding.here_text());
        format!("| {:?} | {} | {theirs} | {here} |", finding.seed, plain(&finding.what))
    };
    out.push_str(
        "\n| text | what | theirs | here | direction | size | conclusions |\n|---|---|---|---|---|---|---|\n",
    );
    for finding in of(|finding| finding.judged.is_some()) {
        let (direction, size) = finding.verdicts();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{} {direction} | {size} | {} |", figures(finding), plain(&finding.sentence));
    }
    out.push_str(
        "\nWhat Postrider does about these findings; it is another design, and no verdict on a text:\n\n",
    );
    out.push_str("| text | what | theirs | Postrider | conclusions |\n|---|---|---|---|---|\n");
    for finding in of(|finding| finding.is_answer) {
        let _ = writeln!(out, "{} {} |", figures(finding), plain(&finding.sentence));
    }
    out.push_str(
        "\nFigures that depend on the machine, theirs and this one's; nothing is concluded from them:\n\n",
    );
    out.push_str("| text | what | theirs | here |\n|---|---|---|---|\n");
    for finding in of(|finding| finding.judged.is_none() && !finding.is_answer) {
        let _ = writeln!(out, "{}", figures(finding));
    }
    out.push_str("\nThe steps, each as it ran:\n\n| step | measured | interval | begin | load | built from | remarks |\n");
    out.push_str("|---|---|---|---|---|---|---|\n");
    for Kept { step, record, findings } in kept {
        let Some(record) = record.as_ref().filter(|record| !record.rounds.is_empty()) else { continue };
        let method = findings.iter().find_map(|finding| finding.here).map(|here| here.method.to_string());
        let begin = record.rounds.first().map(|round| round.begin.clone()).unwrap_or_default();
        let mut remarks = record.remarks();
        remarks.extend(record.servers());
        let _ = writeln!(
            out,
            "| {} | {} | {} | {begin} | {} | {} | {} |",
            step.name,
            measured(step, record),
            method.unwrap_or_default(),
            record.load(),
            record.machine.commit,
            plain(&remarks.join("; "))
        );
    }
    out.push_str("\nMachines:\n\n");
    for (machine, steps) in machines(kept) {
        let _ = writeln!(out, "- {machine}: {}", steps.join(", "));
    }
    out
}

/// The machines that measured, and the steps of each.
fn machines(kept: &[Kept]) -> Vec<(String, Vec<String>)> {
    let mut machines: Vec<(String, Vec<String>)> = Vec::new();
    for Kept { step, record, .. } in kept {
        let Some(record) = record.as_ref().filter(|record| !record.rounds.is_empty()) else { continue };
        let m = &record.machine;
        let text = format!(
            "{} × {} {}, {} MiB, {}, {}, {}; postlab {} {}",
            m.cores, m.cpu, m.vendor, m.memory_mib, m.system, m.kernel, m.disk, m.postlab, m.build
        );
        match machines.iter_mut().find(|(known, _)| *known == text) {
            Some((_, steps)) => steps.push(step.name.clone()),
            None => machines.push((text, vec![step.name.clone()])),
        }
    }
    machines
}
