//! A map behind a socket: a line asks, a line answers, as a daemon's map does it.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
};

/// Asks the server thread, over a socket.
pub(super) struct Client {
    from: Box<dyn BufRead + Send>,
    to: Box<dyn Write + Send>,
}

impl Client {
    /// To a server thread over a Unix domain socket.
    pub(super) fn local(map: &Arc<HashMap<String, String>>) -> io::Result<Self> {
        let (near, far) = UnixStream::pair()?;
        serve(map, far.try_clone()?, far);
        Ok(Self::of(near.try_clone()?, near))
    }

    /// Serves the map over TCP.
    pub(super) fn inet(map: &Arc<HashMap<String, String>>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        serve(map, far.try_clone()?, far);
        Ok(Self::of(near.try_clone()?, near))
    }

    fn of(from: impl Read + Send + 'static, to: impl Write + Send + 'static) -> Self {
        Self { from: Box::new(BufReader::new(from)), to: Box::new(BufWriter::new(to)) }
    }

    /// Asks for all of `keys` at once; how many were there.
    pub(super) fn ask<'k>(&mut self, keys: impl Iterator<Item = &'k str>) -> io::Result<usize> {
        let mut asked = 0;
        for key in keys {
            self.to.write_all(key.as_bytes())?;
            self.to.write_all(b"\n")?;
            asked += 1;
        }
        self.to.flush()?;
        let (mut found, mut line) = (0, String::new());
        for _ in 0..asked {
            line.clear();
            self.from.read_line(&mut line)?;
            found += usize::from(line.starts_with("OK "));
        }
        Ok(found)
    }
}

/// Answers until the other side is gone. What is asked at once is answered at once.
fn serve(
    map: &Arc<HashMap<String, String>>,
    from: impl Read + Send + 'static,
    to: impl Write + Send + 'static,
) {
    let map = map.clone();
    thread::spawn(move || -> io::Result<()> {
        let (mut from, mut to) = (BufReader::new(from), BufWriter::new(to));
        let mut line = String::new();
        while from.read_line(&mut line)? > 0 {
            match map.get(line.trim_end()) {
                Some(value) => writeln!(to, "OK {value}")?,
                None => to.write_all(b"NOTFOUND\n")?,
            }
            line.clear();
            if from.buffer().is_empty() {
                to.flush()?;
            }
        }
        Ok(())
    });
}
