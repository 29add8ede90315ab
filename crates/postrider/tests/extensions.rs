//! Extensions of SMTP that decide how a message leaves.

mod common;

use common::{Postrider, free_address, sink::Sink, until};
use std::{fs, net::SocketAddr, process::Stdio};

/// Sends a message with REQUIRETLS over STARTTLS; none where there is no python3.
fn send_with_requiretls(to: SocketAddr, recipient: &str) -> Option<()> {
    let script = format!(
        "import smtplib, ssl\n\
         context = ssl._create_unverified_context()\n\
         smtp = smtplib.SMTP('{}', {})\n\
         smtp.starttls(context=context)\n\
         smtp.ehlo('client.test')\n\
         assert smtp.has_extn('requiretls'), smtp.esmtp_features\n\
         smtp.sendmail('a@mx.test', ['{recipient}'], b'Subject: s\\r\\n\\r\\nx\\r\\n', mail_options=['REQUIRETLS'])\n\
         smtp.quit()\n",
        to.ip(),
        to.port()
    );
    let mut python = common::program("python3")?;
    let output = python.arg("-c").arg(script).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

#[test]
fn a_message_that_requires_tls_leaves_over_a_verified_connection_only() {
    let made = rcgen::generate_simple_self_signed(["hub.test".to_owned()]).unwrap();
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let log = "[log]\nfile = \"mail.log\"\n";
    let hub = Postrider::start_in(
        dir,
        address,
        &format!(
            "[local]\ndomains = [\"mx.test\", \"verified.test\"]\n[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n{log}"
        ),
    );
    let route = |domain: &str, tls: &str| {
        format!(
            "[[route]]\ndomains = [\"{domain}\"]\nsmarthost = \"hub.test:{}\"\ntls = \"{tls}\"\n",
            address.port()
        )
    };
    let plain = Sink::start();
    let to_plain = format!("[[route]]\ndomains = [\"plain.test\"]\nsmarthost = \"{}\"\n", plain.address);
    let ca = format!("[tls]\nca_file = \"{}\"\n", hub.dir.path().join("cert.pem").display());
    let hosts = "[hosts]\n\"hub.test\" = [\"127.0.0.1\"]\n";
    let routes = route("verified.test", "verify") + &route("else.test", "require") + &to_plain;
    let front = Postrider::start(&format!("{routes}{ca}{hosts}{log}"));
    let Some(()) = send_with_requiretls(front.address, "joe@verified.test") else { return };
    until("the hub has delivered the message", || !hub.mailbox("joe").is_empty());
    for recipient in ["joe@else.test", "joe@plain.test"] {
        send_with_requiretls(front.address, recipient).unwrap();
        let failed = |line: &serde_json::Value| line["to"] == recipient && line["dsn"] == "5.7.30";
        until("the message is returned", || front.log().iter().any(failed));
    }
    assert_eq!(plain.count(), 0);
    let returned = || front.mailbox("a").len() == 2;
    until("the sender is told", returned);
    let text = fs::read_to_string(&front.mailbox("a")[0]).unwrap();
    assert!(text.contains("Status: 5.7.30") && text.contains("REQUIRETLS"), "{text}");
}
