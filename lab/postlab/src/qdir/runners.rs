//! Delivery of a queue directory by several runners at once. Each reads, sorts and walks through the whole queue, as
//! queue runs of Sendmail do that overlap; a message is delivered by the one that locks its envelope first.

use super::{
    hosts::host,
    queue::{Order, gather, recipient_host, try_lock},
};
use crate::scratch::Scratch;
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::MetadataExt as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// What the runners have done with one queue.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Run {
    pub(super) delivered: u64,
    /// Messages that another runner had locked when this one came to them.
    pub(super) conflicts: u64,
    /// Messages that another runner had delivered already.
    pub(super) gone: u64,
    pub(super) connections: u64,
    /// From the begin of the run, with reading and sorting.
    pub(super) first: Option<Duration>,
    pub(super) last: Duration,
}

/// Delivers the messages of `queue`; the sink of host number i listens on `addresses[i]`.
pub(super) fn run(
    queue: &Path,
    order: Order,
    runners: u32,
    addresses: &[String],
    scratch: &Scratch,
) -> Result<Run, String> {
    let routes: HashMap<String, &str> =
        addresses.iter().enumerate().map(|(i, address)| (host(i as u32), address.as_str())).collect();
    let begin = Instant::now();
    let results: Vec<io::Result<Run>> = thread::scope(|scope| {
        let walk = || walk(queue, order, &routes, begin, scratch);
        let threads: Vec<_> = (0..runners).map(|_| scope.spawn(walk)).collect();
        let panicked = || Err(io::Error::other("a runner panicked"));
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect()
    });
    let mut all = Run::default();
    for result in results {
        let one = result.map_err(|e| format!("deliver {}: {e}", queue.display()))?;
        all.delivered += one.delivered;
        all.conflicts += one.conflicts;
        all.gone += one.gone;
        all.connections += one.connections;
        all.first = [all.first, one.first].into_iter().flatten().min();
        all.last = all.last.max(one.last);
    }
    Ok(all)
}

/// Walks through the queue as one of the runners does.
fn walk(
    queue: &Path,
    order: Order,
    routes: &HashMap<String, &str>,
    begin: Instant,
    scratch: &Scratch,
) -> io::Result<Run> {
    let mut run = Run::default();
    let mut connection: Option<Connection> = None;
    for work in gather(queue, order)?.0 {
        if scratch.is_stopped() {
            break;
        }
        let mut file = match File::open(queue.join(&work.name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                run.gone += 1;
                continue;
            }
            file => file?,
        };
        if !try_lock(&file)? {
            run.conflicts += 1;
            continue;
        }
        // It was locked until it was removed.
        if file.metadata()?.nlink() == 0 {
            run.gone += 1;
            continue;
        }
        let mut envelope = String::new();
        file.read_to_string(&mut envelope)?;
        let line = envelope.lines().find(|line| line.starts_with("RPFD:")).unwrap_or_default();
        let to = recipient_host(line);
        if connection.as_ref().is_none_or(|connection| connection.host != to) {
            connection.take().map_or(Ok(()), Connection::quit)?;
            let unknown = || io::Error::other(format!("there is no sink for {to}"));
            connection = Some(Connection::open(to, routes.get(to).ok_or_else(unknown)?)?);
            run.connections += 1;
        }
        let content = queue.join(work.name.replacen('q', "d", 1));
        if let Some(connection) = &mut connection {
            connection.send(line.trim_start_matches("RPFD:"), &fs::read(&content)?)?;
        }
        fs::remove_file(content)?;
        fs::remove_file(queue.join(&work.name))?;
        run.delivered += 1;
        run.last = begin.elapsed();
        run.first.get_or_insert(run.last);
    }
    connection.take().map_or(Ok(()), Connection::quit)?;
    Ok(run)
}

/// A connection that stays as long as the next message is for its host.
struct Connection {
    host: String,
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn open(host: &str, address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut connection = Self { host: host.to_owned(), stream: BufReader::new(stream) };
        connection.reply('2')?;
        connection.ask("EHLO postlab.test\r\n", '2')?;
        Ok(connection)
    }

    fn send(&mut self, recipient: &str, content: &[u8]) -> io::Result<()> {
        self.ask("MAIL FROM:<sender@source.test>\r\n", '2')?;
        self.ask(&format!("RCPT TO:{recipient}\r\n"), '2')?;
        self.ask("DATA\r\n", '3')?;
        self.stream.get_mut().write_all(&[content, b"\r\n.\r\n"].concat())?;
        self.reply('2')
    }

    fn quit(mut self) -> io::Result<()> {
        self.ask("QUIT\r\n", '2')
    }

    fn ask(&mut self, command: &str, class: char) -> io::Result<()> {
        self.stream.get_mut().write_all(command.as_bytes())?;
        self.reply(class)
    }

    /// Reads a reply, which may have several lines.
    fn reply(&mut self, class: char) -> io::Result<()> {
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            if !line.starts_with(class) {
                return Err(io::Error::other(format!("{} replied `{}`", self.host, line.trim_end())));
            }
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(());
            }
        }
    }
}
