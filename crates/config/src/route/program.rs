//! The program of a route: a list of arguments, or a table with more.

use crate::{
    account::User,
    json_schema::Schema,
    problem::Code,
    units::show_duration,
    value::{Context, Found, Value},
};
use mail::{Argument, EnvelopeField, Program, RunAs};
use std::{path::Path, time::Duration};

/// The longest run of a program, unless the file says otherwise.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(300);

const HINT: &str =
    "{ argv = [\"/usr/local/bin/program\", \"{recipient}\"], user = \"vmail\", timeout = \"5m\" }";

impl Value for Program {
    const HINT: &'static str = HINT;

    fn kind() -> String {
        "a program".to_owned()
    }

    fn schema() -> Schema {
        let argv = || Schema::List(Box::new(Schema::Text));
        let table = vec![
            ("argv", argv(), true),
            ("user", User::schema(), false),
            ("timeout", Duration::schema(), false),
        ];
        Schema::AnyOf(vec![argv(), Schema::Table(table)])
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        let Some(table) = found.get_ref().as_table() else {
            let argv = argv(found, cx)?;
            return Some(Self { argv, user: None, time_limit: TIME_LIMIT });
        };
        let of = cx.key.clone();
        for (name, _) in
            table.iter().filter(|(name, _)| !["argv", "user", "timeout"].contains(&&**name.get_ref()))
        {
            let what = format!("there is no key `{}` in `{of}`", name.get_ref());
            cx.problem_of(Code::UnknownKey, name.span(), what, "unknown key", format!("write {HINT}"));
        }
        let Some(list) = table.get("argv") else {
            cx.problem_of(
                Code::MissingKey,
                found.span(),
                format!("`{of}` lacks `argv`"),
                "incomplete",
                format!("write {HINT}"),
            );
            return None;
        };
        cx.key = format!("{of}.argv");
        let argv = argv(list, cx);
        cx.key = format!("{of}.user");
        let user = table.get("user").map(|user| User::read(user, cx));
        cx.key = format!("{of}.timeout");
        let time_limit = table.get("timeout").map(|limit| read_limit(limit, cx));
        cx.key = of;
        let user = match user {
            Some(user) => Some(run_as(&user?)),
            None => None,
        };
        let time_limit = match time_limit {
            Some(limit) => limit?,
            None => TIME_LIMIT,
        };
        Some(Self { argv: argv?, user, time_limit })
    }

    fn to_toml(&self) -> Option<toml::Value> {
        let argv: Vec<toml::Value> = self.argv.iter().map(|argument| argument.as_str().into()).collect();
        let mut table = toml::Table::new();
        table.insert("argv".to_owned(), argv.into());
        if let Some(user) = &self.user {
            table.insert("user".to_owned(), (&*user.name).into());
        }
        table.insert("timeout".to_owned(), show_duration(self.time_limit).into());
        Some(toml::Value::Table(table))
    }
}

pub(crate) fn run_as(user: &User) -> RunAs {
    let User { name, uid, gid, home } = user;
    RunAs { name: name.as_str().into(), uid: *uid, gid: *gid, home: home.as_path().into() }
}

fn read_limit(found: &Found<'_>, cx: &mut Context) -> Option<Duration> {
    let limit = Duration::read(found, cx)?;
    if limit.is_zero() {
        let what = format!("`{}` is too small", cx.key);
        cx.problem(found.span(), what, "no time at all", "write \"1s\" or more".to_owned());
        return None;
    }
    Some(limit)
}

/// Reads the program and its arguments.
fn argv(found: &Found<'_>, cx: &mut Context) -> Option<Box<[Argument]>> {
    let Some(items) = found.get_ref().as_array().filter(|items| !items.is_empty()) else {
        let what = format!("`{}` must be a list of arguments", cx.key);
        cx.problem(found.span(), what, "the program must come first", format!("write {HINT}"));
        return None;
    };
    let mut argv = Vec::new();
    for (number, item) in items.iter().enumerate() {
        match item.get_ref().as_str().map(|text| argument(text, number == 0)) {
            Some(Ok(argument)) => argv.push(argument),
            Some(Err(label)) => {
                let names = EnvelopeField::ALL.map(EnvelopeField::placeholder).join(", ");
                let what = format!("`{}` has a bad argument", cx.key);
                cx.problem(item.span(), what, label, format!("an argument is text, or one of {names}"));
            }
            None => {
                let what = format!("`{}` has an argument that is not text", cx.key);
                cx.problem(item.span(), what, "not a text", "put it in quotes".to_owned());
            }
        }
    }
    (argv.len() == items.len()).then(|| argv.into())
}

/// Reads one argument. A part of the envelope is the whole argument.
fn argument(text: &str, is_program: bool) -> Result<Argument, &'static str> {
    if text.contains('\0') {
        return Err("has a NUL");
    }
    if is_program {
        return match Path::new(text).is_absolute() && !text.contains(['{', '}']) {
            true => Ok(Argument::Text(text.into())),
            false => Err("the program is not an absolute path"),
        };
    }
    if let Some(field) = EnvelopeField::ALL.into_iter().find(|field| field.placeholder() == text) {
        return Ok(Argument::Field(field));
    }
    if EnvelopeField::ALL.iter().any(|field| text.contains(field.placeholder())) {
        return Err("a part of the envelope must be the whole argument");
    }
    if text.starts_with('{') && text.ends_with('}') {
        return Err("no such part of the envelope");
    }
    Ok(Argument::Text(text.into()))
}
