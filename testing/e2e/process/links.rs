//! Links that the daemon's user has put where root makes something for the daemon.

use super::{DAEMON, is_root, open_dir};
use crate::common::{BINARY, free_address};
use std::{
    fs,
    os::unix::fs::{chown, symlink},
    process::Command,
};

#[test]
fn root_makes_nothing_behind_a_link_of_the_daemons_user() {
    if !is_root() {
        return;
    }
    for keys in [
        "data_dir = \"his/link/data\"\n",
        "data_dir = \"data\"\n[log]\nfile = \"his/link/mailq\"\n",
        "data_dir = \"data\"\n[history]\npath = \"his/link/history\"\n",
        "data_dir = \"data\"\n[spool]\npath = \"his/link/spool\"\n",
        "data_dir = \"data\"\n[control]\nsocket = \"his/link/control\"\n",
        "data_dir = \"data\"\n[control]\nmaildrop = \"his/link/drop\"\n",
        "data_dir = \"data\"\n[metrics]\nlisten = \"unix:his/link/metrics\"\n",
        "data_dir = \"data\"\n[[listen]]\naddress = \"unix:his/link/smtp\"\n",
    ] {
        let dir = open_dir();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("his")).unwrap();
        fs::create_dir(at("of-root")).unwrap();
        symlink("../of-root", at("his/link")).unwrap();
        chown(at("his"), Some(DAEMON), Some(DAEMON)).unwrap();
        let listen = format!("[[listen]]\naddress = \"{}\"\n", free_address());
        let text = format!("hostname = \"mx.test\"\n{keys}{listen}[process]\nuser = \"{DAEMON}\"\n");
        fs::write(at("postrider.toml"), text).unwrap();
        let output = Command::new(BINARY)
            .args(["serve", "--config", "postrider.toml"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("is a symbolic link that"), "{keys}: {said}");
        assert_eq!(fs::read_dir(at("of-root")).unwrap().count(), 0, "{keys}");
    }
}
