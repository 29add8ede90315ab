//! Finding the configuration, and `postrider config`.

mod check;

pub(super) use check::check;

use super::{CliError, Ending, args::ConfigCommand};
use config::{Loaded, Origin, Purpose, SectionDoc, Settings};
use console::{
    print,
    settings::{find, show_problems, warn_of_other_file},
};
use control::Exit;
use policy::{Stage, Step};
use serde_json::{Map, Value, json};
use std::{
    io::{self, Write},
    path::Path,
};

/// Runs `postrider config`.
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
    // No rule, and the last to be asked.
    if let Some(greylist) = &settings.rules.greylist {
        is_empty = false;
        let whose =
            if greylist.is_for_all { "" } else { " that SPF does not permit, or whose address has no name" };
        writeln!(
            out,
            "rcpt     checks.greylist, for untrusted clients{whose}, unless a rule accepts or trusts"
        )?;
        writeln!(out, "         if neither the origin nor the client's network is known")?;
        writeln!(out, "         then defer: 451 4.7.1, for {} s", greylist.times.wait)?;
    }
    if is_empty {
        writeln!(out, "There are no {}.", if only_checks { "checks" } else { "rules, checks or limits" })?;
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
        // Keys of other servers, and others that people look for.
        if let Some((label, advice)) = config::about_key(plain, key_name) {
            return Err(CliError::new(Exit::Usage, format!("there is no key `{asked}`: {label}; {advice}")));
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
            Origin::File { line, span } => match loaded.file_of(span) {
                file if loaded.path.as_deref() == Some(file) => format!("line {line}"),
                other => format!("{}, line {line}", other.display()),
            },
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
