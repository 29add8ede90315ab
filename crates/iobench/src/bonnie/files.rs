//! Thousands of small files, as a queue has them: made, looked at and removed, in order and in none.

use super::{Options, report::Phase};
use crate::{rounds::Progress, scratch::Scratch, usage::cpu_time};
use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    time::Instant,
};

/// Create, read and delete in sequential order, then in random order.
pub(super) fn run(
    options: &Options,
    scratch: &Scratch,
    progress: &Progress,
) -> io::Result<[Option<Phase>; 6]> {
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut phases = [None; 6];
    for half in 0..2 {
        let directory = scratch.path().join(format!("files{half}"));
        let paths = names(options, &directory, half == 1, &mut random)?;
        let mut order: Vec<usize> = (0..paths.len()).collect();
        let mut create = random.fork();
        phases[half * 3] = Some(timed(&paths, &order, scratch, |path| make(options, path, &mut create))?);
        if half == 1 {
            random.shuffle(&mut order);
        }
        progress.step();
        phases[half * 3 + 1] = Some(timed(&paths, &order, scratch, |path| look(options, path))?);
        if half == 1 {
            random.shuffle(&mut order);
        }
        progress.step();
        phases[half * 3 + 2] = Some(timed(&paths, &order, scratch, |path| {
            fs::remove_file(path)?;
            if options.syncs { File::open(path.parent().unwrap_or(path))?.sync_all() } else { Ok(()) }
        })?);
        progress.step();
        fs::remove_dir_all(&directory)?;
    }
    Ok(phases)
}

/// Names that sort as they are made begin with their number; others begin with chance.
fn names(
    options: &Options,
    directory: &Path,
    is_random: bool,
    random: &mut fastrand::Rng,
) -> io::Result<Vec<PathBuf>> {
    let directories: Vec<PathBuf> = match options.directories {
        0 | 1 => vec![directory.to_owned()],
        count => (0..count).map(|i| directory.join(format!("{i:05}"))).collect(),
    };
    directories.iter().try_for_each(fs::create_dir_all)?;
    let name = |i: u32| {
        let tail: String = (0..random.usize(..12)).map(|_| random.alphanumeric()).collect();
        let name = if is_random { format!("{tail}{i:07}") } else { format!("{i:07}{tail}") };
        directories[i as usize % directories.len()].join(name)
    };
    Ok((0..options.files * 1024).map(name).collect())
}

fn timed(
    paths: &[PathBuf],
    order: &[usize],
    scratch: &Scratch,
    mut work: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<Phase> {
    let (begin, cpu) = (Instant::now(), cpu_time());
    for i in order {
        work(&paths[*i])?;
        if scratch.is_stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    let cpu_seconds = cpu_time().saturating_sub(cpu).as_secs_f64();
    Ok(Phase { amount: order.len() as f64, seconds: begin.elapsed().as_secs_f64(), cpu_seconds })
}

fn make(options: &Options, path: &Path, random: &mut fastrand::Rng) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let size = random.usize(options.file_min as usize..=options.file_max as usize);
    if size > 0 {
        file.write_all(&vec![b'f'; size])?;
    }
    if options.syncs {
        file.sync_all()?;
        File::open(path.parent().unwrap_or(path))?.sync_all()?;
    }
    Ok(())
}

fn look(options: &Options, path: &Path) -> io::Result<()> {
    fs::metadata(path)?;
    if options.file_max > 0 {
        let mut content = Vec::new();
        File::open(path)?.read_to_end(&mut content)?;
    }
    Ok(())
}
