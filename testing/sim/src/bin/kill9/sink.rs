//! The next hop: counts what arrives and looks whether it arrives as it was sent.

use super::mail::{self, Course};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    io::{self, BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// An outcome may wait so long for a commit it can ride with; until then a kill forgets it.
const OUTCOME_DELAY: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Arrivals {
    /// By name: how often it was taken.
    pub(crate) taken: HashMap<String, u32>,
    /// By name: reports to its sender.
    pub(crate) reported: HashMap<String, u32>,
    /// Names that were deferred once.
    deferred: HashSet<String>,
    /// Messages that arrived and were not what was sent.
    pub(crate) damaged: Vec<String>,
    /// Transactions that have begun and were not answered.
    open: usize,
    /// Times at which transactions were answered lately.
    answered: VecDeque<Instant>,
    /// Content is taken, and the answer does not come.
    holds: bool,
}

#[derive(Default)]
struct SharedArrivals {
    arrivals: Mutex<Arrivals>,
    news: Condvar,
}

/// Listens as long as the process runs.
#[derive(Clone)]
pub(crate) struct Sink {
    pub(crate) address: SocketAddr,
    kept: Arc<SharedArrivals>,
}

impl Sink {
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let sink = Self { address: listener.local_addr()?, kept: Arc::default() };
        let own = sink.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let own = own.clone();
                std::thread::spawn(move || own.serve(&stream));
            }
        });
        Ok(sink)
    }

    pub(crate) fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.kept.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Messages whose outcome the daemon may not have stored yet.
    pub(crate) fn in_flight(&self) -> usize {
        let mut arrivals = self.arrivals();
        while arrivals.answered.front().is_some_and(|at| at.elapsed() > OUTCOME_DELAY) {
            arrivals.answered.pop_front();
        }
        arrivals.open + arrivals.answered.len()
    }

    /// Waits until it is so, or nothing has come for so long.
    pub(crate) fn wait(&self, limit: Duration, mut is_so: impl FnMut(&Arrivals) -> bool) -> bool {
        let mut arrivals = self.arrivals();
        loop {
            if is_so(&arrivals) {
                return true;
            }
            let waited = self.kept.news.wait_timeout(arrivals, limit);
            let (woken, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            arrivals = woken;
            if waited.timed_out() {
                return is_so(&arrivals);
            }
        }
    }

    /// From now on messages are taken and not answered, until the hold ends: then the connections
    /// they came on end.
    pub(crate) fn hold(&self, holds: bool) {
        self.arrivals().holds = holds;
        self.kept.news.notify_all();
    }

    /// Comes back once nothing is held; whether something was.
    fn held(&self) -> bool {
        let mut arrivals = self.arrivals();
        let was = arrivals.holds;
        while arrivals.holds {
            arrivals = self.kept.news.wait(arrivals).unwrap_or_else(PoisonError::into_inner);
        }
        was
    }

    fn serve(&self, stream: &TcpStream) {
        let mut is_open = false;
        // Else each reply waits until the one before it is acknowledged, which takes 40 ms.
        let _ = stream.set_nodelay(true);
        // That the daemon goes away is the purpose.
        let _ = self.talk(stream, &mut is_open);
        if is_open {
            self.arrivals().open -= 1;
        }
    }

    fn talk(&self, mut out: &TcpStream, is_open: &mut bool) -> io::Result<()> {
        let mut reader = BufReader::new(out);
        out.write_all(b"220 sink.test ESMTP\r\n")?;
        let (mut line, mut from, mut to) = (String::new(), String::new(), String::new());
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let local = || line.split(['<', '@', '>']).nth(1).unwrap_or_default().to_owned();
            let verb = line.get(..4).unwrap_or_default().to_ascii_uppercase();
            let reply = match verb.as_str() {
                "EHLO" => "250-sink.test\r\n250-PIPELINING\r\n250 8BITMIME",
                "MAIL" => {
                    if !std::mem::replace(is_open, true) {
                        self.arrivals().open += 1;
                    }
                    from = local();
                    "250 2.1.0 Ok"
                }
                "RCPT" => {
                    to = local();
                    let refusal = self.refusal(&from);
                    if refusal.is_none() {
                        "250 2.1.5 Ok"
                    } else {
                        to.clear();
                        refusal.unwrap_or_default()
                    }
                }
                "DATA" if to.is_empty() => {
                    self.close_transaction(is_open);
                    "554 5.5.1 No valid recipients"
                }
                "DATA" => {
                    out.write_all(b"354 Go ahead\r\n")?;
                    let content = content(&mut reader)?;
                    self.arrived(&from, &to, &content);
                    if self.held() {
                        return Ok(());
                    }
                    to.clear();
                    self.close_transaction(is_open);
                    "250 2.0.0 Ok: taken"
                }
                "QUIT" => "221 2.0.0 Bye",
                _ => {
                    self.close_transaction(is_open);
                    "250 2.0.0 Ok"
                }
            };
            out.write_all(format!("{reply}\r\n").as_bytes())?;
        }
    }

    /// Returns the reply to a recipient that the next hop does not take now.
    fn refusal(&self, from: &str) -> Option<&'static str> {
        match mail::course(from) {
            Course::Refused if !from.is_empty() => Some("550 5.1.1 No such user"),
            Course::Deferred if !from.is_empty() && self.arrivals().deferred.insert(from.to_owned()) => {
                Some("450 4.2.1 Mailbox busy")
            }
            _ => None,
        }
    }

    fn arrived(&self, from: &str, to: &str, content: &[u8]) {
        let mut arrivals = self.arrivals();
        if from.is_empty() {
            *arrivals.reported.entry(to.to_owned()).or_default() += 1;
        } else {
            if !content.ends_with(mail::body(from).as_bytes()) {
                arrivals.damaged.push(from.to_owned());
            }
            *arrivals.taken.entry(from.to_owned()).or_default() += 1;
        }
        drop(arrivals);
        self.kept.news.notify_all();
    }

    fn close_transaction(&self, is_open: &mut bool) {
        if std::mem::take(is_open) {
            let mut arrivals = self.arrivals();
            arrivals.open -= 1;
            arrivals.answered.push_back(Instant::now());
        }
    }
}

/// Up to the line with the dot; no line of the load begins with one.
fn content(reader: &mut impl io::BufRead) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let begin = content.len();
        reader.read_until(b'\n', &mut content)?;
        match &content[begin..] {
            b".\r\n" => {
                content.truncate(begin);
                return Ok(content);
            }
            [] => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
    }
}
