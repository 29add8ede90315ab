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
    os::unix::net::UnixStream,
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

/// Measure round trips between two threads over sockets, pipes, shared memory and eventfds
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
    /// Memory that both share, and a futex to wake who waits
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
    let go = |near: Ends, far: Ends| exchange(near, far, args.trips, trip, stop);
    match transport {
        Transport::Inet => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let near = TcpStream::connect(listener.local_addr()?)?;
            let (far, _) = listener.accept()?;
            // Without it each round waits for a delayed acknowledgement.
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            go(Ends::of(near.try_clone()?, near), Ends::of(far.try_clone()?, far))
        }
        Transport::Local => {
            let (near, far) = UnixStream::pair()?;
            go(Ends::of(near.try_clone()?, near), Ends::of(far.try_clone()?, far))
        }
        Transport::Pipe => {
            let (there, back) = (io::pipe()?, io::pipe()?);
            go(Ends::of(back.0, there.1), Ends::of(there.0, back.1))
        }
        Transport::Memory => {
            let (there, back) = (Ring::default(), Ring::default());
            go(Ends::of(back.clone(), there.clone()), Ends::of(there, back))
        }
        Transport::Eventfd => {
            let one = || eventfd(0, EventfdFlags::CLOEXEC).map(File::from);
            let (there, back) = (one()?, one()?);
            go(Ends::of(back.try_clone()?, there.try_clone()?), Ends::of(there, back))
        }
    }
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

fn exchange(
    mut near: Ends,
    mut far: Ends,
    trips: u32,
    trip: Trip,
    stop: &AtomicBool,
) -> io::Result<(u32, Duration)> {
    // As a number, which is how an eventfd wants them: one, in either order of octets.
    let content: Vec<u8> = (0..trip.buffer.max(8)).map(|i| u8::from(i % 8 == 0)).collect();
    let answers = content.clone();
    // An eventfd has no end that could be read: who stops says so, and writes once more.
    let over = Arc::new(AtomicBool::new(false));
    let is_over = over.clone();
    let other = thread::spawn(move || -> io::Result<()> {
        let mut heard = answers.clone();
        for _ in 0..trips {
            far.hear(&mut heard, trip.client)?;
            if is_over.load(SeqCst) {
                break;
            }
            far.say(&answers, trip.server)?;
        }
        Ok(())
    });
    let mut heard = content.clone();
    let begin = Instant::now();
    let mut done = 0;
    while done < trips {
        if stop.load(Relaxed) {
            over.store(true, SeqCst);
            near.say(&content, trip.client)?;
            break;
        }
        near.say(&content, trip.client)?;
        near.hear(&mut heard, trip.server)?;
        done += 1;
    }
    let took = begin.elapsed();
    other.join().unwrap_or_else(|_| Err(io::Error::other("the server panicked")))?;
    Ok((done, took))
}
