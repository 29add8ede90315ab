//! Known vulnerabilities of our dependencies. The list is kept in the repository, because CI reaches no advisory
//! database; it has the advisories of the crates in Cargo.lock, and is refreshed by hand.

use crate::shell::{Done, Failure, root};
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use semver::{Version, VersionReq};
use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};
use toml::{Table, Value};

/// From the root of the repository.
const FILE: &str = "tools/xtask/advisories.toml";

/// Comment at the beginning of the list.
const HEAD: &str = "\
# Known vulnerabilities of crates in Cargo.lock, from the RustSec advisory database. `cargo xtask lint` compares them
# with the versions in Cargo.lock. `cargo xtask advisories DIR` writes this file anew from a checkout of the database
# (git clone https://github.com/rustsec/advisory-db DIR).
";

/// An older list says too little about today's faults.
const AGE_MAX_DAYS: i32 = 30;

/// Advisories that do not concern us, and why.
const ACCEPTED: [(&str, &str); 0] = [];

/// A known vulnerability of a crate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Advisory {
    id: String,
    package: String,
    title: String,
    /// Versions in which it is repaired.
    patched: Vec<String>,
    /// Versions that never had it.
    unaffected: Vec<String>,
}

/// The list, with its date and its source.
#[derive(Debug, PartialEq, Eq)]
struct List {
    /// The date of the comparison with the database.
    date: String,
    source: String,
    advisories: Vec<Advisory>,
}

impl Advisory {
    /// Returns true if this version is vulnerable.
    ///
    /// # Errors
    /// A range or the version is not written as cargo writes it.
    fn affects(&self, version: &str) -> Result<bool, String> {
        let bad = |what: &str, error: semver::Error| format!("{}: {what:?}: {error}", self.id);
        let version = Version::parse(version).map_err(|error| bad(version, error))?;
        for range in self.patched.iter().chain(&self.unaffected) {
            if VersionReq::parse(range).map_err(|error| bad(range, error))?.matches(&version) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The faults of these crates, given by name and version, and how old the list is.
///
/// # Errors
/// The list cannot be read.
pub(crate) fn faults<'p>(
    packages: impl IntoIterator<Item = (&'p str, &'p str)>,
) -> Result<(Vec<String>, String), Failure> {
    let text = fs::read_to_string(root().join(FILE));
    let text = text.map_err(|error| Failure(format!("read {FILE}: {error}")))?;
    let list = List::parse(&text).map_err(|why| Failure(format!("read {FILE}: {why}")))?;
    let accepted = ACCEPTED.map(|(id, _)| id);
    let mut faults = list.faults(packages, &accepted).map_err(Failure)?;
    faults.extend(list.age_fault(today()).map_err(Failure)?);
    Ok((faults, format!("{} advisories of {}", list.advisories.len(), list.date)))
}

/// Today, in UTC.
fn today() -> Date {
    Timestamp::now().to_zoned(TimeZone::UTC).date()
}

impl List {
    /// Says so if the list is too old.
    fn age_fault(&self, today: Date) -> Result<Option<String>, String> {
        let date: Date = self.date.parse().map_err(|error| format!("date {:?}: {error}", self.date))?;
        let days = today.since(date).map_err(|error| error.to_string())?.get_days();
        Ok((days > AGE_MAX_DAYS).then(|| {
            format!(
                "the list of known vulnerabilities is {days} days old, and {AGE_MAX_DAYS} are allowed: `cargo xtask advisories DIR` \
                 writes it anew from a checkout of github.com/rustsec/advisory-db"
            )
        }))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let entries = table.get("advisory").and_then(Value::as_array).ok_or("no [[advisory]]")?;
        let advisories = entries.iter().map(|entry| {
            let entry = entry.as_table().ok_or("an [[advisory]] is not a table")?;
            Ok(Advisory {
                id: text_of(entry, "id")?,
                package: text_of(entry, "package")?,
                title: text_of(entry, "title")?,
                patched: texts_of(entry, "patched"),
                unaffected: texts_of(entry, "unaffected"),
            })
        });
        Ok(Self {
            date: text_of(&table, "date")?,
            source: text_of(&table, "source")?,
            advisories: advisories.collect::<Result<_, String>>()?,
        })
    }

    fn render(&self) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let ranges =
            |ranges: &[String]| ranges.iter().map(|range| quoted(range)).collect::<Vec<_>>().join(", ");
        let mut out = format!("{HEAD}date = {}\nsource = {}\n", quoted(&self.date), quoted(&self.source));
        for Advisory { id, package, title, patched, unaffected } in &self.advisories {
            let (title, patched, unaffected) = (quoted(title), ranges(patched), ranges(unaffected));
            let _ = write!(
                out,
                "\n[[advisory]]\nid = \"{id}\"\npackage = \"{package}\"\ntitle = {title}\npatched = [{patched}]\n\
                 unaffected = [{unaffected}]\n"
            );
        }
        out
    }

    fn faults<'p>(
        &self,
        packages: impl IntoIterator<Item = (&'p str, &'p str)>,
        accepted: &[&str],
    ) -> Result<Vec<String>, String> {
        let (mut faults, mut unused) = (Vec::new(), accepted.to_vec());
        for (name, version) in packages {
            for advisory in self.advisories.iter().filter(|advisory| advisory.package == name) {
                if !advisory.affects(version)? {
                    continue;
                }
                if accepted.contains(&advisory.id.as_str()) {
                    unused.retain(|id| *id != advisory.id);
                    continue;
                }
                let repaired = match &advisory.patched[..] {
                    [] => "no version repairs it".to_owned(),
                    ranges => format!("repaired in {}", ranges.join(" or ")),
                };
                faults.push(format!(
                    "{name} {version} is vulnerable: {}, {}; {repaired}",
                    advisory.id, advisory.title
                ));
            }
        }
        faults.extend(unused.iter().map(|id| format!("{id} is accepted and concerns no crate any more")));
        Ok(faults)
    }
}

fn text_of(table: &Table, key: &str) -> Result<String, String> {
    let found = table.get(key).and_then(Value::as_str).map(str::to_owned);
    found.ok_or_else(|| format!("{key} is missing"))
}

fn texts_of(table: &Table, key: &str) -> Vec<String> {
    let items = table.get(key).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Writes the list anew, from a checkout of the database.
pub(crate) fn refresh(database: &Path) -> Done {
    let lock = fs::read_to_string(root().join("Cargo.lock"));
    let lock = lock.map_err(|error| Failure(format!("read Cargo.lock: {error}")))?;
    let list = from_database(database, &lock).map_err(Failure)?;
    fs::write(root().join(FILE), list.render()).map_err(|error| Failure(format!("write {FILE}: {error}")))?;
    eprintln!("advisories: {FILE} has {} advisories of {}", list.advisories.len(), list.date);
    Ok(())
}

fn from_database(database: &Path, lock: &str) -> Result<List, String> {
    let lock: Table = toml::from_str(lock).map_err(|error| format!("read Cargo.lock: {error}"))?;
    let packages = lock.get("package").and_then(Value::as_array).into_iter().flatten();
    let names: BTreeSet<&str> = packages.filter_map(|package| package.get("name")?.as_str()).collect();
    let mut advisories = Vec::new();
    let crates = database.join("crates");
    if !crates.is_dir() {
        return Err(format!(
            "{} has no folder `crates`: it is no checkout of advisory-db",
            database.display()
        ));
    }
    for name in names {
        for file in files_in(&crates.join(name))? {
            let bad = |why: String| format!("read {}: {why}", file.display());
            let text = fs::read_to_string(&file).map_err(|error| bad(error.to_string()))?;
            advisories.extend(entry(&text).map_err(bad)?);
        }
    }
    advisories.sort();
    Ok(List { date: today().to_string(), source: "github.com/rustsec/advisory-db".to_owned(), advisories })
}

/// The advisories in a crate's folder, if it has one.
fn files_in(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(Vec::new()) };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let is_advisory = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    Ok(paths.into_iter().filter(is_advisory).collect())
}

/// An advisory as the database has it: TOML between fences, and then a title. `None` where it was withdrawn, or
/// is about something else than a fault, such as an unmaintained crate.
fn entry(text: &str) -> Result<Option<Advisory>, String> {
    let (front, rest) = text
        .strip_prefix("```toml\n")
        .and_then(|text| text.split_once("\n```"))
        .ok_or("it does not begin with ```toml")?;
    let front: Table = toml::from_str(front).map_err(|error| error.to_string())?;
    let table = |name: &str| front.get(name).and_then(Value::as_table);
    let about = table("advisory").ok_or("[advisory] is missing")?;
    let kind = about.get("informational").and_then(Value::as_str);
    if about.contains_key("withdrawn") || kind.is_some_and(|kind| kind != "unsound") {
        return Ok(None);
    }
    let versions = table("versions").ok_or("[versions] is missing")?;
    let title = rest.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    let advisory = Advisory {
        id: text_of(about, "id")?,
        package: text_of(about, "package")?,
        title: title.trim().to_owned(),
        patched: texts_of(versions, "patched"),
        unaffected: texts_of(versions, "unaffected"),
    };
    Ok(Some(advisory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> List {
        List::parse(&fs::read_to_string(root().join(FILE)).unwrap()).unwrap()
    }

    #[test]
    fn a_known_bad_version_is_told_and_a_repaired_one_is_not() {
        let faults = |name, version| kept().faults([(name, version)], &[]).unwrap();
        let told = faults("rustls", "0.23.44").join("\n");
        assert!(
            told.starts_with("rustls 0.23.44 is vulnerable: RUSTSEC-2026-0285, TLS 1.3 handshake"),
            "{told}"
        );
        assert!(told.ends_with("; repaired in >= 0.23.45"), "{told}");
        assert_eq!(faults("tokio", "1.44.1").len(), 1);
        assert_eq!(faults("hickory-proto", "0.25.2").len(), 2);
        for (name, version) in [("rustls", "0.23.45"), ("tokio", "1.43.1"), ("hickory-proto", "0.26.1")] {
            assert_eq!(faults(name, version), [""; 0], "{name} {version}");
        }
    }

    #[test]
    fn what_is_accepted_must_still_concern_a_crate() {
        let accepted = ["RUSTSEC-2026-0285", "RUSTSEC-2025-0024"];
        let faults = kept().faults([("rustls", "0.23.44")], &accepted).unwrap();
        assert_eq!(faults, ["RUSTSEC-2025-0024 is accepted and concerns no crate any more"]);
    }

    #[test]
    fn every_range_of_the_list_can_be_read_and_the_list_is_as_it_is_written() {
        let list = kept();
        for advisory in &list.advisories {
            advisory.affects("1.0.0").unwrap();
        }
        assert!(list.advisories.is_sorted());
        assert_eq!(list.render(), fs::read_to_string(root().join(FILE)).unwrap());
    }

    #[test]
    fn a_list_is_too_old_after_thirty_days() {
        let list = List { date: "2026-11-22".into(), source: String::new(), advisories: Vec::new() };
        let on = |day: &str| list.age_fault(day.parse().unwrap()).unwrap();
        assert_eq!(on("2026-12-22"), None);
        assert!(on("2026-12-23").unwrap().contains("31 days old"));
        assert!(List { date: "today".into(), ..list }.age_fault(today()).is_err());
    }

    #[test]
    fn a_refresh_takes_faults_of_our_crates_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("postrider-advisories-{}", std::process::id()));
        let write = |name: &str, id: &str, more: &str| {
            let folder = dir.join("crates").join(name);
            fs::create_dir_all(&folder).unwrap();
            let text = format!(
                "```toml\n[advisory]\nid = \"{id}\"\npackage = \"{name}\"\n{more}\n\
                 [versions]\npatched = [\">= 2.0.0\"]\n```\n\n# Title of {id}\n\nText\n"
            );
            fs::write(folder.join(format!("{id}.md")), text).unwrap();
        };
        write("ours", "bad", "");
        write("ours", "unsound", "informational = \"unsound\"");
        write("ours", "gone", "withdrawn = \"2026-01-02\"");
        write("ours", "unmaintained", "informational = \"unmaintained\"");
        write("other", "elsewhere", "");
        let list = from_database(&dir, "[[package]]\nname = \"ours\"\n[[package]]\nname = \"none\"\n");
        let none = from_database(&dir.join("crates"), "");
        fs::remove_dir_all(&dir).unwrap();
        let list = list.unwrap();
        let ids: Vec<&str> = list.advisories.iter().map(|advisory| advisory.id.as_str()).collect();
        assert_eq!(ids, ["bad", "unsound"]);
        assert_eq!(list.advisories[0].title, "Title of bad");
        assert_eq!(list.faults([("ours", "1.9.0"), ("other", "1.0.0")], &[]).unwrap().len(), 2);
        assert_eq!(List::parse(&list.render()).unwrap(), list);
        assert!(none.unwrap_err().contains("no checkout of advisory-db"));
    }
}
