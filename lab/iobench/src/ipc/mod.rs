//! `postlab ipc`: sendmail X's t-net-0. Octets go to and fro between a client and a server, over what
//! modules on one machine could speak through.

mod far;
mod link;
mod locked_deque;
mod uring;

use crate::{
    rounds::{Figure, Progress, Rounds},
    shared_memory::{self, SharedMemory, Side, Waiting},
    table::{Column, Format, Table},
};
use clap::{Args, ValueEnum};
use far::{Far, Task};
use link::{Content, EventReader, Link, Trip, check_last};
use locked_deque::LockedDeque;
use rustix::event::{EventfdFlags, eventfd};
use std::{
    fs::File,
    io,
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use uring::UringSocket;

/// Measure round trips between two processes over sockets, pipes, eventfds, shared memory and io_uring
#[derive(Debug, Args)]
pub struct IpcArgs {
    /// Octets of the buffers
    #[arg(short = 'b', value_name = "BYTES", default_value = "8192", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    buffer: u32,
    /// Octets the client writes in a round; several are tried in turn
    #[arg(short = 'c', value_name = "BYTES,…", value_delimiter = ',', default_value = "32,64,128,256,512,1024",
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    client: Vec<u32>,
    /// Octets the server answers with [default: as many]
    #[arg(short = 's', value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    server: Option<u32>,
    /// Rounds of writing and reading
    #[arg(short = 'R', value_name = "COUNT", default_value = "100000", value_parser = clap::value_parser!(u32).range(1..))]
    trips: u32,
    /// Over a Unix domain socket only
    #[arg(short = 'u', conflicts_with = "over")]
    local: bool,
    /// Over these only; several with commas
    #[arg(long, value_enum, value_delimiter = ',')]
    over: Vec<Transport>,
    #[arg(long, hide = true, value_parser = Task::parse)]
    far: Option<Task>,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    format: Format,
}

/// The transport between the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// TCP on 127.0.0.1
    Inet,
    /// A Unix domain socket
    Local,
    /// Two pipes
    Pipe,
    /// Memory that two threads of one process share: a deque protected by a mutex
    Memory,
    /// Two eventfds, which carry eight octets and no more
    Eventfd,
    /// Two rings in memory that two processes share, and a futex to wake the side that waits
    Futex,
    /// Rings as for futex; the side that waits spins, then yields the processor
    Ring,
    /// A Unix domain socket through io_uring, with one system call for sending and receiving
    #[value(name = "io_uring", alias = "io-uring")]
    IoUring,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Self::Inet => "INET",
            Self::Local => "LOCAL",
            Self::Pipe => "pipe",
            Self::Memory => "memory, threads",
            Self::Eventfd => "eventfd",
            Self::Futex => "futex",
            Self::Ring => "ring",
            Self::IoUring => "io_uring",
        }
    }
}

const COLUMNS: [Column; 5] = [
    Column::left("", "transport", 15),
    Column::right("bytes", "bytes", 7),
    Column::right("trips", "trips", 8),
    Column::right("round trips/s", "round_trips_per_second", 34),
    Column::right("µs a round trip", "us_per_round_trip", 28),
];

/// Measures and prints; Ctrl-C ends it at once, and what was measured until then is printed.
pub fn run(args: &IpcArgs) -> Result<(), String> {
    if let Some(task) = args.far {
        return far::process(task).map_err(|e| format!("answer: {e}"));
    }
    let transports = match (args.local, args.over.is_empty()) {
        (true, _) => vec![Transport::Local],
        (false, true) => Transport::value_variants().to_vec(),
        (false, false) => args.over.clone(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    crate::signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    let progress = Progress::new("to and fro", (transports.len() * args.client.len()) as u64);
    let mut table = Table::new(args.format, &COLUMNS, Some(&progress));
    let processors = thread::available_parallelism().map_or(1, usize::from);
    table.fact(format!("Between two processes on {processors} processors; memory between two threads"));
    let mut failure = Ok(());
    for transport in transports {
        if let (Transport::IoUring, Some(why)) = (transport, uring::refusal()) {
            table.note(format!("io_uring was not measured: {why}"));
            if args.over.contains(&transport) {
                failure = Err(format!("speak over io_uring: {why}"));
            }
            continue;
        }
        if let Err(e) = rows(args, transport, &stop, &progress, &mut table) {
            // What was measured before is printed.
            failure = Err(e);
            break;
        }
    }
    table.finish();
    failure
}

/// Measures each size over one transport.
fn rows(
    args: &IpcArgs,
    transport: Transport,
    stop: &AtomicBool,
    progress: &Progress,
    table: &mut Table<'_>,
) -> Result<(), String> {
    // An eventfd carries the same eight whatever is asked for.
    let sizes = if transport == Transport::Eventfd { &[8][..] } else { &args.client };
    for size in sizes {
        if stop.load(Relaxed) {
            return Ok(());
        }
        let row =
            row(args, transport, *size, stop).map_err(|e| format!("speak over {}: {e}", transport.name()))?;
        if row.trips > 0 {
            table.row([
                transport.name().into(),
                (*size).into(),
                row.trips.into(),
                row.per_second.into(),
                row.micros.into(),
            ]);
        }
        progress.step();
    }
    Ok(())
}

/// One size of request over one transport.
#[derive(Debug, Default)]
struct Row {
    /// Of the longest round.
    trips: u32,
    per_second: Figure,
    micros: Figure,
}

/// All rounds. One that was cut short counts only if it is the first.
fn row(args: &IpcArgs, transport: Transport, client: u32, stop: &AtomicBool) -> io::Result<Row> {
    let server = if transport == Transport::Eventfd { 8 } else { args.server.unwrap_or(client) };
    let trip = Trip { buffer: args.buffer as usize, client: client as usize, server: server as usize };
    let task = Task::new(transport, trip, args.trips);
    let mut row = Row::default();
    for _ in 0..args.rounds.count {
        let (near, other) = connect(task)?;
        let (trips, took) = exchange(near, other, task, stop)?;
        let is_cut = trips < args.trips;
        if trips == 0 || is_cut && row.trips > 0 {
            break;
        }
        row.trips = row.trips.max(trips);
        row.per_second.push(f64::from(trips) / took.as_secs_f64());
        row.micros.push(took.as_secs_f64() * 1e6 / f64::from(trips));
    }
    Ok(row)
}

/// Opens the transport and starts the other side.
fn connect(task: Task) -> io::Result<(Link, Far)> {
    match task.transport {
        Transport::Inet => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let near = TcpStream::connect(listener.local_addr()?)?;
            let (far, _) = listener.accept()?;
            // Without it each round waits for a delayed acknowledgement.
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            let other = Far::start(task, far.try_clone()?.into(), far.into())?;
            Ok((Link::new(near), other))
        }
        Transport::Local => {
            let (near, far) = UnixStream::pair()?;
            let other = Far::start(task, far.try_clone()?.into(), far.into())?;
            Ok((Link::new(near), other))
        }
        Transport::IoUring => {
            let (near, far) = UnixStream::pair()?;
            let other = Far::start(task, far.try_clone()?.into(), far.into())?;
            Ok((Link::new(UringSocket::new(near.into())?), other))
        }
        Transport::Pipe => {
            let (there, back) = (io::pipe()?, io::pipe()?);
            let other = Far::start(task, there.0.into(), back.1.into())?;
            Ok((Link::of(back.0, there.1), other))
        }
        Transport::Memory => {
            let ([reader, there], [from, back]) = (LockedDeque::pair(), LockedDeque::pair());
            let other = Far::thread(task, Link::of(reader, back));
            Ok((Link::of(from, there), other))
        }
        Transport::Eventfd => {
            let one = || eventfd(0, EventfdFlags::CLOEXEC);
            let (there, back) = (one()?, one()?);
            let other = Far::start(task, there.try_clone()?, back.try_clone()?)?;
            let reader = EventReader::new(File::from(back));
            let close = reader.closer()?;
            Ok((Link::of(reader, File::from(there)), other.on_end(close)?))
        }
        Transport::Futex => share(task, Waiting::Futex),
        Transport::Ring => share(task, Waiting::Spinning),
    }
}

/// Opens memory that the other process maps too.
fn share(task: Task, waiting: Waiting) -> io::Result<(Link, Far)> {
    let file = shared_memory::create()?;
    let near = SharedMemory::open(&file, Side::Near, waiting)?;
    let closer = near.closer();
    let other = Far::start(task, file.try_clone()?, file)?;
    Ok((Link::new(near), other.on_end(move || closer.close())?))
}

/// Returns the number of trips, and the time of all of them together.
fn exchange(mut near: Link, other: Far, task: Task, stop: &AtomicBool) -> io::Result<(u32, Duration)> {
    match trips(&mut near, task, stop) {
        Ok((done, took)) => {
            other.end(near, done < task.trips)?;
            Ok((done, took))
        }
        Err(error) => Err(other.cause(near, error)),
    }
}

fn trips(near: &mut Link, task: Task, stop: &AtomicBool) -> io::Result<(u32, Duration)> {
    let Task { trip, trips, .. } = task;
    let content = Content::new(task.transport, trip);
    let mut received = vec![0; content.server.len()];
    // The first trip waits for the other side's start, and does not count. Its octets are compared.
    near.send(&content.client, trip.client)?;
    near.receive_checked(&mut received, &content.server, trip.server)?;
    let begin = Instant::now();
    let mut done = 0;
    while done < trips && !stop.load(Relaxed) {
        near.send(&content.client, trip.client)?;
        near.receive(&mut received, trip.server)?;
        done += 1;
    }
    let took = begin.elapsed();
    check_last(&received, &content.server, trip.server)?;
    Ok((done, took))
}
