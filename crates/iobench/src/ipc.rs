//! `postlab ipc`: sendmail X's t-net-0. Octets go to and fro between a client and a server, over what
//! modules on one machine could speak through.

use crate::rounds::{Figure, Progress, Rounds};
use clap::{Args, ValueEnum};
use rustix::event::{EventfdFlags, eventfd};
use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{Child, Command, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::{Duration, Instant},
};

/// Measure round trips between two processes over sockets, pipes and eventfds, and between threads over memory
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
    #[arg(long, hide = true, value_parser = Trip::parse)]
    far: Option<(Trip, u32)>,
    #[command(flatten)]
    rounds: Rounds,
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
    /// Memory that two threads share, and a futex to wake who waits
    Memory,
    /// Two eventfds, which carry eight octets and no more
    Eventfd,
}

impl Transport {
    const ALL: [Self; 5] = [Self::Inet, Self::Local, Self::Pipe, Self::Memory, Self::Eventfd];

    fn name(self) -> &'static str {
        match self {
            Self::Inet => "INET",
            Self::Local => "LOCAL",
            Self::Pipe => "pipe",
            Self::Memory => "memory",
            Self::Eventfd => "eventfd",
        }
    }
}

/// Measures and prints; Ctrl-C ends it at once, and what was measured until then is printed.
pub fn run(args: &IpcArgs) -> Result<(), String> {
    if let Some((trip, trips)) = args.far {
        return far_process(trip, trips).map_err(|e| format!("answer: {e}"));
    }
    let ways = match (args.local, args.over.is_empty()) {
        (true, _) => vec![Transport::Local],
        (false, true) => Transport::ALL.to_vec(),
        (false, false) => args.over.clone(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    crate::signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    let progress = Progress::new("to and fro", (ways.len() * args.client.len()) as u64);
    println!("{:>7} {:>6} {:>8} {:>34} {:>28}", "", "bytes", "trips", "round trips/s", "µs a round trip");
    for transport in ways {
        // An eventfd carries the same eight whatever is asked for.
        let sizes = if transport == Transport::Eventfd { &[8][..] } else { &args.client };
        for size in sizes {
            let row = row(args, transport, *size, &stop)
                .map_err(|e| format!("speak over {}: {e}", transport.name()))?;
            if row.trips > 0 {
                println!(
                    "{:>7} {size:>6} {:>8} {:>34} {:>28}",
                    transport.name(),
                    row.trips,
                    row.per_second,
                    row.micros
                );
            }
            progress.step();
            if stop.load(Relaxed) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// One size over one transport.
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
    let mut row = Row::default();
    for _ in 0..args.rounds.count {
        let (trips, took) = measure(args, transport, client, server, stop)?;
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

/// Returns the number of trips, and the time of all of them together.
fn measure(
    args: &IpcArgs,
    transport: Transport,
    client: u32,
    server: u32,
    stop: &AtomicBool,
) -> io::Result<(u32, Duration)> {
    let trip = Trip { buffer: args.buffer as usize, client: client as usize, server: server as usize };
    match transport {
        Transport::Inet => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let near = TcpStream::connect(listener.local_addr()?)?;
            let (far, _) = listener.accept()?;
            // Without it each round waits for a delayed acknowledgement.
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            let other = Far::start(far.try_clone()?.into(), far.into(), args.trips, trip)?;
            exchange(Ends::of(near.try_clone()?, near), other, args.trips, trip, stop)
        }
        Transport::Local => {
            let (near, far) = UnixStream::pair()?;
            let other = Far::start(far.try_clone()?.into(), far.into(), args.trips, trip)?;
            exchange(Ends::of(near.try_clone()?, near), other, args.trips, trip, stop)
        }
        Transport::Pipe => {
            let (there, back) = (io::pipe()?, io::pipe()?);
            let other = Far::start(there.0.into(), back.1.into(), args.trips, trip)?;
            exchange(Ends::of(back.0, there.1), other, args.trips, trip, stop)
        }
        Transport::Memory => {
            let (there, back) = (Ring::default(), Ring::default());
            let other = Far::thread(Ends::of(there.clone(), back.clone()), args.trips, trip);
            exchange(Ends::of(back, there), other, args.trips, trip, stop)
        }
        Transport::Eventfd => {
            let one = || eventfd(0, EventfdFlags::CLOEXEC);
            let (there, back) = (one()?, one()?);
            let other = Far::start(there.try_clone()?, back.try_clone()?, args.trips, trip)?;
            exchange(Ends::of(File::from(back), File::from(there)), other, args.trips, trip, stop)
        }
    }
}

/// The other side.
enum Far {
    Process(Child),
    Thread(thread::JoinHandle<io::Result<()>>, Arc<AtomicBool>),
}

impl Far {
    /// Runs this program again; it reads from its standard input and writes to its standard output.
    fn start(from: OwnedFd, to: OwnedFd, trips: u32, trip: Trip) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let Trip { buffer, client, server } = trip;
        command.args(["ipc", "--far", &format!("{buffer}:{client}:{server}:{trips}")]);
        command.stdin(Stdio::from(from)).stdout(Stdio::from(to));
        // Ctrl-C is for this process, which ends the other one.
        command.process_group(0);
        Ok(Self::Process(command.spawn()?))
    }

    fn thread(ends: Ends, trips: u32, trip: Trip) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = over.clone();
        Self::Thread(thread::spawn(move || answer(ends, trips, trip, &is_over)), over)
    }

    /// Waits for its end, or ends it.
    fn end(&mut self, near: &mut Ends, content: &[u8], trip: Trip, is_stopped: bool) -> io::Result<()> {
        match self {
            Self::Process(child) => {
                if is_stopped {
                    child.kill()?;
                }
                let status = child.wait()?;
                if is_stopped || status.success() {
                    Ok(())
                } else {
                    Err(io::Error::other(format!("{status}")))
                }
            }
            Self::Thread(thread, over) => {
                if is_stopped {
                    // It waits for octets: it gets some, and sees that it is over.
                    over.store(true, SeqCst);
                    near.say(content, trip.client)?;
                }
                while !thread.is_finished() {
                    thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            }
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        if let Self::Process(child) = self {
            // It has ended where all went well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The other process.
fn far_process(trip: Trip, trips: u32) -> io::Result<()> {
    let (from, to) = (io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?);
    answer(Ends::of(File::from(from), File::from(to)), trips, trip, &AtomicBool::new(false))
}

/// Content as a number, which is how an eventfd wants it: one, in either order of octets.
fn content(trip: Trip) -> Vec<u8> {
    (0..trip.buffer.max(8)).map(|i| u8::from(i % 8 == 0)).collect()
}

fn answer(mut far: Ends, trips: u32, trip: Trip, is_over: &AtomicBool) -> io::Result<()> {
    let answers = content(trip);
    let mut heard = answers.clone();
    // One more than is measured.
    for _ in 0..=trips {
        far.hear(&mut heard, trip.client)?;
        if is_over.load(SeqCst) {
            break;
        }
        far.say(&answers, trip.server)?;
    }
    Ok(())
}

/// Octets on their transport from one thread to another. std's condition variable is a futex.
#[derive(Clone, Default)]
struct Ring(Arc<(Mutex<VecDeque<u8>>, Condvar)>);

/// As a pipe has it.
const RING_BYTES: usize = 64 * 1024;

impl Ring {
    /// Waits until `is_ready`, then does `work`, and wakes the other side.
    fn with<T>(
        &self,
        is_ready: impl Fn(&VecDeque<u8>) -> bool,
        work: impl FnOnce(&mut VecDeque<u8>) -> T,
    ) -> io::Result<T> {
        let (octets, changed) = &*self.0;
        let broken = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        let octets = octets.lock().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        let mut octets = changed.wait_while(octets, |octets| !is_ready(octets)).map_err(broken)?;
        let done = work(&mut octets);
        drop(octets);
        changed.notify_one();
        Ok(done)
    }
}

impl Read for Ring {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.with(|octets| !octets.is_empty(), |octets| octets.read(buffer))?
    }
}

impl Write for Ring {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(
            |octets| octets.len() < RING_BYTES,
            |octets| {
                let length = bytes.len().min(RING_BYTES - octets.len());
                octets.extend(&bytes[..length]);
                length
            },
        )
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One side: where it reads, and where it writes.
struct Ends {
    from: Box<dyn Read + Send>,
    to: Box<dyn Write + Send>,
}

impl Ends {
    fn of(from: impl Read + Send + 'static, to: impl Write + Send + 'static) -> Self {
        Self { from: Box::new(from), to: Box::new(to) }
    }

    fn say(&mut self, buffer: &[u8], mut size: usize) -> io::Result<()> {
        while size > 0 {
            let part = size.min(buffer.len());
            self.to.write_all(&buffer[..part])?;
            size -= part;
        }
        Ok(())
    }

    fn hear(&mut self, buffer: &mut [u8], mut size: usize) -> io::Result<()> {
        while size > 0 {
            let part = size.min(buffer.len());
            self.from.read_exact(&mut buffer[..part])?;
            size -= part;
        }
        Ok(())
    }
}

/// Octets.
#[derive(Debug, Clone, Copy)]
struct Trip {
    buffer: usize,
    client: usize,
    server: usize,
}

impl Trip {
    /// `buffer:client:server:trips`
    fn parse(text: &str) -> Result<(Self, u32), String> {
        let numbers: Vec<u32> = text.split(':').filter_map(|word| word.parse().ok()).collect();
        let [buffer, client, server, trips] = numbers[..] else {
            return Err(format!("`{text}` is not buffer:client:server:trips"));
        };
        Ok((Self { buffer: buffer as usize, client: client as usize, server: server as usize }, trips))
    }
}

fn exchange(
    mut near: Ends,
    mut other: Far,
    trips: u32,
    trip: Trip,
    stop: &AtomicBool,
) -> io::Result<(u32, Duration)> {
    let content = content(trip);
    let mut heard = content.clone();
    // The first trip waits for the other side's start, and does not count.
    near.say(&content, trip.client)?;
    near.hear(&mut heard, trip.server)?;
    let begin = Instant::now();
    let mut done = 0;
    while done < trips && !stop.load(Relaxed) {
        near.say(&content, trip.client)?;
        near.hear(&mut heard, trip.server)?;
        done += 1;
    }
    let took = begin.elapsed();
    other.end(&mut near, &content, trip, done < trips)?;
    Ok((done, took))
}
