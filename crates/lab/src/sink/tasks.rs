//! `--model async`: a task for each session on tokio's runtime.

use super::{
    blocking::wait_for_end,
    hall::{FULL_PAUSE, Hall},
    session::{Session, Wish},
};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{AddressFamily, getsockname},
};
use std::{io, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, UnixListener},
    sync::Semaphore,
    time::timeout,
};

/// Serves until the hall stops.
pub(crate) fn serve(
    hall: &Arc<Hall>,
    listeners: Vec<OwnedFd>,
    wake: &OwnedFd,
    workers: usize,
) -> Result<(), String> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_all().build();
    let runtime = runtime.map_err(|e| format!("start the runtime: {e}"))?;
    let room = Arc::new(Semaphore::new(hall.bounds.sessions.min(Semaphore::MAX_PERMITS)));
    for listener in listeners {
        let _entered = runtime.enter();
        let listener = Listener::new(listener).map_err(|e| format!("listen: {e}"))?;
        runtime.spawn(accept(hall.clone(), listener, room.clone()));
    }
    wait_for_end(hall, wake)?;
    // Open sessions end with the sink.
    runtime.shutdown_background();
    Ok(())
}

/// The runtime's listeners, by family.
enum Listener {
    Inet(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(match getsockname(&socket)?.address_family() {
            AddressFamily::UNIX => Self::Unix(UnixListener::from_std(socket.into())?),
            _ => Self::Inet(TcpListener::from_std(socket.into())?),
        })
    }
}

async fn accept(hall: Arc<Hall>, listener: Listener, room: Arc<Semaphore>) {
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let accepted = match &listener {
            Listener::Inet(listener) => listener.accept().await.map(|(socket, peer)| {
                let session = Session::new(&hall, &crate::address::host_of(&peer.into()));
                tokio::spawn(attend(hall.clone(), socket, session, place));
            }),
            Listener::Unix(listener) => listener.accept().await.map(|(socket, _)| {
                let session = Session::new(&hall, "localhost");
                tokio::spawn(attend(hall.clone(), socket, session, place));
            }),
        };
        match accepted {
            Ok(()) => {}
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::CONNABORTED | Errno::INTR)) => {}
            Err(e) if Errno::from_io_error(&e).is_some_and(|e| hall.is_full(e)) => {
                tokio::time::sleep(FULL_PAUSE).await;
            }
            Err(error) => {
                eprintln!("postlab: accept a connection: {error}");
                return hall.stop();
            }
        }
    }
}

/// One session; its place is free when it ends.
async fn attend<S: AsyncRead + AsyncWrite + Unpin>(
    hall: Arc<Hall>,
    mut socket: S,
    mut session: Session,
    place: tokio::sync::OwnedSemaphorePermit,
) {
    // How it broke is the client's affair; that it did is in the counts.
    let _ = converse(&hall, &mut socket, &mut session).await;
    session.closed(&hall);
    drop(place);
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    hall: &Hall,
    socket: &mut S,
    session: &mut Session,
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(16 * 1024);
    let mut wish = session.advance(hall, &[]);
    loop {
        let output = session.output();
        if !output.is_empty() {
            timeout(hall.bounds.timeout, socket.write_all(output)).await??;
            output.clear();
        }
        wish = match wish {
            Wish::Close => return Ok(()),
            Wish::Pause(time) => {
                tokio::time::sleep(time).await;
                session.advance(hall, &[])
            }
            Wish::Read => {
                buffer.clear();
                match timeout(hall.bounds.timeout, socket.read_buf(&mut buffer)).await {
                    Ok(Ok(0)) => return Ok(()),
                    Ok(Ok(_)) => session.advance(hall, &buffer),
                    Ok(Err(error)) => return Err(error),
                    Err(_) => {
                        session.timed_out(hall);
                        Wish::Close
                    }
                }
            }
        };
    }
}
