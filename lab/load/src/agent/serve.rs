//! The agent: one controller after the other.

use super::{
    channel::{Channel, Message, VERSION},
    key::Key,
};
use crate::{
    arguments::exactly,
    hdr,
    source::{Plan, Report, SourceArgs, measure_all},
};
use clap::Args;
use rustls::ServerConnection;
use std::{
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Options of an agent.
#[derive(Debug, Args)]
pub(super) struct ListenArgs {
    /// The key file
    #[arg(short = 'k', long, value_name = "FILE")]
    key: PathBuf,
    /// ADDRESS:PORT to listen on; port 0 takes a free one
    #[arg(default_value = "127.0.0.1:2580")]
    address: String,
}

/// Between two looks at whether the agent shall end.
const LOOK: Duration = Duration::from_millis(50);
/// A controller that says nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(60);

type Agent = Channel<ServerConnection>;

/// Serves until a signal comes.
pub(super) fn run(args: &ListenArgs) -> Result<(), String> {
    let config = Key::read(&args.key)?.server()?;
    let failed = |e: std::io::Error| format!("listen on {}: {e}", args.address);
    let listener = TcpListener::bind(&args.address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let stop = Arc::new(AtomicBool::new(false));
    crate::signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    eprintln!("listens on {}", listener.local_addr().map_err(failed)?);
    while !stop.load(Relaxed) {
        let Ok((socket, peer)) = listener.accept() else {
            thread::sleep(LOOK);
            continue;
        };
        let served = ServerConnection::new(config.clone())
            .map_err(|e| e.to_string())
            .and_then(|connection| serve(connection, socket, &stop));
        match served {
            Ok(report) => eprintln!("{peer}: {} messages in {:.1} s", report.messages_sent, report.seconds),
            Err(error) => eprintln!("{peer}: {error}"),
        }
    }
    Ok(())
}

fn serve(connection: ServerConnection, socket: TcpStream, stop: &AtomicBool) -> Result<Report, String> {
    socket.set_nonblocking(false).map_err(|e| format!("set up the connection: {e}"))?;
    let mut channel = Channel::new(connection, socket)?;
    let prepared = match next(&mut channel, stop)? {
        Message::Prepare { version: VERSION, arguments } => prepare(&arguments),
        Message::Prepare { version, .. } => Err(format!(
            "the controller speaks version {version}, this agent {VERSION}: install the same Postlab"
        )),
        other => return Err(format!("the controller began with {other:?}")),
    };
    let result = prepared.and_then(|(args, setup)| {
        channel.send(&Message::Ready)?;
        match next(&mut channel, stop)? {
            Message::Go => send(&mut channel, &args, &setup, stop),
            other => Err(format!("the controller said {other:?} before the begin")),
        }
    });
    match result {
        Ok((report, hdr)) => {
            channel.send(&Message::Result { report: Box::new(report.clone()), hdr })?;
            Ok(report)
        }
        Err(error) => {
            // The controller may be gone; the error is printed here, too.
            let _ = channel.send(&Message::Error(error.clone()));
            Err(error)
        }
    }
}

/// Waits for the next message of the controller.
fn next(channel: &mut Agent, stop: &AtomicBool) -> Result<Message, String> {
    let begin = Instant::now();
    while !stop.load(Relaxed) && begin.elapsed() < SILENCE {
        if let Some(message) = channel.receive()? {
            return Ok(message);
        }
    }
    Err(if stop.load(Relaxed) { "the agent ends" } else { "the controller says nothing" }.to_owned())
}

type Prepared = (SourceArgs, crate::source::Setup);

fn prepare(arguments: &[String]) -> Result<Prepared, String> {
    let args: SourceArgs = exactly(arguments.iter().map(String::as_str))?;
    if let Some(option) = args.file_option() {
        return Err(format!("{option} names a file, which would be one of the agent's: it is refused"));
    }
    let setup = args.setup()?;
    Ok((args, setup))
}

/// Sends the mail, and reports how far it is; ends early where the controller says so or is gone.
fn send(
    channel: &mut Agent,
    args: &SourceArgs,
    setup: &crate::source::Setup,
    stop: &AtomicBool,
) -> Result<(Report, String), String> {
    let plan = args.plan();
    let result = Mutex::new(None);
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let measured = measure_all(args, setup, &plan);
            if let Ok(mut result) = result.lock() {
                *result = Some(measured);
            }
        });
        while !worker.is_finished() {
            let heard = attend(channel, &plan);
            if heard.is_err() || stop.load(Relaxed) {
                plan.stop();
            }
            heard?;
        }
        Ok::<_, String>(())
    })?;
    let measured = result.into_inner().ok().flatten().ok_or("the source panicked")?;
    let (report, counts) = measured?;
    let text = hdr::log(counts.histograms(), Duration::from_secs_f64(report.seconds))?;
    Ok((report, String::from_utf8(text).map_err(|e| e.to_string())?))
}

/// Tells how far it is, and listens for an end.
fn attend(channel: &mut Agent, plan: &Plan) -> Result<(), String> {
    match channel.receive()? {
        None => channel.send(&Message::Done(plan.progress().0)),
        Some(Message::Stop) => {
            plan.stop();
            Ok(())
        }
        Some(other) => Err(format!("the controller said {other:?} while mail was sent")),
    }
}
