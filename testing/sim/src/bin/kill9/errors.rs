//! `kill9 --errors`: the daemon on a disk that begins to answer EIO under load. It must refuse, and end;
//! when the disk is well again and it is started anew, whatever it answered 250 must arrive, or be
//! reported to its sender.

use super::{SESSIONS, Tally, client, daemon::DaemonUnderTest, device::Device, missing, more};
use sim::seed::Rng;
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// Exit code of postrider when its spool has failed: EX_IOERR of sysexits.h.
const IO_ERROR: i32 = 74;
pub(crate) fn run(binary: &Path, rounds: u64, seed: u64) -> Result<(), String> {
    let failed = |what: &str, e: std::io::Error| format!("{what}: {e}");
    let dir = tempfile::tempdir().map_err(|e| failed("make a folder", e))?;
    let device = match Device::new(dir.path()) {
        Ok(device) => device,
        Err(what) => {
            println!("SKIPPED: {rounds} rounds of disk errors: {what}");
            return Ok(());
        }
    };
    let sink = super::Sink::start().map_err(|e| failed("listen", e))?;
    let (begun, mut rng, mut tally, mut refused) = (Instant::now(), Rng::new(seed), Tally::default(), 0);
    for round in 0..rounds {
        let daemon_under_test =
            DaemonUnderTest::new(binary, &device.at(), sink.address).map_err(|e| failed("set up", e))?;
        let mut daemon = daemon_under_test.start().map_err(|e| failed("start the daemon", e))?;
        daemon.listening()?;
        let goal = 1 + rng.index(400);
        refused += until_it_ends(&format!("e{round}"), &daemon_under_test, goal, &device, &mut tally)?;
        let code = daemon.ended(crate::client::WAIT_TIMEOUT)?;
        if code != Some(IO_ERROR) {
            return Err(format!("the daemon ended with {code:?} instead of {IO_ERROR}"));
        }
        device.fail(false).map_err(|e| failed("end the errors", e))?;
        device.remount()?;
    }
    let daemon_under_test =
        DaemonUnderTest::new(binary, &device.at(), sink.address).map_err(|e| failed("set up", e))?;
    let daemon = daemon_under_test.start().map_err(|e| failed("start the daemon", e))?;
    daemon.listening()?;
    sink.wait(Duration::from_secs(20), |arrivals| missing(&tally, arrivals).next().is_none());
    let complaints = daemon.stop()?;
    let arrivals = sink.arrivals();
    let lost: Vec<&String> = missing(&tally, &arrivals).collect();
    println!(
        "{rounds} rounds of disk errors in {:.1} s, {} messages answered 250 and {refused} answered 4yz, {} lost, \
         {} damaged, {} arrived twice and {} were reported twice",
        begun.elapsed().as_secs_f64(),
        tally.acknowledged.len(),
        lost.len(),
        arrivals.damaged.len(),
        more(&arrivals.taken),
        more(&arrivals.reported),
    );
    match (&lost[..], &arrivals.damaged[..], &complaints[..]) {
        ([], [], []) if refused > 0 || rounds == 0 => Ok(()),
        ([], [], []) => Err("nobody read a refusal".to_owned()),
        _ => Err(format!("lost: {lost:?}\ndamaged: {:?}\n{}", arrivals.damaged, complaints.join("\n"))),
    }
}

/// Sends, lets the disk fail after so many 250s, and goes on until no session is left. How many messages
/// were answered 4yz; any other refusal is none.
fn until_it_ends(
    name: &str,
    daemon_under_test: &DaemonUnderTest,
    goal: usize,
    device: &Device,
    tally: &mut Tally,
) -> Result<u64, String> {
    std::thread::scope(|scope| {
        let told = client::load(scope, SESSIONS, daemon_under_test.address, name);
        let (mut count, mut refused) = (0, 0);
        let mut wrong = None;
        for (name, code) in told {
            match code {
                250 => {
                    tally.acknowledged.push(name);
                    count += 1;
                    if count == goal {
                        wrong = device.fail(true).err().map(|e| format!("begin the errors: {e}"));
                    }
                }
                400..500 => refused += 1,
                _ => wrong = Some(format!("{name} was answered {code}")),
            }
        }
        wrong.map_or(Ok(refused), Err)
    })
}
