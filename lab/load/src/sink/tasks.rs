//! `--model async`: a task for each session on tokio's runtime.

use super::{
    blocking::wait_for_end,
    session::{Session, Wish},
    state::{FULL_PAUSE, SinkState},
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

/// Serves until the state stops.
pub(crate) fn serve(
    state: &Arc<SinkState>,
    listeners: Vec<OwnedFd>,
    wake: &OwnedFd,
    workers: usize,
) -> Result<(), String> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_all().build();
    let runtime = runtime.map_err(|e| format!("start the runtime: {e}"))?;
    let room = Arc::new(Semaphore::new(state.bounds.sessions.min(Semaphore::MAX_PERMITS)));
    for listener in listeners {
        let _entered = runtime.enter();
        let listener = Listener::new(listener).map_err(|e| format!("listen: {e}"))?;
        runtime.spawn(accept(state.clone(), listener, room.clone()));
    }
    wait_for_end(state, wake)?;
    // Open sessions end with the sink.
    runtime.shutdown_background();
    Ok(())
}

/// A listener of the runtime, over TCP or a Unix socket.
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

async fn accept(state: Arc<SinkState>, listener: Listener, room: Arc<Semaphore>) {
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let accepted = match &listener {
            Listener::Inet(listener) => listener.accept().await.map(|(socket, peer)| {
                let session = Session::new(&state, &crate::address::host_of(&peer.into()));
                tokio::spawn(attend(state.clone(), socket, session, place));
            }),
            Listener::Unix(listener) => listener.accept().await.map(|(socket, _)| {
                let session = Session::new(&state, "localhost");
                tokio::spawn(attend(state.clone(), socket, session, place));
            }),
        };
        match accepted {
            Ok(()) => {}
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::CONNABORTED | Errno::INTR)) => {}
            Err(e) if Errno::from_io_error(&e).is_some_and(|e| state.is_full(e)) => {
                tokio::time::sleep(FULL_PAUSE).await;
            }
            Err(error) => {
                eprintln!("postlab: accept a connection: {error}");
                return state.stop();
            }
        }
    }
}

/// One session; its place is free when it ends.
async fn attend<S: AsyncRead + AsyncWrite + Unpin>(
    state: Arc<SinkState>,
    mut socket: S,
    mut session: Session,
    place: tokio::sync::OwnedSemaphorePermit,
) {
    // How it broke is the client's affair; that it did is in the counts.
    let _ = converse(&state, &mut socket, &mut session).await;
    session.closed(&state);
    drop(place);
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    state: &SinkState,
    socket: &mut S,
    session: &mut Session,
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(16 * 1024);
    let mut wish = session.advance(state, &[]);
    loop {
        let output = session.output();
        if !output.is_empty() {
            timeout(state.bounds.timeout, socket.write_all(output)).await??;
            output.clear();
        }
        wish = match wish {
            Wish::Close => return Ok(()),
            Wish::Pause(time) => {
                tokio::time::sleep(time).await;
                session.advance(state, &[])
            }
            Wish::Store => {
                if let Some(stored) = session.storing() {
                    let result = stored.await;
                    session.stored(state, &result);
                }
                session.advance(state, &[])
            }
            Wish::Read => {
                buffer.clear();
                match timeout(state.bounds.timeout, socket.read_buf(&mut buffer)).await {
                    Ok(Ok(0)) => return Ok(()),
                    Ok(Ok(_)) => session.advance(state, &buffer),
                    Ok(Err(error)) => return Err(error),
                    Err(_) => {
                        session.timed_out(state);
                        Wish::Close
                    }
                }
            }
        };
    }
}
