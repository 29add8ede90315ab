//! The process that listens on a port, as far as this user can see.

use std::fs;

/// The state of a socket that listens, in /proc/net/tcp.
const LISTENS: &str = "0A";

/// Returns the name and number of the process that listens on a port, as far as this user can see.
pub fn owner_of(port: u16) -> Option<(String, u32)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let inodes: Vec<String> = tables.iter().flat_map(|table| inodes_in(table, port)).collect();
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        let has = files.flatten().filter_map(|file| fs::read_link(file.path()).ok()).any(|link| {
            let link = link.to_string_lossy();
            inodes.iter().any(|inode| link == format!("socket:[{inode}]"))
        });
        if has {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some((name.trim_end().to_owned(), pid));
        }
    }
    None
}

/// Returns the inodes of sockets that listen on a port: proc_net_tcp of the kernel's documentation.
fn inodes_in(table: &str, port: u16) -> Vec<String> {
    let suffix = format!(":{port:04X}");
    let listens = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == LISTENS;
        is_it.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    };
    table.lines().filter_map(listens).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_socket_that_listens_is_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:0019 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n\
             1: 0100007F:0019 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0\n";
        assert_eq!(inodes_in(table, 25), ["4711"]);
        assert_eq!(inodes_in(table, 26), [""; 0]);
    }

    #[test]
    fn the_process_behind_a_port_is_named() {
        // Another test may listen on the same port of another address.
        let is_own = |_| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let (_, pid) = owner_of(listener.local_addr().unwrap().port()).unwrap();
            pid == std::process::id()
        };
        assert!((0..5).any(is_own));
    }
}
