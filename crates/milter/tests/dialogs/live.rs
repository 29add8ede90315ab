//! The dialogs with libmilter itself. `RECORD_DIALOGS=1` writes the recordings anew.

use crate::{dialogs, script::Transport};
use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The time in which libmilter must answer; it needs a thousandth of it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Compiles the filter; `None` without a compiler or libmilter.
fn compile(folder: &Path) -> Option<PathBuf> {
    if !Path::new("/usr/include/libmilter/mfapi.h").exists() {
        println!("SKIPPED: libmilter-dev is not installed");
        return None;
    }
    let program = folder.join("filter");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/filter.c");
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

/// A filter, which ends with the test.
struct Filter {
    process: Child,
    socket: PathBuf,
    stream: Option<UnixStream>,
}

impl Filter {
    fn start(program: &Path, mode: &str) -> Self {
        let socket = program.with_file_name(format!("{mode}.sock"));
        let mut process = Command::new(program);
        let mut process = process.arg(&socket).arg(mode).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "listening\n");
        Self { process, socket, stream: None }
    }
}

impl Transport for Filter {
    fn open(&mut self) {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        self.stream = Some(stream);
    }

    fn exchange(&mut self, packets: &[u8], take: &mut dyn FnMut(&[u8]) -> bool) {
        self.write(packets);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = self.stream.as_mut().unwrap().read(&mut buffer);
            let length =
                length.unwrap_or_else(|error| panic!("libmilter to {}: {error}", packets.escape_ascii()));
            assert!(length > 0, "libmilter closed the connection");
            if take(&buffer[..length]) {
                return;
            }
        }
    }

    fn write(&mut self, packets: &[u8]) {
        self.stream.as_mut().unwrap().write_all(packets).unwrap();
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn libmilter_says_what_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path()) else { return };
    for (path, script) in dialogs() {
        let mut filter = Filter::start(&program, script.mode());
        let text = script.run(&mut filter);
        if env::var_os("RECORD_DIALOGS").is_some() {
            fs::write(&path, text).unwrap();
        } else {
            assert_eq!(text, script.text, "{}", path.display());
        }
    }
}
