//! `postlab syslog-loss`: lines of a log that are lost on the way to a collector. Knowles found that classic syslog over UDP loses 75 % and
//! more, and that TCP is the cure.

use crate::{
    device::Device,
    rounds::{Figure, Progress, Rounds},
    scratch::Scratch,
    table::{Column, Format, Table},
};
use clap::{Args, ValueEnum};
use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, ErrorKind, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Measure how many lines of a log are lost on the way to a collector
///
/// A sender writes lines over the loopback, and a collector of one thread writes each line to a file, as syslogd does; with --sync it waits for the
/// disk after each, as syslogd does without `-` before the file. A network only adds to what is lost here.
#[derive(Debug, Args)]
pub struct SyslogLossArgs {
    /// Lines in each round
    #[arg(short = 'n', value_name = "COUNT", default_value = "100000", value_parser = clap::value_parser!(u32).range(1..))]
    lines: u32,
    /// Octets of a line
    #[arg(short = 'l', value_name = "BYTES", default_value = "180", value_parser = clap::value_parser!(u16).range(1..=1024))]
    length: u16,
    /// Lines a second; several are measured in turn, and 0 is as fast as the sender can
    #[arg(long, value_name = "PER SECOND,…", value_delimiter = ',', default_value = "1000,10000,100000,0")]
    rate: Vec<u32>,
    /// The transport; several are measured in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "udp,tcp")]
    over: Vec<Transport>,
    /// The longest time for which a round sends
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = measure::arguments::seconds_of)]
    limit: Duration,
    /// The collector waits for the disk after each line
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    format: Format,
    /// A directory on the disk of the collector
    #[arg(default_value = ".")]
    directory: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// A datagram for each line
    Udp,
    /// A stream of lines
    Tcp,
}

const COLUMNS: [Column; 5] = [
    Column::left("over", "over", 4),
    Column::right("rate", "rate", 10),
    Column::right("lines", "lines", 9),
    Column::right("lines/s", "lines_per_second", 30),
    Column::right("lost %", "lost_percent", 26),
];

/// After the sender has ended, a datagram that is not there after this time is lost.
const SILENCE: Duration = Duration::from_millis(200);
/// Of one datagram or line.
const LONGEST_BYTES: usize = 2048;

/// Measures and prints; Ctrl-C keeps the rounds that are done.
///
/// # Errors
/// The directory cannot be written, or there is no socket.
pub fn run(args: &SyslogLossArgs) -> Result<(), String> {
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    let rounds = u64::from(args.rounds.count);
    let progress = Progress::new("send lines", rounds * args.rate.len() as u64 * args.over.len() as u64);
    let mut table = Table::new(args.format, &COLUMNS, Some(&progress));
    table.fact(device.text());
    for rate in &args.rate {
        for transport in &args.over {
            let (mut sent_all, mut rates, mut lost) = (0, Figure::new(), Figure::new());
            for _ in 0..args.rounds.count {
                if scratch.is_stopped() {
                    break;
                }
                let failed = |e: io::Error| format!("send lines: {e}");
                let sent = round(args, *transport, *rate, scratch.path()).map_err(failed)?;
                sent_all += sent.lines;
                rates.push(f64::from(sent.lines) / sent.seconds.max(1e-9));
                let missing = sent.lines.saturating_sub(sent.received);
                lost.push(100.0 * f64::from(missing) / f64::from(sent.lines.max(1)));
                progress.step();
            }
            let name = transport.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
            let rate = if *rate == 0 { "unlimited".to_owned() } else { rate.to_string() };
            table.row([name.into(), rate.into(), sent_all.into(), rates.into(), lost.into()]);
        }
    }
    table.note(if args.sync { "The collector syncs each line." } else { "The collector does not sync." });
    table.finish();
    Ok(())
}

/// What one round has sent, and what the collector has got.
struct Sent {
    lines: u32,
    seconds: f64,
    received: u32,
}

fn round(args: &SyslogLossArgs, transport: Transport, rate: u32, place: &Path) -> io::Result<Sent> {
    let file = File::create(place.join("collected"))?;
    let (is_over, line) = (AtomicBool::new(false), vec![b'x'; args.length.into()]);
    thread::scope(|scope| {
        let (collector, sent) = match transport {
            Transport::Udp => {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
                let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
                sender.connect(socket.local_addr()?)?;
                let (sync, is_over) = (args.sync, &is_over);
                let collector = scope.spawn(move || datagrams(&socket, file, sync, is_over));
                (collector, send(args, rate, || sender.send(&line).map(drop)))
            }
            Transport::Tcp => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                let mut stream = TcpStream::connect(listener.local_addr()?)?;
                let (accepted, _) = listener.accept()?;
                let collector = scope.spawn(|| stream_of_lines(accepted, file, args.sync));
                let line = [&line[..], b"\n"].concat();
                let sent = send(args, rate, || stream.write_all(&line));
                // Its end ends the collector.
                drop(stream);
                (collector, sent)
            }
        };
        is_over.store(true, Relaxed);
        let received =
            collector.join().unwrap_or_else(|_| Err(io::Error::other("the collector panicked")))?;
        let (lines, seconds) = sent?;
        Ok(Sent { lines, seconds, received })
    })
}

/// Sends at a rate. Returns the count of lines and their time in seconds.
fn send(
    args: &SyslogLossArgs,
    rate: u32,
    mut line: impl FnMut() -> io::Result<()>,
) -> io::Result<(u32, f64)> {
    let begin = Instant::now();
    let mut sent = 0;
    while sent < args.lines && begin.elapsed() < args.limit && !crate::signals::is_stopped() {
        let due = if rate == 0 { 0.0 } else { f64::from(sent) / f64::from(rate) };
        if let Some(early) = Duration::from_secs_f64(due).checked_sub(begin.elapsed()) {
            thread::sleep(early);
        }
        match line() {
            // The queue of the sender's interface is full: the line is lost already.
            Err(e) if e.kind() == ErrorKind::OutOfMemory || e.raw_os_error() == Some(NO_BUFFERS) => {}
            sent => sent?,
        }
        sent += 1;
    }
    Ok((sent, begin.elapsed().as_secs_f64()))
}

/// ENOBUFS of Linux.
const NO_BUFFERS: i32 = 105;

fn datagrams(socket: &UdpSocket, mut file: File, sync: bool, is_over: &AtomicBool) -> io::Result<u32> {
    socket.set_read_timeout(Some(SILENCE))?;
    let (mut buffer, mut count) = ([0; LONGEST_BYTES], 0);
    loop {
        // Before the wait: what was sent before the end is there when the wait begins.
        let was_over = is_over.load(Relaxed);
        match socket.recv(&mut buffer) {
            Ok(length) => {
                write(&mut file, &buffer[..length], sync)?;
                count += 1;
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if was_over {
                    return Ok(count);
                }
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn stream_of_lines(stream: TcpStream, mut file: File, sync: bool) -> io::Result<u32> {
    let (mut lines, mut line, mut count) = (BufReader::new(stream), Vec::new(), 0);
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(count);
        }
        write(&mut file, line.trim_ascii_end(), sync)?;
        count += 1;
    }
}

/// Writes a line as syslogd does.
fn write(file: &mut File, line: &[u8], sync: bool) -> io::Result<()> {
    file.write_all(&[line, b"\n"].concat())?;
    if sync { file.sync_data() } else { Ok(()) }
}
