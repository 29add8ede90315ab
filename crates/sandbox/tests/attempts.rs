//! A process under the rules of the daemon tries what a captured daemon would try: each attempt fails. The same attempts
//! without the sandbox show that they could succeed.

#![allow(unsafe_code)] // system calls that no safe wrapper covers

use sandbox::{Identity, Refusal, Rules, SystemCalls, become_user, restrict};
use std::{
    collections::BTreeMap,
    fs, io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

/// In the environment of a child: the folder of the test, and whether there is a sandbox.
const FOLDER: &str = "SANDBOX_TEST_FOLDER";
const IS_CONFINED: &str = "SANDBOX_TEST_CONFINED";
const OTHER_PORT: &str = "SANDBOX_TEST_OTHER_PORT";

fn main() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return child(&PathBuf::from(folder));
    }
    let folder = tempfile::tempdir().unwrap();
    for dir in ["data", "elsewhere", "etc"] {
        fs::create_dir(folder.path().join(dir)).unwrap();
        fs::set_permissions(folder.path().join(dir), fs::Permissions::from_mode(0o777)).unwrap();
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let permitted = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = permitted.local_addr().unwrap().port();
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"../data\"\n[[route]]\ndomains = [\"a.test\"]\n\
         smarthost = \"127.0.0.1:{port}\"\n"
    );
    fs::write(folder.path().join("etc/postrider.toml"), text).unwrap();
    fs::write(folder.path().join("elsewhere/secret"), "secret").unwrap();
    let message = folder.path().join("data/message");

    let run = |is_confined: bool| {
        fs::write(&message, "from another session").unwrap();
        fs::set_permissions(&message, fs::Permissions::from_mode(0o666)).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(FOLDER, folder.path()).env(OTHER_PORT, other.local_addr().unwrap().port().to_string());
        if is_confined {
            command.env(IS_CONFINED, "yes");
        }
        let output = command.output().unwrap();
        let (said, errors) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{said}{errors}");
        if said.contains("SKIPPED") {
            print!("{said}");
        }
        let pairs = said.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(name, result)| (name.to_owned(), result.to_owned())).collect::<BTreeMap<_, _>>()
    };

    let free = run(false);
    for name in POSSIBLE {
        assert_eq!(free[*name], "ok", "without the sandbox, {name} can be done: {free:#?}");
    }
    let confined = run(true);
    for name in NEEDED {
        assert_eq!(confined[*name], "ok", "the daemon needs this: {confined:#?}");
    }
    for name in REACHED {
        assert_eq!(
            confined[*name], "ok",
            "docs/decisions/sandbox.md says that a fault reaches this: {confined:#?}"
        );
    }
    let is_permitted = |name: &str| NEEDED.contains(&name) || REACHED.contains(&name);
    for (name, result) in confined.iter().filter(|(name, _)| !is_permitted(name)) {
        let is_refused = ["EPERM", "EACCES", "ENOSYS"].contains(&result.as_str());
        assert!(is_refused, "{name} was not refused: {confined:#?}");
    }
    println!(
        "test each_attempt_of_a_captured_daemon_fails ... ok ({} attempts)",
        confined.len() - NEEDED.len() - REACHED.len()
    );
}

/// A request of ptrace(2) that does not stop the other process (0x4206 in linux/ptrace.h).
const PTRACE_WITHOUT_STOP: libc::c_uint = 0x4206;

/// Attempts that succeed without the sandbox, also for a user without rights.
const POSSIBLE: &[&str] = &[
    "execve",
    "start a program",
    "write outside of its folders",
    "read outside of its folders",
    "connect to another port",
    "listen on a port",
    "set its own user",
    "signal itself",
    "open a netlink socket",
    "map memory with code",
    "make a FIFO",
];
/// Things that the daemon does.
const NEEDED: &[&str] = &[
    "write in its folder",
    "rename in its folder",
    "read its configuration",
    "connect to its port",
    "start a thread",
    "read /proc/stat",
    "read random numbers",
];

/// What a fault in TLS, the resolver or a session reaches, since all of them are one process: the mail of all others.
const REACHED: &[&str] = &[
    "read a queued message of another session",
    "change a queued message of another session",
    "delete a queued message of another session",
];

fn child(folder: &Path) {
    if std::env::var_os(IS_CONFINED).is_some() {
        confine(folder);
    }
    let other: u16 = std::env::var(OTHER_PORT).unwrap().parse().unwrap();
    let own: u16 = {
        let text = fs::read_to_string(folder.join("etc/postrider.toml")).unwrap();
        text.split("127.0.0.1:").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
    };
    let (data, elsewhere) = (folder.join("data"), folder.join("elsewhere"));
    show("write in its folder", fs::write(data.join("new"), "x"));
    show("rename in its folder", fs::rename(data.join("new"), data.join("old")));
    show("read its configuration", fs::read(folder.join("etc/postrider.toml")));
    show("connect to its port", TcpStream::connect((Ipv4Addr::LOCALHOST, own)));
    show("start a thread", std::thread::Builder::new().spawn(|| ()).map(|thread| thread.join().unwrap()));
    show("read /proc/stat", fs::read("/proc/stat"));
    let random = fs::File::open("/dev/random").and_then(|_| fs::File::open("/dev/urandom"));
    show("read random numbers", random);

    let message = data.join("message");
    show("read a queued message of another session", fs::read(&message));
    show("change a queued message of another session", fs::write(&message, "forged"));
    show("delete a queued message of another session", fs::remove_file(&message));

    // Also on a thread that began before the filter, and on one that began later.
    std::thread::spawn(move || attempts(&data, &elsewhere, other)).join().unwrap();
    // The last one: without the sandbox, the process is another program afterwards.
    let error = Command::new("/bin/sh").args(["-c", "echo execve=ok"]).exec();
    show("execve", Err::<(), _>(error));
}

fn attempts(data: &Path, elsewhere: &Path, other: u16) {
    show("start a program", Command::new("/bin/true").status());
    show("read /etc/shadow", fs::read("/etc/shadow"));
    show("read outside of its folders", fs::read(elsewhere.join("secret")));
    show("write outside of its folders", fs::write(elsewhere.join("new"), "x"));
    show(
        "write in /tmp",
        fs::write(format!("/tmp/sandbox-test-{}", std::process::id()), "x").inspect(|()| {
            let _ = fs::remove_file(format!("/tmp/sandbox-test-{}", std::process::id()));
        }),
    );
    show(
        "link out of its folder",
        fs::hard_link(data.join("old"), elsewhere.join("link")).inspect(|()| {
            let _ = fs::remove_file(elsewhere.join("link"));
        }),
    );
    show("connect to another port", TcpStream::connect((Ipv4Addr::LOCALHOST, other)));
    show("listen on a port", TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let fifo = std::ffi::CString::new(data.join("fifo").to_str().unwrap()).unwrap();
    // SAFETY: each call below has only numbers, null pointers, or pointers to what outlives it.
    unsafe {
        let zero = 0_usize;
        show(
            "make a FIFO",
            done(libc::syscall(libc::SYS_mknodat, libc::AT_FDCWD, fifo.as_ptr(), libc::S_IFIFO | 0o600, 0)),
        );
        show(
            "set its own user",
            done(libc::syscall(libc::SYS_setresuid, libc::getuid(), libc::getuid(), libc::getuid())),
        );
        show("become root", done(libc::syscall(libc::SYS_setresuid, 0, 0, 0)));
        show(
            "set its own group",
            done(libc::syscall(libc::SYS_setresgid, libc::getgid(), libc::getgid(), libc::getgid())),
        );
        show("set groups", done(libc::syscall(libc::SYS_setgroups, 0, zero)));
        show("signal itself", done(libc::syscall(libc::SYS_kill, libc::getpid(), 0)));
        show("signal its parent", done(libc::syscall(libc::SYS_kill, libc::getppid(), 0)));
        show(
            "ptrace",
            done(libc::syscall(libc::SYS_ptrace, PTRACE_WITHOUT_STOP, libc::getppid(), zero, zero)),
        );
        show(
            "read memory of others",
            done(libc::syscall(libc::SYS_process_vm_readv, libc::getppid(), zero, 0, zero, 0, 0)),
        );
        show("mount", done(libc::syscall(libc::SYS_mount, zero, fifo.as_ptr(), zero, libc::MS_BIND, zero)));
        show("bpf", done(libc::syscall(libc::SYS_bpf, 5, zero, 0)));
        show("keyctl", done(libc::syscall(libc::SYS_keyctl, 0, -3, 0)));
        show("io_uring", done(libc::syscall(libc::SYS_io_uring_setup, 1, zero)));
        show("a new namespace", done(libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER)));
        show("a new process", done(fork()));
        show("clone3", done(libc::syscall(libc::SYS_clone3, zero, 0)));
        show("userfaultfd", done(libc::syscall(libc::SYS_userfaultfd, 0)));
        show("perf events", done(libc::syscall(libc::SYS_perf_event_open, zero, 0, -1, -1, 0)));
        show("load a module", done(libc::syscall(libc::SYS_init_module, zero, 0, fifo.as_ptr())));
        show("reboot", done(libc::syscall(libc::SYS_reboot, 0, 0, 0, 0)));
        show(
            "open a netlink socket",
            done(libc::syscall(libc::SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, 0)),
        );
        show(
            "open a packet socket",
            done(libc::syscall(libc::SYS_socket, libc::AF_PACKET, libc::SOCK_RAW, 0)),
        );
        // Landlock checks the ports of TCP by connect(2) and bind(2) only: these would reach every port.
        show(
            "open an MPTCP socket",
            done(libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP)),
        );
        show(
            "open an SCTP socket",
            done(libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP)),
        );
        show(
            "open a raw socket",
            done(libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_TCP)),
        );
        show(
            "connect without connect(2)",
            done(libc::syscall(libc::SYS_sendto, -1, zero, 0, libc::MSG_FASTOPEN, zero, 0)),
        );
        show("the same by sendmsg(2)", done(libc::syscall(libc::SYS_sendmsg, -1, zero, libc::MSG_FASTOPEN)));
        let (rwx, anonymous) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        show("map memory with code", done(libc::syscall(libc::SYS_mmap, zero, 4096, rwx, anonymous, -1, 0)));
        // From a terminal, characters could be put into the input of its shell.
        show(
            "push input into a terminal",
            done(libc::syscall(libc::SYS_ioctl, 0, libc::TIOCSTI, fifo.as_ptr())),
        );
    }
}

/// Makes a process that ends at once, by the call that threads use, too.
fn fork() -> i64 {
    // SAFETY: the new process has its own copy of the memory, and does nothing but end.
    unsafe {
        let pid = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
        if pid == 0 {
            libc::_exit(0);
        }
        pid
    }
}

fn done(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn show<T>(name: &str, result: io::Result<T>) {
    let word = match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => match error.raw_os_error() {
            Some(libc::EPERM) => "EPERM".to_owned(),
            Some(libc::EACCES) => "EACCES".to_owned(),
            Some(libc::ENOSYS) => "ENOSYS".to_owned(),
            _ => error.to_string(),
        },
    };
    println!("{name}={word}");
}

/// Takes the steps of the daemon, in its order.
fn confine(folder: &Path) {
    let source = folder.join("etc/postrider.toml");
    let settings = config::load(Some(&source)).unwrap();
    if rustix::process::geteuid().is_root() {
        let nobody = config::user_by_name("nobody").expect("the machine has the user nobody");
        become_user(&Identity::of(&nobody, None)).unwrap();
    } else {
        println!("SKIPPED: only root can become another user; the other attempts are made");
    }
    let lacking = restrict(&Rules::of(&settings, Some(&source), false)).unwrap();
    assert_eq!(lacking, None, "this kernel cannot show everything");
    SystemCalls::new(Refusal::Fail).unwrap().restrict().unwrap();
}
