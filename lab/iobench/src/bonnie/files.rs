//! Thousands of small files, as a queue has them: made, looked at and removed, in order and in none.

use super::{Entry, Options, dice::Dice, report::Phase, turns::PhaseStart};
use crate::{rounds::Progress, scratch::Scratch, usage::cpu_time};
use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// The small files of one copy, and the order in which it visits them.
struct Copy {
    paths: Vec<PathBuf>,
    order: Vec<usize>,
    dice: Dice,
}

/// Create, read and delete in sequential order, then in random order.
pub(super) fn run(
    options: &Options,
    scratch: &Scratch,
    progress: &Progress,
    turns: &PhaseStart,
) -> io::Result<[Option<Phase>; 6]> {
    let mut phases = [None; 6];
    // The file that links are made of.
    let origin = scratch.path().join("origin");
    File::create(&origin)?;
    for half in 0..2 {
        let directory = |copy: u32| scratch.path().join(format!("files{half}-{copy}"));
        let copy = |number: u32| -> io::Result<Copy> {
            let mut dice = options.dice.part(u64::from(number) * 7 + half);
            let paths = names(options, &directory(number), half == 1, &mut dice)?;
            Ok(Copy { order: (0..paths.len()).collect(), paths, dice })
        };
        let mut copies = (0..options.copies).map(copy).collect::<io::Result<Vec<_>>>()?;
        type Work<'w> = &'w (dyn Fn(&Path, &mut Dice) -> io::Result<()> + Sync);
        let create: Work<'_> = &|path, dice| make(options, path, &origin, dice);
        let read: Work<'_> = &|path, _| look(options, path);
        let delete: Work<'_> = &|path, _| {
            fs::remove_file(path)?;
            if options.syncs { File::open(path.parent().unwrap_or(path))?.sync_all() } else { Ok(()) }
        };
        for (i, work) in [create, read, delete].into_iter().enumerate() {
            turns.wait()?;
            phases[half as usize * 3 + i] = Some(timed(&mut copies, scratch, work)?);
            for copy in copies.iter_mut().filter(|_| half == 1) {
                copy.dice.shuffle(&mut copy.order);
            }
            progress.step();
        }
        (0..options.copies).try_for_each(|number| fs::remove_dir_all(directory(number)))?;
    }
    fs::remove_file(origin)?;
    Ok(phases)
}

/// Names that sort as they are made begin with their number; others begin with chance.
fn names(options: &Options, directory: &Path, is_random: bool, dice: &mut Dice) -> io::Result<Vec<PathBuf>> {
    let directories: Vec<PathBuf> = match options.directories {
        0 | 1 => vec![directory.to_owned()],
        count => (0..count).map(|i| directory.join(format!("{i:05}"))).collect(),
    };
    directories.iter().try_for_each(fs::create_dir_all)?;
    const LETTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let name = |i: u32| {
        let letter = |dice: &mut Dice| char::from(LETTERS[dice.below(LETTERS.len() as u64) as usize]);
        let tail: String = (0..dice.below(12)).map(|_| letter(dice)).collect();
        let name = if is_random { format!("{tail}{i:07}") } else { format!("{i:07}{tail}") };
        directories[i as usize % directories.len()].join(name)
    };
    Ok((0..options.files * 1024).map(name).collect())
}

/// Does the work on the files of all copies at once.
fn timed(
    copies: &mut [Copy],
    scratch: &Scratch,
    work: &(dyn Fn(&Path, &mut Dice) -> io::Result<()> + Sync),
) -> io::Result<Phase> {
    let (begin, cpu) = (Instant::now(), cpu_time());
    let amount = copies.iter().map(|copy| copy.order.len() as f64).sum();
    let one = |copy: &mut Copy| -> io::Result<Duration> {
        let mut longest = Duration::ZERO;
        for i in &copy.order {
            let begin = Instant::now();
            work(&copy.paths[*i], &mut copy.dice)?;
            longest = longest.max(begin.elapsed());
            if scratch.is_stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        Ok(longest)
    };
    let one = &one;
    let longest: Vec<io::Result<Duration>> = thread::scope(|scope| {
        let threads: Vec<_> = copies.iter_mut().map(|copy| scope.spawn(move || one(copy))).collect();
        let panicked = || Err(io::Error::other("a copy panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    });
    let seconds = begin.elapsed().as_secs_f64();
    let longest = longest.into_iter().collect::<io::Result<Vec<_>>>()?.into_iter().max().unwrap_or_default();
    Ok(Phase { amount, seconds, cpu_seconds: cpu_time().saturating_sub(cpu).as_secs_f64(), longest })
}

fn make(options: &Options, path: &Path, origin: &Path, dice: &mut Dice) -> io::Result<()> {
    match options.entry {
        Entry::HardLink => fs::hard_link(origin, path)?,
        Entry::SymbolicLink => symlink(origin, path)?,
        Entry::File => {
            let mut file = File::create_new(path)?;
            let size = options.file_min + dice.below(options.file_max - options.file_min + 1);
            let content = vec![b'f'; size as usize];
            content.chunks(options.file_chunk).try_for_each(|chunk| file.write_all(chunk))?;
            if options.syncs {
                file.sync_all()?;
            }
        }
    }
    if options.syncs { File::open(path.parent().unwrap_or(path))?.sync_all() } else { Ok(()) }
}

fn look(options: &Options, path: &Path) -> io::Result<()> {
    fs::symlink_metadata(path)?;
    if options.entry == Entry::File && options.file_max > 0 {
        let (mut file, mut chunk) = (File::open(path)?, vec![0; options.file_chunk]);
        while file.read(&mut chunk)? > 0 {}
    }
    Ok(())
}
