//! The command line: [`args`] defines it, and each command has a file that runs it.

pub(crate) mod args;
mod auth;
mod certificate;
mod deliver_helper;
mod dkim;
mod explain;
mod history;
mod import;
mod manual;
pub(crate) mod map;
pub(crate) mod queue;
mod quickstart;
mod rehearse;
mod settings;
mod status;

pub(crate) use console::{
    CliError, Ending, complain,
    settings::{find as find_config, load as load_config, load_for_tools},
};

use crate::applets;
use args::{AuthCommand, Cli, Command, DkimCommand, ImportCli};
use clap::{CommandFactory, Parser};
use config::Purpose;
use control::Exit;
use std::{
    ffi::OsString,
    io::{self, Write},
    os::unix::process::CommandExt as _,
    process::ExitCode,
};
use submission::sendmail;

/// Parses the command line, runs the command and returns its exit code.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let ending = dispatch(cli, &mut out).and_then(|end| {
        if let End::Serve(settings, mode) = end {
            return Ok(End::Serve(settings, mode));
        }
        out.flush()?;
        Ok(end)
    });
    drop(out);
    match ending {
        Ok(End::Serve(settings, mode)) => server::run(*settings, mode),
        Ok(End::Exit(exit)) => exit.into(),
        Ok(End::Other(code)) => code,
        Err(error) => failed(&error),
    }
}

/// Runs the program of `postrider import`.
pub(crate) fn run_import(arguments: &[OsString]) -> ExitCode {
    let cli = match ImportCli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let ending = import::run(&cli.command, cli.config.as_deref(), &mut out).and_then(|exit| {
        out.flush()?;
        Ok(exit)
    });
    match ending {
        Ok(exit) => exit.into(),
        Err(error) => failed(&error),
    }
}

fn refused(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { Exit::Usage } else { Exit::Ok }.into()
}

fn failed(error: &CliError) -> ExitCode {
    complain("postrider", &error.text);
    error.exit.into()
}

/// Replaces this process by the program that imports, which is installed beside it. Returns only if that fails.
fn run_import_program() -> CliError {
    let mut before_name = true;
    let mut is_value = false;
    // The arguments are valid: the first that is no option, and no value of the only one that can stand here, is `import`.
    let arguments = std::env::args_os().skip(1).filter(|argument| {
        let is_name = before_name && !is_value && !argument.as_encoded_bytes().starts_with(b"-");
        is_value = argument == "--config";
        before_name &= !is_name;
        !is_name
    });
    let program = match std::env::current_exe() {
        Ok(own) => own.with_file_name("postrider-import"),
        Err(error) => return CliError::new(Exit::Unavailable, format!("find this program: {error}")),
    };
    let error = std::process::Command::new(&program).args(arguments).exec();
    CliError::new(Exit::Unavailable, format!("run {}: {error}; it comes with Postrider", program.display()))
}

enum End {
    Exit(Exit),
    Other(ExitCode),
    /// Only once standard output is let go: the daemon lives long.
    Serve(Box<config::Settings>, server::Mode),
}

/// Returns whether a command that an operator types answers by the configuration in use, which may not be the one in the
/// current folder. `serve` and `config` warn by themselves; `doctor` has a finding; `mailq` and its like run in any folder.
fn asks_with_configuration(command: &Command) -> bool {
    match command {
        Command::Map(_)
        | Command::Queue(_)
        | Command::Spool(_)
        | Command::Check(_)
        | Command::SupportBundle(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::History(_)
        | Command::Why(_)
        | Command::Status { .. }
        | Command::Auth(AuthCommand::Test { .. })
        | Command::Certificate(_)
        | Command::Test(_)
        | Command::Reload
        | Command::Drain(_)
        | Command::Resume(_) => true,
        Command::Dkim(command) => !matches!(command, DkimCommand::New { .. }),
        Command::Auth(AuthCommand::Hash { .. })
        | Command::Serve { .. }
        | Command::Quickstart(_)
        | Command::Config { .. }
        | Command::Doctor(_)
        | Command::Import(_)
        | Command::Version
        | Command::Completions { .. }
        | Command::Man { .. }
        | Command::Sendmail { .. }
        | Command::Mailq
        | Command::DeliverHelper { .. }
        | Command::Newaliases => false,
    }
}

fn dispatch(cli: Cli, out: &mut dyn Write) -> Result<End, CliError> {
    let explicit = cli.config.as_deref();
    if explicit.is_none() && asks_with_configuration(&cli.command) {
        console::settings::warn_of_other_file(find_config(None).as_deref());
    }
    let exit = match cli.command {
        Command::Serve { capture: true, listen } => {
            let listen = listen.unwrap_or(server::capture::ADDRESS);
            let unavailable = |text| CliError::new(Exit::Unavailable, text);
            server::try_addresses([&config::ListenAt::Ip(listen)]).map_err(unavailable)?;
            let data = std::path::absolute(server::capture::DATA_DIR)?;
            let failed = |e| CliError::new(Exit::CantCreate, format!("create {}: {e}", data.display()));
            std::fs::create_dir_all(&data).map_err(failed)?;
            let settings = server::capture::settings(listen, &data)
                .map_err(|problems| console::settings::show_problems(&problems))?;
            return Ok(End::Serve(Box::new(settings), server::Mode::Capture));
        }
        Command::Serve { listen, .. } => {
            let source = find_config(explicit);
            console::settings::warn_of_other_file(source.as_deref());
            let mut settings = load_config(explicit, Purpose::Serve)?;
            match (listen, &source) {
                (Some(_), Some(file)) => {
                    let text = format!(
                        "--listen is for a start without a configuration file: write `address` in [[listen]] of {}",
                        file.display()
                    );
                    return Err(CliError::new(Exit::Usage, text));
                }
                (Some(listen), None) => settings.listen[0].address = config::ListenAt::Ip(listen),
                (None, _) => {}
            }
            return Ok(End::Serve(Box::new(settings), server::Mode::Deliver(source)));
        }
        Command::Quickstart(args) => quickstart::run(&args, explicit, out)?,
        Command::Config { command } => settings::run(&command, explicit, out)?,
        Command::Map(command) => {
            return Ok(End::Other(map::run(&command, explicit, &mut console::print::Visible(out))?));
        }
        Command::Queue(command) => queue::run(&command, explicit, &load_for_tools(explicit)?, out)?,
        Command::Spool(command) => upkeep::spool_tools::run(&command, &load_for_tools(explicit)?, out)?,
        Command::Doctor(args) => return Ok(End::Other(upkeep::doctor::run(&args, explicit, out)?)),
        Command::Check(args) => {
            return Ok(End::Other(upkeep::domain::run(&args, &load_for_tools(explicit)?, out)?));
        }
        Command::SupportBundle(args) => upkeep::bundle::run(&args, explicit, out)?,
        Command::Backup(args) => upkeep::backup::run(&args, explicit, out)?,
        Command::Restore(args) => upkeep::backup::restore::run(&args, explicit, out)?,
        Command::Import(_) => return Err(run_import_program()),
        Command::History(command) => history::run(&command, &load_for_tools(explicit)?, out)?,
        Command::Why(args) => explain::run(&args, &load_for_tools(explicit)?, out)?,
        Command::Status { prometheus: true, .. } => status::metrics(&load_for_tools(explicit)?, out)?,
        Command::Status { json, .. } => status::run(json, &load_for_tools(explicit)?, out)?,
        Command::Auth(AuthCommand::Hash { scheme, user }) => auth::hash(scheme, user.as_deref(), out)?,
        Command::Auth(AuthCommand::Test { token, user }) => {
            let test = if token { auth::test_token } else { auth::test };
            test(&user, &load_config(explicit, Purpose::Ask)?, out)?
        }
        Command::Dkim(DkimCommand::New { domain, selector, kind, out: file }) => {
            dkim::new(&domain, &selector, kind, file.as_deref(), explicit, out)?
        }
        Command::Dkim(DkimCommand::Rotate(args)) => dkim::rotate(&args, explicit, out)?,
        Command::Dkim(command) => dkim::run(&command, &load_config(explicit, Purpose::Ask)?, out)?,
        Command::Certificate(command) => certificate::run(&command, &load_for_tools(explicit)?, out)?,
        Command::Test(test) => {
            let settings = load_config(explicit, Purpose::Serve)?;
            rehearse::run(&test, settings, &mut console::print::Visible(out))?
        }
        Command::Reload => status::reload(&load_for_tools(explicit)?, out)?,
        Command::Drain(args) => status::drain(&args, true, &load_for_tools(explicit)?, out)?,
        Command::Resume(args) => status::drain(&args, false, &load_for_tools(explicit)?, out)?,
        Command::Version => {
            writeln!(out, "postrider {}", console::VERSION)?;
            Exit::Ok
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "postrider", &mut script);
            out.write_all(&script)?;
            Exit::Ok
        }
        Command::Man { dir: Some(dir) } => manual::write(&dir, out)?,
        Command::Man { dir: None } => {
            let text = "to read the manual: `man postrider`, `man postrider.toml`, `man postrider-COMMAND`; to write all pages to a \
                        folder: `postrider man DIR`, and then `man DIR/postrider.1`";
            return Err(CliError::new(Exit::Usage, text));
        }
        Command::Sendmail { arguments } => {
            let config = cli.config.into_iter().flat_map(|file| [OsString::from("-C"), file.into()]);
            let arguments: Vec<OsString> = config.chain(arguments.into_iter().map(OsString::from)).collect();
            return Ok(End::Other(sendmail::run(sendmail::Applet::Sendmail, &arguments, &applets::Commands)));
        }
        Command::Mailq => queue::mailq(&load_for_tools(explicit)?, out)?,
        Command::DeliverHelper { serve, write } => deliver_helper::run(serve, write, explicit)?,
        Command::Newaliases => map::check_aliases(&load_for_tools(explicit)?, out)?,
    };
    Ok(End::Exit(exit))
}

#[cfg(test)]
mod tests;
