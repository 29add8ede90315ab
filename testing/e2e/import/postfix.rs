//! The queue of Postfix.

use super::*;
use crate::common::postfix::Postfix;
use rustix::fs::{FlockOperation, flock};

fn main_cf(next_hop: SocketAddr) -> String {
    format!(
        "myhostname = old.test\nmynetworks = 127.0.0.0/8\nmydestination =\nlocal_recipient_maps =\n\
         relayhost = [127.0.0.1]:{}\nsmtp_dns_support_level = disabled\nsmtp_host_lookup = native\nsmtp_tls_security_level = none\n\
         minimal_backoff_time = 3600\nmaximal_backoff_time = 3600\nsmtpd_relay_restrictions = permit_mynetworks, reject\n\
         smtpd_recipient_restrictions = check_recipient_access regexp:{{{{/^held/ HOLD}}}}, permit_mynetworks, reject\n\
         smtpd_client_message_rate_limit = 0\nsmtp_connection_reuse_count_limit = 1000\n",
        next_hop.port()
    )
}

/// Makes deferred and held mail due: a start of Postfix looks for mail whose time has come.
fn make_due(queue: &Path) {
    for path in snapshot(&queue.join("deferred")).into_keys() {
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    for path in snapshot(&queue.join("hold")).into_keys() {
        fs::rename(&path, queue.join("incoming").join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn the_queue_of_postfix_arrives_once_and_byte_for_byte() {
    let next_hop = free_address();
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = Postfix::start(dir.path(), &main_cf(next_hop), "", &[]) else { return };
    fill(server.address);
    until("Postfix has tried all", || server.deferred_count() == message_count() - held_count());
    server.wait_until_idle();
    let queue = dir.path().join("queue");
    let (config, queue_text) = (dir.path().display().to_string(), queue.display().to_string());
    let arguments = ["import", "postfix", &config, "--queue", &queue_text];

    let (refusing, _) = configure(&Sink::start());
    let refused = run(refusing.path(), &arguments);
    assert_eq!(refused.status.code(), Some(75), "{}", said(&refused));
    assert!(said(&refused).contains("Postfix is running: stop it first"), "{}", said(&refused));
    drop(server);
    let pid_file = fs::File::open(queue.join("pid/master.pid")).unwrap();
    until("the lock is gone", || flock(&pid_file, FlockOperation::NonBlockingLockShared).is_ok());
    drop(pid_file);

    let ours = imported(&arguments, &queue);
    make_due(&queue);
    let sink = sink_at(next_hop);
    let server = Postfix::start(dir.path(), &main_cf(next_hop), "", &[]).unwrap();
    until("Postfix delivers what it had", || arrived_recipients(&sink) == recipient_count());
    drop(server);
    compare(&ours, &arrivals(&sink));
}

#[test]
fn a_second_import_replaces_all_files_of_the_first_and_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("postfix");
    fs::create_dir(&from).unwrap();
    let main = "myhostname = mx.test\nmydestination = mx.test\nsmtpd_sasl_auth_enable = yes\nsmtpd_sasl_type = dovecot\n\
                smtpd_sasl_path = private/auth\nsmtpd_relay_restrcitions = reject\n";
    fs::write(from.join("main.cf"), main).unwrap();
    let master = "smtp inet n - y - - smtpd\nsubmission inet n - y - - smtpd\n  -o smtpd_client_restrictions=permit_sasl_authenticated,reject\n";
    fs::write(from.join("master.cf"), master).unwrap();
    let import = |more: &[&str]| {
        run(dir.path(), &[&["import", "postfix", &*from.display().to_string()], more].concat())
    };
    let said_of = |more: &[&str], code: i32| {
        let output = import(more);
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        said(&output)
    };
    let reported = said_of(&[], 0);
    assert!(reported.ends_with("nothing was written: name a file with --output FILE\n"), "{reported}");
    assert!(reported.contains("did you mean smtpd_relay_restrictions?"), "{reported}");
    let new = &*dir.path().join("new.toml").display().to_string();
    said_of(&["--output", new], 0);
    assert!(dir.path().join("senders").exists());
    assert!(said_of(&["--output", new], 73).contains("use --replace"));
    for old in ["old", "old.2"] {
        let told = said_of(&["--output", new, "--replace"], 0);
        for name in ["senders", "new.toml"] {
            assert!(told.contains(&format!("{name}.{old}\n")), "{told}");
            assert!(dir.path().join(format!("{name}.{old}")).exists());
        }
    }
    let file = run(dir.path(), &["import", "postfix", &from.join("main.cf").display().to_string()]);
    assert!(said(&file).contains("main.cf is a file: name its directory"), "{}", said(&file));
}

#[test]
fn damaged_messages_are_named_and_left_out() {
    let next_hop = free_address();
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = Postfix::start(dir.path(), &main_cf(next_hop), "", &[]) else { return };
    let mut client = Client::connect(server.address).unwrap();
    for number in 0..3 {
        let to = recipients(number);
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        assert_eq!(client.send("a@src.test", &to, &content(number)).unwrap().0, 250);
    }
    until("Postfix has tried all", || server.deferred_count() == 3);
    drop(server);
    let queue = dir.path().join("queue");
    let files: Vec<PathBuf> = snapshot(&queue.join("deferred")).into_keys().collect();
    let file = fs::read(&files[0]).unwrap();
    fs::write(&files[0], &file[..file.len() / 2]).unwrap();
    // Of a log that is too large only the reasons are lost.
    for log in snapshot(&queue.join("defer")).into_keys() {
        fs::File::options().write(true).open(log).unwrap().set_len((1 << 30) + 1).unwrap();
    }
    // A file that is not executable yet was not accepted.
    let half = queue.join("incoming/0123456789");
    fs::write(&half, &file[..file.len() / 3]).unwrap();
    fs::set_permissions(&half, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();

    let sink = Sink::start();
    let (own, address) = configure(&sink);
    let config = dir.path().display().to_string();
    let queue_text = queue.display().to_string();
    let output = run(own.path(), &["import", "postfix", &config, "--queue", &queue_text]);
    assert_eq!(output.status.code(), Some(65), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains(&format!("damaged: {}: the file ends", files[0].display())), "{text}");
    assert_eq!(text.matches("a file of more than 1073741824 octets").count(), 2, "{text}");
    assert!(text.contains("queue          2 messages (0 held), 1 damaged, 1 incomplete"), "{text}");
    let toml = fs::read_to_string(own.path().join("postrider.toml")).unwrap();
    let daemon = Postrider::start_from(own, address, &toml);
    daemon.ask(&["queue", "flush"]);
    until("the others arrive", || daemon.counter("queued") == 0);
    assert_eq!(arrivals(&sink).len(), 2);
}
