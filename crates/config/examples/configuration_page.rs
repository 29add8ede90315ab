//! Prints docs/configuration.md, from the same definitions that read the file; `cargo xtask docs`
//! keeps it up to date.

use config::{KeyDoc, SectionDoc};

/// Files for common tasks; `every_task_in_the_manual_is_a_valid_file` reads each.
const TASKS: [&str; 7] = [
    include_str!("tasks/1-relay.toml"),
    include_str!("tasks/2-smarthost.toml"),
    include_str!("tasks/3-lmtp.toml"),
    include_str!("tasks/4-maildir.toml"),
    include_str!("tasks/5-backup.toml"),
    include_str!("tasks/6-tls.toml"),
    include_str!("tasks/7-small.toml"),
];

const INTRODUCTION: &str = r#"<!-- Made by `cargo xtask docs` from crates/config; changes here are lost. -->

# Configuration

Postrider is configured by one file in TOML format, `/etc/postrider/postrider.toml`. Begin with one of the
[common tasks](#common-tasks), and look up further keys in the reference below it. Then check the file and activate it:

```sh
postrider config check postrider.toml   # all problems, with line, column and what to write instead
postrider config show                   # all values in effect, and whether they are from the file or defaults
postrider reload
```

The daemon reads the file when it starts and at `postrider reload`, and checks the whole file first. Unknown keys are errors. A
key that you leave out has its default.

Another file is used if `--config` names one, or else the environment variable `POSTRIDER_CONFIG`. If there is no file at all, a
built-in default serves this machine only and stores everything in `./postrider-data`.

**Further files.** Files `conf.d/*.toml` next to the configuration file, such as `/etc/postrider/conf.d/10-lists.toml`, are read with it,
in the order of their names. Their sections join those of the file: keys of `[queue]` from two files are in effect together, and a
`[[route]]` or `[[rule]]` follows those that were read before. The files of another configuration, that of a second instance, are
in a directory with its name: `lists.conf.d/*.toml` next to `lists.toml`. A key that is set twice is an error. The log names a rule of
a further file with the file: `rule 4 of 10-lists.toml, line 3`, or with its `name`. Relative paths in them begin in the directory of the configuration file.

**Secrets** are never in the configuration: a key names a file (`file:isp.secret`), a systemd credential (`credential:NAME`) or, for
containers, a variable of the daemon's environment (`env:SMTP_PASSWORD`).

**Editors and programs.** `postrider config schema` prints a JSON Schema of the configuration; the package has it in
`/usr/share/postrider/postrider.schema.json`. An editor with the taplo language server completes and explains keys if the file begins with
`#:schema /usr/share/postrider/postrider.schema.json`. `postrider config check --json` prints each problem with file, line, column, code,
message and help.

- A *duration* has a unit: `"250ms"`, `"300s"`, `"5m"`, `"4h"`, `"5d"`, `"1w"`, `"1h30m"`. A number without a unit is seconds.
- A *size* is `"64KiB"`, `"50MiB"`, `"1GiB"` or `"1GB"`. A number without a unit is bytes.
- A relative *path* in the file is relative to the directory of the file; in a default, to the current directory.
- In defaults, `{machine}` stands for the name of the machine (with its domain from /etc/hosts or /etc/mailname), and `{hostname}` and `{data_dir}` for the values of these keys.

"#;

/// The reason for the listeners of the tasks.
const LISTENERS: &str = "`systemd:smtp` is port 25, opened by the package's systemd socket ([install.md](install.md)), because the \
    daemon cannot open the port itself under the package's unit. If you start the daemon as root without the unit, write \
    `\"0.0.0.0:25\"` instead, and add a second section with `\"[::]:25\"` for IPv6.";

fn main() {
    print!("{}", manual());
}

fn manual() -> String {
    let sections = config::schema();
    let mut page = INTRODUCTION.to_owned();
    page.push_str("Sections: ");
    let links: Vec<String> = sections.iter().map(|s| format!("[{}](#{})", title(s), anchor(s))).collect();
    page.push_str(&wrap(&links.join(" · "), ""));
    page.push_str("\n## Common tasks\n\n");
    page.push_str(&wrap(LISTENERS, ""));
    for task in TASKS {
        task_of(task, &mut page);
    }
    for section in sections {
        section_of(&section, &mut page);
    }
    page
}

/// A file's first comment is its title, the rest of the comment the text above it.
fn task_of(task: &str, page: &mut String) {
    let is_comment = |line: &&str| line.starts_with('#');
    let mut comment = task.lines().take_while(is_comment).map(|line| line.trim_start_matches('#').trim());
    let title = comment.next().unwrap_or_default();
    let text = comment.collect::<Vec<_>>().join(" ");
    let toml: Vec<&str> = task.lines().skip_while(is_comment).collect();
    page.push_str(&format!(
        "\n### {title}\n\n{}\n```toml\n{}\n```\n",
        wrap(text.trim(), ""),
        toml.join("\n")
    ));
}

fn title(section: &SectionDoc) -> String {
    if section.name.is_empty() { "Top level".to_owned() } else { format!("`{}`", section.header()) }
}

/// Returns the anchor of a section's heading on the usual sites: letters only, in lower case.
fn anchor(section: &SectionDoc) -> String {
    match section.name {
        "" => "top-level".to_owned(),
        _ => section.header().replace(['[', ']', '.'], "").to_lowercase(),
    }
}

fn section_of(section: &SectionDoc, page: &mut String) {
    page.push_str(&format!("\n## {}\n\n{}", title(section), wrap(&words(section.about), "")));
    if !section.keys.is_empty() {
        page.push('\n');
    }
    for key in section.keys {
        page.push_str(&key_of(key));
    }
}

fn key_of(key: &KeyDoc) -> String {
    let default = match key.default {
        "" => "not set by default".to_owned(),
        value => format!("default `{value}`"),
    };
    let entry = format!("- **`{}`**: {}; {default}. {}", key.name, (key.kind)(), words(key.about));
    wrap(&entry, "  ")
}

/// A doc comment in one line.
fn words(about: &str) -> String {
    about.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Breaks lines at blanks before column 110; those after the first are indented. Blanks in code
/// may be broken as well: Markdown shows a line's end there as a blank.
fn wrap(text: &str, indent: &str) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > 110 {
            out.push('\n');
            out.push_str(indent);
            column = indent.len();
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out + "\n"
}
