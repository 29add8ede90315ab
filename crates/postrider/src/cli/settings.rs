//! Finding the configuration, and `postrider config`.

mod check;

pub(super) use check::check;

use super::{CliError, Ending, args::ConfigCommand, complain, map, print};
use crate::{
    applets::Commands,
    journal::{self, Priority},
    unnamed_spools,
};
use accept::{expansion::Expansion, routes::Routes};
use config::{Loaded, Origin, Problems, Purpose, SectionDoc, Settings};
use control::Exit;
use mail::{ForwardPath, Mailbox};
use maps::{Kind, Reference, text::TextTable};
use policy::{Stage, Step};
use serde_json::{Map, Value, json};
use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};
use submission::sendmail::{Commands as _, Route};

/// The file used when none is named.
const USUAL: &str = "/etc/postrider/postrider.toml";
/// Names another.
const VARIABLE: &str = "POSTRIDER_CONFIG";

/// Returns the path of the configuration file; none for the embedded default.
pub(crate) fn find(explicit: Option<&Path>) -> Option<PathBuf> {
    let named = explicit
        .map(Path::to_owned)
        .or_else(|| std::env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from));
    // Existing but unreadable is an error to show, not a reason to run on the default.
    named.or_else(|| Path::new(USUAL).symlink_metadata().is_ok().then(|| USUAL.into()))
}

/// Warns of a configuration file in the current folder, which is read only if it is named.
pub(super) fn warn_of_other_file(used: Option<&Path>) {
    let here = Path::new("postrider.toml");
    let is_used = used.is_some_and(|file| file.canonicalize().ok() == here.canonicalize().ok());
    if here.is_file() && !is_used {
        let used = used.map_or("the embedded default".to_owned(), |file| file.display().to_string());
        let text = format!(
            "warning: ./postrider.toml is not read: {used} is in use; to use the file, write `--config postrider.toml`"
        );
        complain("postrider", &text);
    }
}

/// Reads and checks it.
pub(crate) fn load(explicit: Option<&Path>, purpose: Purpose) -> Result<Settings, CliError> {
    let loaded = config::load_with_origins(find(explicit).as_deref(), purpose);
    loaded.map(|loaded| loaded.settings).map_err(|problems| show_problems(&problems))
}

/// Reads the configuration for a command that asks the daemon, or hands it mail. While the file has a mistake, the values of
/// the daemon's last start are used.
pub(crate) fn load_for_tools(explicit: Option<&Path>) -> Result<Settings, CliError> {
    let found = find(explicit);
    let problems = match config::load_with_origins(found.as_deref(), Purpose::Ask) {
        Ok(loaded) if found.is_some() => return Ok(loaded.settings),
        Ok(loaded) => return Ok(without_file(&loaded.settings).unwrap_or(loaded.settings)),
        Err(problems) => problems,
    };
    let good = found.and_then(|file| config::last_good(&file).map(|settings| (file, settings)));
    let Some((file, settings)) = good else {
        return Err(show_problems(&problems));
    };
    complain(
        "postrider",
        &format!(
            "warning: {} has a mistake, so the values of the daemon's last start are used; \
             `postrider config check` shows it",
            file.display()
        ),
    );
    Ok(settings)
}

/// Returns the values of the daemon's last start, if the usual file has gone away since, and nothing here is of the embedded default.
fn without_file(embedded: &Settings) -> Option<Settings> {
    let is_used = embedded.data_dir.exists();
    let settings = if is_used { None } else { config::last_good(Path::new(USUAL)) }?;
    complain(
        "postrider",
        &format!("warning: there is no {USUAL}: the values of the daemon's last start are used"),
    );
    Some(settings)
}

pub(super) fn show_problems(problems: &Problems) -> CliError {
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let told = problems.render(false);
    // Colours are control characters, too; whoever has invisible ones in the file sees them instead.
    let told = match mail::escape_invisible(&told) {
        Cow::Borrowed(_) if colour => problems.render(true),
        escaped => escaped.into_owned(),
    };
    let text = format!("{}\n", mail::plain_text(&told));
    let _ = io::stderr().write_all(journal::for_stderr(Priority::Error, &text).as_bytes());
    CliError::new(Exit::Config, "")
}

/// `postrider config …`.
pub(super) fn run(command: &ConfigCommand, explicit: Option<&Path>, out: &mut dyn Write) -> Ending {
    match command {
        ConfigCommand::Check { file, json: true } => {
            return check::as_json(find(file.as_deref().or(explicit)).as_deref(), out);
        }
        ConfigCommand::Check { file, json: false } => {
            let found = find(file.as_deref().or(explicit));
            if file.is_none() {
                warn_of_other_file(found.as_deref());
            }
            let warning_count = check::check(found.as_deref())?;
            let name = found.map_or("the embedded default".to_owned(), |path| path.display().to_string());
            match warning_count {
                0 => writeln!(out, "{name}: no problems")?,
                count => writeln!(out, "{name}: no errors, {}", mail::counted(count, "warning"))?,
            }
        }
        ConfigCommand::Explain { what } => explain(what, explicit, &mut print::Visible(out))?,
        ConfigCommand::Show { json } => {
            let found = find(explicit);
            warn_of_other_file(found.as_deref());
            let loaded = config::load_with_origins(found.as_deref(), Purpose::Ask);
            let loaded = loaded.map_err(|problems| show_problems(&problems))?;
            if *json {
                writeln!(out, "{}", as_json(&loaded))?;
            } else {
                write!(out, "{}", loaded.as_toml())?;
            }
        }
        ConfigCommand::Schema => writeln!(out, "{:#}", config::json_schema())?,
    }
    Ok(Exit::Ok)
}

/// Returns warnings of addresses to which rules and `addresses.bcc` send mail, and which do not exist here: such mail is
/// deferred. A map that does not answer now says nothing.
pub(super) fn without_user(settings: &Settings) -> Result<Vec<String>, CliError> {
    let rules = settings.rules.program.rules().iter();
    let of_rules = rules.flat_map(|rule| {
        let targets = rule.modifiers.bcc.iter().chain(&rule.modifiers.redirect);
        targets.map(|mailbox| (rule.place(), mailbox.clone()))
    });
    let copies = settings.addresses.bcc.iter().map(|mailbox| ("addresses.bcc".to_owned(), mailbox.clone()));
    let all: Vec<(String, Mailbox)> = of_rules.chain(copies).chain(copies_of_maps(settings)).collect();
    let paths: Vec<ForwardPath> =
        all.iter().map(|(_, mailbox)| ForwardPath::Mailbox(mailbox.clone())).collect();
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let routes = Commands.routes(settings, &paths)?;
    let unknown = all.iter().zip(routes).filter(|(_, route)| *route == Route::NoSuchUser);
    Ok(unknown
        .map(|((place, mailbox), _)| {
            format!("{place} sends mail to {mailbox}, which does not exist here: name a user, or an alias")
        })
        .collect())
}

/// Addresses of copies in text maps that are looked at, of each file.
const COPIES_MAX: usize = 100;

/// Returns the addresses to which text maps send copies, each with its map.
fn copies_of_maps(settings: &Settings) -> impl Iterator<Item = (String, Mailbox)> {
    let is_of_copies = |key: &str| matches!(key, "addresses.sender_bcc" | "addresses.recipient_bcc");
    let maps = settings.map_references().filter(move |(key, _)| is_of_copies(key));
    maps.flat_map(|(_, reference)| {
        let Reference::File(Kind::Text, path) = reference else { return Vec::new() };
        // A file that cannot be read is an error elsewhere.
        let text = maps::read_text(path).unwrap_or_default();
        let addresses = |value: &str| {
            let words = value.split([',', ' ', '\t']);
            words.filter_map(|word| Mailbox::parse(word, true).ok()).collect::<Vec<_>>()
        };
        let copies = TextTable::entries(&text).flat_map(|entry| addresses(&entry.value));
        copies.take(COPIES_MAX).map(|mailbox| (reference.to_string(), mailbox)).collect()
    })
}

/// Returns a warning if nobody reads the mail for the postmaster.
pub(super) fn unread_postmaster(settings: &Settings) -> Result<Option<String>, CliError> {
    let maps = accept::maps(settings, None);
    let (routes, expansion) = (Routes::new(settings, maps.clone()), Expansion::new(settings, maps));
    Ok(map::runtime()?.block_on(accept::unread_postmaster(settings, &routes, expansion.as_ref())))
}

/// Explains the rules, the checks, or a key.
fn explain(what: &str, explicit: Option<&Path>, out: &mut dyn Write) -> Result<(), CliError> {
    let found = find(explicit);
    warn_of_other_file(found.as_deref());
    let loaded = config::load_with_origins(found.as_deref(), Purpose::Ask);
    let loaded = loaded.map_err(|problems| show_problems(&problems))?;
    match what {
        "rules" => explain_program(&loaded.settings, false, out)?,
        "checks" => explain_program(&loaded.settings, true, out)?,
        key => explain_key(key, &loaded, out)?,
    }
    Ok(())
}

/// Prints the compiled program, stage by stage. Checks are the rules without a line in the file.
fn explain_program(settings: &Settings, only_checks: bool, out: &mut dyn Write) -> io::Result<()> {
    let program = &settings.rules.program;
    let mut is_empty = true;
    for stage in Stage::OF_RULES {
        for step in program.steps(stage) {
            let rule = match step {
                Step::Rule(number) => &program.rules()[*number],
                Step::Limit(_) if only_checks => continue,
                Step::Limit(id) => {
                    let limit = &program.limits()[usize::from(id.0)];
                    let (per, measure, place) = (limit.per.as_str(), limit.measure.as_str(), &limit.name);
                    writeln!(out, "{:<8} {place}, line {}", stage.as_str(), limit.line.0)?;
                    writeln!(out, "         if there are more than {} {measure} per {per}", limit.rate)?;
                    writeln!(out, "         then {}", limit.reply)?;
                    is_empty = false;
                    continue;
                }
            };
            if only_checks && rule.line.0 != 0 {
                continue;
            }
            is_empty = false;
            writeln!(out, "{:<8} {}, for {}", stage.as_str(), rule.place(), rule.audience.in_words())?;
            let mut word = "if";
            for condition in &rule.conditions {
                writeln!(out, "         {word} {}", program.explain_condition(condition))?;
                word = "and";
            }
            for condition in &rule.unless {
                writeln!(out, "         unless {}", program.explain_condition(condition))?;
            }
            writeln!(out, "         then {}", program.explain_action(rule))?;
        }
    }
    if is_empty {
        writeln!(out, "There are no {}.", if only_checks { "checks" } else { "rules, checks and limits" })?;
    }
    Ok(())
}

/// Prints the manual's text of a key, and its value.
fn explain_key(asked: &str, loaded: &Loaded, out: &mut dyn Write) -> Result<(), CliError> {
    let (section_name, key_name) = asked.rsplit_once('.').unwrap_or(("", asked));
    let plain = section_name.split('[').next().unwrap_or_default();
    let plain = plain.split_once('.').map_or(plain, |(section, _)| section);
    let sections = config::schema();
    let section = sections.iter().find(|section| section.name == plain);
    let Some((section, key)) =
        section.and_then(|s| Some((s, s.keys.iter().find(|key| key.name == key_name)?)))
    else {
        if let Some(section) = sections.iter().find(|section| section.name == asked && !asked.is_empty()) {
            return Ok(explain_section(section, out)?);
        }
        let name = |section: &str, key: &str| match section {
            "" => key.to_owned(),
            _ => format!("{section}.{key}"),
        };
        let all = sections.iter().flat_map(|s| s.keys.iter().map(|key| name(s.name, key.name)));
        let all: Vec<String> = all.collect();
        let same = all.iter().find(|path| path.rsplit('.').next() == Some(asked));
        let near = same.map(String::as_str);
        let near =
            near.or_else(|| config::did_you_mean(&name(plain, key_name), all.iter().map(String::as_str)));
        let near = near.unwrap_or("limits.max_hops");
        let text = format!("there is no key `{asked}`: write `rules`, `checks`, or a key such as `{near}`");
        return Err(CliError::new(Exit::Usage, text));
    };
    let about: Vec<&str> = key.about.lines().map(str::trim).collect();
    writeln!(out, "{} {}: {}", section.header(), key.name, (key.kind)())?;
    writeln!(out, "{}", about.join(" ").trim())?;
    if !key.default.is_empty() {
        writeln!(out, "Default: {}", key.default)?;
    }
    let is_it = |path: &str| {
        let of = path.rsplit_once('.').map_or("", |(of, _)| of);
        let of = of.split('[').next().unwrap_or_default();
        of.split_once('.').map_or(of, |(of, _)| of) == plain && path.rsplit('.').next() == Some(key.name)
    };
    let entries: Vec<_> = loaded.effective.iter().filter(|entry| is_it(&entry.path)).collect();
    let set = entries.iter().filter(|entry| entry.value.is_some()).count();
    if set == 0 && !entries.is_empty() {
        writeln!(out, "It is not set.")?;
    }
    for entry in entries {
        let Some(value) = &entry.value else { continue };
        let origin = match &entry.origin {
            Origin::Default => "default".to_owned(),
            Origin::File { line, .. } => format!("line {line}"),
        };
        writeln!(out, "{} = {value}  # {origin}", entry.path)?;
    }
    Ok(())
}

/// Prints the manual's text of a section, and the names of its keys.
fn explain_section(section: &SectionDoc, out: &mut dyn Write) -> io::Result<()> {
    let about: Vec<&str> = section.about.lines().map(str::trim).collect();
    writeln!(out, "{}", section.header())?;
    writeln!(out, "{}", about.join(" ").trim())?;
    for key in section.keys {
        writeln!(out, "{}.{}: {}", section.name, key.name, (key.kind)())?;
    }
    Ok(())
}

/// `{"relay.networks": {"value": […], "origin": "default"}, …}`.
fn as_json(loaded: &Loaded) -> Value {
    let mut all = Map::new();
    for entry in &loaded.effective {
        let value = entry.value.as_ref().map_or(Value::Null, |value| json!(value));
        let described = match &entry.origin {
            Origin::Default => json!({ "value": value, "origin": "default" }),
            Origin::File { line, span } => {
                let file = loaded.path.as_ref().map(|_| loaded.file_of(span));
                json!({ "value": value, "origin": "file", "file": file, "line": line })
            }
        };
        all.insert(entry.path.clone(), described);
    }
    Value::Object(all)
}
