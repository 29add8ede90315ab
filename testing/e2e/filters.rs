//! Filters that speak the milter protocol: the daemon next to Debian's Postfix with a filter on Debian's libmilter, and filters that
//! fail.

mod asked;
mod cases;
mod failing;
mod fake;
mod opendkim;
mod oracle;
mod shown;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Compiles the filter that does what a plan says; `None` without a compiler or libmilter.
fn compile(folder: &Path) -> Option<PathBuf> {
    if !Path::new("/usr/include/libmilter/mfapi.h").exists() {
        println!("SKIPPED: libmilter-dev is not installed (cargo xtask setup)");
        return None;
    }
    let program = folder.join("planned");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testing/e2e/filters/planned.c");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-o"]).arg(&program).args([source, "-lmilter", "-lpthread"]);
    match cc.status() {
        Ok(status) => assert!(status.success(), "cc does not compile {source}"),
        Err(error) => {
            println!("SKIPPED: cc cannot be run: {error}");
            return None;
        }
    }
    Some(program)
}

/// A filter on libmilter, which ends with the test.
struct Planned {
    process: Child,
    folder: PathBuf,
}

impl Planned {
    /// Starts a filter with its files in a folder of its own.
    fn start(program: &Path, folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).unwrap();
        let at = |name: &str| folder.join(name);
        let mut command = Command::new(program);
        command.args([at("socket"), at("plan"), at("notes")]).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "listening\n");
        // Postfix's smtpd has a user of its own.
        fs::set_permissions(at("socket"), PermissionsExt::from_mode(0o777)).unwrap();
        Self { process, folder: folder.to_owned() }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Returns a `[filter.NAME]` for this filter.
    fn section(&self, name: &str, more: &str) -> String {
        format!("[filter.{name}]\nmilter = \"unix:{}\"\n{more}", self.socket().display())
    }

    /// Sets the plan, and forgets what was noted.
    fn plan(&self, plan: &str) {
        fs::write(self.folder.join("plan"), plan).unwrap();
        let _ = fs::remove_file(self.folder.join("notes"));
    }

    /// What the filter was told since the plan was set.
    fn notes(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("notes")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Planned {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
