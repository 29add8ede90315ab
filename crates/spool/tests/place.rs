//! A mount over the spool's directory. In a process of its own: the lock of a spool that another test opens twice would
//! be held by a child of this one until it runs its program.

use spool::disk::{Disk as _, RealDisk};

#[test]
fn a_mount_over_the_directory_is_another_directory() {
    let dir = tempfile::tempdir().unwrap();
    let disk = RealDisk::new(dir.path()).unwrap();
    let mount = |what: &str, arguments: &[&str]| {
        let done = std::process::Command::new(what).args(arguments).arg(dir.path()).output();
        done.is_ok_and(|done| done.status.success())
    };
    if !mount("mount", &["-t", "tmpfs", "tmpfs"]) {
        println!("SKIPPED: a mount over a spool: only root can mount");
        return;
    }
    let checked = disk.check_place();
    assert!(mount("umount", &["--lazy"]));
    assert!(checked.unwrap_err().to_string().contains("mounted over"));
    disk.check_place().unwrap();
}
