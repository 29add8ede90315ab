//! What the programs write about themselves: man pages, completions, schemas.

use crate::{
    files::{copy, gzip, list, remove, write},
    shell::{Done, output, run},
};
use std::{path::Path, process::Command};

/// Which program a package is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Program {
    Postrider,
    Postlab,
}

impl Program {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postrider => "postrider",
            Self::Postlab => "postlab",
        }
    }

    /// The arguments that print the program's schema, and the name of its file.
    fn schema(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::Postrider => (&["config", "schema"], "postrider.schema.json"),
            Self::Postlab => (&["schema"], "results.schema.json"),
        }
    }
}

/// Shells, with the place of their completions below /usr/share; `@` is the program's name.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/@"),
    ("zsh", "zsh/vendor-completions/_@"),
    ("fish", "fish/vendor_completions.d/@.fish"),
];

/// Writes compressed man pages into the folders of their sections.
pub(crate) fn manuals(binary: &Path, man: &Path) -> Done {
    let pages = man.join("new");
    run(Command::new(binary).arg("man").arg(&pages))?;
    for page in list(&pages)? {
        let section = page.extension().and_then(|end| end.to_str()).unwrap_or("1");
        let name = page.file_name().unwrap_or_default();
        let place = man.join(format!("man{section}")).join(name);
        copy(&page, &place, 0o644)?;
        gzip(&place)?;
    }
    remove(&pages)
}

/// Writes the completions of all shells below a folder such as /usr/share.
pub(crate) fn completions(program: Program, binaries: &Path, share: &Path) -> Done {
    for (shell, place) in SHELLS {
        let script = output(Command::new(binaries.join(program.name())).args(["completions", shell]))?;
        write(&share.join(place.replace('@', program.name())), script)?;
    }
    Ok(())
}

/// Writes the JSON Schema: of the configuration, or of the results.
pub(crate) fn schema(program: Program, binaries: &Path, folder: &Path) -> Done {
    let (arguments, file) = program.schema();
    let schema = output(Command::new(binaries.join(program.name())).args(arguments))?;
    write(&folder.join(file), schema)
}
