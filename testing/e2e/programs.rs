//! Programs that are not ours, in clear text, over TLS and with logins. `cargo xtask interop` writes down what is seen.

use crate::common::{
    Postrider, free_address,
    record::seen,
    servers::{Postfix, dovecot_auth},
    sink::Sink,
    until,
};
use std::{
    fs,
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output, Stdio},
};

const MAIL: &str = "From: jane@mx.test\r\nTo: joe@mx.test\r\nSubject: s\r\n\r\n.body\r\n";

/// A daemon with three listeners. Jane's password is `secret`.
pub(crate) struct Server {
    daemon: Postrider,
    /// Without logins.
    pub(crate) plain: SocketAddr,
    /// The port with STARTTLS.
    pub(crate) submission: SocketAddr,
    /// With TLS from the first octet.
    pub(crate) wrapped: SocketAddr,
    sent: usize,
}

impl Server {
    pub(crate) fn start() -> Self {
        let (dir, submission, wrapped) = (tempfile::tempdir().unwrap(), free_address(), free_address());
        fs::write(dir.path().join("users"), "jane:{PLAIN}secret\n").unwrap();
        let made =
            rcgen::generate_simple_self_signed(["mx.test".to_owned(), "localhost".to_owned()]).unwrap();
        fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
        fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let text = format!(
            "[[listen]]\naddress = \"{submission}\"\nkind = \"submission\"\n\
             [[listen]]\naddress = \"{wrapped}\"\nkind = \"submissions\"\n[auth]\nusers = \"passwd:users\"\n\
             [tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n"
        );
        let daemon = Postrider::start_in(dir, free_address(), &text);
        Self { plain: daemon.address, daemon, submission, wrapped, sent: 0 }
    }

    /// Waits for the next mail of a program, and notes it.
    pub(crate) fn delivered(&mut self, program: &str, tried: &str) {
        self.sent += 1;
        until(&format!("{program}: {tried}"), || self.daemon.mailbox("joe").len() == self.sent);
        seen(program, tried, "delivered");
    }
}

/// Runs a program with this input; fails the test when it fails.
pub(crate) fn run(command: &mut Command, input: &[u8]) -> Output {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    // It may end without reading all of it.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn swaks_delivers() {
    let mut server = Server::start();
    let login = |mechanism| ["--auth", mechanism, "--auth-user", "jane", "--auth-password", "secret"];
    for (address, more, tried) in [
        (server.plain, vec![], "in clear text"),
        (server.plain, vec!["--pipeline"], "in clear text, PIPELINING"),
        (server.plain, vec!["--tls"], "STARTTLS"),
        (server.submission, [&["--tls"][..], &login("PLAIN")].concat(), "STARTTLS, AUTH PLAIN"),
        (server.submission, [&["--tls"][..], &login("LOGIN")].concat(), "STARTTLS, AUTH LOGIN"),
        (server.wrapped, [&["--tls-on-connect"][..], &login("PLAIN")].concat(), "implicit TLS, AUTH PLAIN"),
    ] {
        let Some(mut swaks) = crate::common::program("swaks") else { return };
        swaks.args(["--server", &address.to_string(), "--helo", "client.test", "--from", "jane@mx.test"]);
        run(swaks.args(["--to", "joe@mx.test"]).args(more), b"");
        server.delivered("swaks", tried);
    }
}

#[test]
fn msmtp_delivers() {
    let mut server = Server::start();
    let (starttls, implicit) = (["--tls=on", "--tls-starttls=on"], ["--tls=on", "--tls-starttls=off"]);
    for (address, tls, auth, tried) in [
        (server.plain, &["--tls=off"][..], "off", "in clear text"),
        (server.plain, &starttls, "off", "STARTTLS"),
        (server.submission, &starttls, "plain", "STARTTLS, AUTH PLAIN"),
        (server.submission, &starttls, "login", "STARTTLS, AUTH LOGIN"),
        (server.submission, &starttls, "scram-sha-1", "STARTTLS, AUTH SCRAM-SHA-1"),
        (server.submission, &starttls, "scram-sha-256", "STARTTLS, AUTH SCRAM-SHA-256"),
        (server.wrapped, &implicit, "plain", "implicit TLS, AUTH PLAIN"),
    ] {
        let Some(mut msmtp) = crate::common::program("msmtp") else { return };
        msmtp.args(["--host=127.0.0.1", &format!("--port={}", address.port()), &format!("--auth={auth}")]);
        msmtp.args(["--user=jane", "--passwordeval=echo secret", "--from=jane@mx.test", "joe@mx.test"]);
        if tls[0] == "--tls=on" {
            msmtp.arg("--tls-certcheck=off");
        }
        run(msmtp.args(tls), MAIL.as_bytes());
        server.delivered("msmtp", tried);
    }
}

#[test]
fn gsasl_logs_in() {
    let server = Server::start();
    let mechanisms =
        ["PLAIN", "LOGIN", "SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-1-PLUS", "SCRAM-SHA-256-PLUS"];
    for mechanism in mechanisms {
        let Some(mut gsasl) = crate::common::program("gsasl") else { return };
        gsasl.args(["--client", "--smtp", &format!("--connect={}", server.submission), "--starttls"]);
        gsasl.args(["--x509-ca-file=", &format!("--mechanism={mechanism}"), "--authentication-id=jane"]);
        // With the connection's bindings at hand it refuses itself to do without them.
        gsasl.arg("--password=secret").args((!mechanism.ends_with("-PLUS")).then_some("--no-cb"));
        let output = run(&mut gsasl, b"");
        assert!(said(&output).contains("235 2.7.0"), "{mechanism}: {}", said(&output));
        seen("gsasl", &format!("STARTTLS, AUTH {mechanism}"), "235");
    }
}

#[test]
fn curl_delivers() {
    let mut server = Server::start();
    let (plain, submission) = (format!("smtp://{}", server.plain), format!("smtp://{}", server.submission));
    let wrapped = format!("smtps://{}", server.wrapped);
    let file = server.daemon.dir.path().join("mail");
    fs::write(&file, MAIL).unwrap();
    let user = ["--ssl-reqd", "-k", "--user", "jane:secret"];
    let by = |options| [&user[..], &["--login-options", options]].concat();
    for (url, more, tried) in [
        (&plain, vec![], "in clear text"),
        (&plain, vec!["--ssl-reqd", "-k"], "STARTTLS"),
        (&submission, by("AUTH=PLAIN"), "STARTTLS, AUTH PLAIN"),
        (&submission, by("AUTH=LOGIN"), "STARTTLS, AUTH LOGIN"),
        (&wrapped, by("AUTH=PLAIN"), "implicit TLS, AUTH PLAIN"),
    ] {
        let Some(mut curl) = crate::common::program("curl") else { return };
        curl.args(["-sS", "--url", url, "--mail-from", "jane@mx.test", "--mail-rcpt", "joe@mx.test", "-T"]);
        run(curl.arg(&file).args(more), b"");
        server.delivered("curl", tried);
    }
}

#[test]
fn pythons_smtplib_delivers() {
    let mut server = Server::start();
    let script = |address: SocketAddr, class: &str, steps: &str| {
        format!(
            "import smtplib, ssl\ncontext = ssl.create_default_context()\ncontext.check_hostname = False\n\
             context.verify_mode = ssl.CERT_NONE\nsmtp = smtplib.{class}(\"127.0.0.1\", {}{})\n{steps}\n\
             assert smtp.sendmail(\"jane@mx.test\", [\"joe@mx.test\"], {MAIL:?}) == {{}}\nsmtp.quit()\n",
            address.port(),
            if class == "SMTP" { "" } else { ", context=context" },
        )
    };
    let starttls = "smtp.starttls(context=context)";
    let login = "smtp.user, smtp.password = \"jane\", \"secret\"\nsmtp.ehlo()\n";
    for (address, class, steps, tried) in [
        (server.plain, "SMTP", String::new(), "in clear text"),
        (server.plain, "SMTP", starttls.to_owned(), "STARTTLS"),
        (
            server.submission,
            "SMTP",
            format!("{starttls}\nsmtp.login(\"jane\", \"secret\")"),
            "STARTTLS, login()",
        ),
        (
            server.submission,
            "SMTP",
            format!("{starttls}\n{login}smtp.auth(\"LOGIN\", smtp.auth_login)"),
            "STARTTLS, AUTH LOGIN",
        ),
        (server.wrapped, "SMTP_SSL", "smtp.login(\"jane\", \"secret\")".to_owned(), "implicit TLS, login()"),
    ] {
        let Some(mut python) = crate::common::program("python3") else { return };
        run(python.arg("-"), script(address, class, &steps).as_bytes());
        server.delivered("Python smtplib", tried);
    }
}

#[test]
fn scramp_proves_the_password_and_checks_the_servers_proof() {
    let server = Server::start();
    for (mechanism, binding) in [
        ("SCRAM-SHA-1", false),
        ("SCRAM-SHA-256", false),
        ("SCRAM-SHA-1-PLUS", true),
        ("SCRAM-SHA-256-PLUS", true),
    ] {
        let Some(mut python) = crate::common::python_with("scramp") else { return };
        let binding_of = if binding { "(\"tls-server-end-point\", smtp.sock)" } else { "None" };
        let script = format!(
            r#"
import base64, scramp, smtplib, ssl
context = ssl.create_default_context()
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
smtp = smtplib.SMTP("127.0.0.1", {port})
smtp.starttls(context=context)
smtp.ehlo()
client = scramp.ScramClient(["{mechanism}"], "jane", "secret", channel_binding={binding_of})
coded = lambda text: base64.b64encode(text.encode()).decode()
code, first = smtp.docmd("AUTH", "{mechanism} " + coded(client.get_client_first()))
assert code == 334, first
client.set_server_first(base64.b64decode(first).decode())
code, last = smtp.docmd(coded(client.get_client_final()))
assert code == 334, last
client.set_server_final(base64.b64decode(last).decode())
code, text = smtp.docmd("")
assert code == 235, text
smtp.quit()
"#,
            port = server.submission.port()
        );
        run(python.arg("-"), script.as_bytes());
        let channel = if binding { ", bound to the server's certificate" } else { "" };
        seen(
            "scramp",
            &format!("STARTTLS, AUTH {mechanism}{channel}"),
            "235, and the server's proof is right",
        );
    }
}

#[test]
fn nullmailer_delivers() {
    let mut server = Server::start();
    let Some(tree) = crate::common::unpacked("nullmailer") else { return };
    let file = server.daemon.dir.path().join("mail");
    // Its protocol program reads sender, recipients and message from descriptor 3.
    fs::write(&file, format!("jane@mx.test\njoe@mx.test\n\n{}", MAIL.replace('\r', ""))).unwrap();
    let user = ["--user=jane", "--pass=secret", "--insecure"];
    for (address, more, tried) in [
        (server.plain, vec![], "in clear text"),
        (server.plain, vec!["--starttls", "--insecure"], "STARTTLS"),
        (server.submission, [&["--starttls"][..], &user].concat(), "STARTTLS, the login that it chooses"),
        (server.submission, [&["--starttls", "--auth-login"][..], &user].concat(), "STARTTLS, AUTH LOGIN"),
        (server.wrapped, [&["--tls"][..], &user].concat(), "implicit TLS, the login that it chooses"),
    ] {
        let mut smtp = Command::new("sh");
        smtp.args(["-c", "mail=$1; shift; exec \"$@\" 3< \"$mail\"", "sh"]).arg(&file);
        smtp.arg(tree.join("usr/lib/nullmailer/smtp")).arg("--host=127.0.0.1").env("HELOHOST", "client.test");
        run(smtp.arg(format!("--port={}", address.port())).args(more), b"");
        server.delivered("nullmailer", tried);
    }
}

#[test]
fn dma_delivers() {
    let mut server = Server::start();
    let Some(tree) = crate::common::unpacked("dma") else { return };
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: dma reads /etc/dma only, and only root can put a file there for it alone");
        return;
    }
    let etc = tempfile::tempdir().unwrap();
    fs::set_permissions(etc.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(etc.path().join("dma")).unwrap();
    let file = |name: &str, text: &str| {
        let path = etc.path().join("dma").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    };
    file("auth.conf", "jane|127.0.0.1:secret\n");
    // In a view of the file system of its own, with /etc/dma and an empty spool.
    let script = "mount -t overlay overlay -o \"lowerdir=$1:/etc\" /etc && mount -t tmpfs tmpfs /var/spool && \
                  mkdir -m 2770 /var/spool/dma && chgrp mail /var/spool/dma && chown root /var/spool/dma && shift && exec \"$@\"";
    let auth = "AUTHPATH /etc/dma/auth.conf\n";
    for (address, keys, tried) in [
        (server.plain, String::new(), "in clear text"),
        (server.plain, "SECURETRANSFER\nSTARTTLS\n".to_owned(), "STARTTLS"),
        (server.submission, format!("SECURETRANSFER\nSTARTTLS\n{auth}"), "STARTTLS, AUTH LOGIN"),
        (server.wrapped, format!("SECURETRANSFER\n{auth}"), "implicit TLS, AUTH LOGIN"),
    ] {
        file(
            "dma.conf",
            &format!("SMARTHOST 127.0.0.1\nPORT {}\nMAILNAME client.test\n{keys}", address.port()),
        );
        let mut dma = Command::new("unshare");
        dma.args(["--mount", "sh", "-c", script, "sh"]).arg(etc.path()).arg(tree.join("usr/sbin/dma"));
        // In the foreground.
        run(dma.args(["-D", "-f", "jane@mx.test", "joe@mx.test"]), MAIL.replace('\r', "").as_bytes());
        server.delivered("dma", tried);
    }
}

/// Postfix's client relays to this address with these settings.
fn postfix_client(address: SocketAddr, more: &str) -> Option<Postfix> {
    Postfix::start(&format!(
        "relayhost = [127.0.0.1]:{}\nsmtp_sasl_security_options = noanonymous\n{more}",
        address.port()
    ))
}

#[test]
fn postfix_delivers() {
    let mut server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let passwords = dir.path().join("passwords");
    fs::write(&passwords, format!("[127.0.0.1]:{} jane:secret\n", server.submission.port())).unwrap();
    let tls = "smtp_tls_security_level = encrypt\n";
    let login =
        format!("smtp_sasl_auth_enable = yes\nsmtp_sasl_password_maps = texthash:{}\n", passwords.display());
    let by = |mechanism| format!("{tls}{login}smtp_sasl_mechanism_filter = {mechanism}\n");
    for (address, more, tried) in [
        (server.plain, String::new(), "Postfix to Postrider, in clear text"),
        (server.plain, tls.to_owned(), "Postfix to Postrider, STARTTLS"),
        (server.submission, by("plain"), "Postfix to Postrider, STARTTLS, SASL PLAIN"),
        (server.submission, by("login"), "Postfix to Postrider, STARTTLS, SASL LOGIN"),
        (server.submission, by("scram-sha-256"), "Postfix to Postrider, STARTTLS, SASL SCRAM-SHA-256"),
    ] {
        let Some(postfix) = postfix_client(address, &more) else { return };
        let mut client = crate::common::client::Client::connect(postfix.address).unwrap();
        assert_eq!(client.send("jane@mx.test", &["joe@mx.test"], MAIL.as_bytes()).unwrap().0, 250);
        server.delivered("Postfix", tried);
    }
}

/// Starts a daemon that sends everything to this Postfix.
fn to_postfix(postfix: &Postfix, keys: &str) -> Postrider {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("secret"), "secret\n").unwrap();
    let route = format!("[[route]]\ndomains = [\"*\"]\nsmarthost = \"{}\"\n{keys}", postfix.address);
    Postrider::start_in(dir, free_address(), &format!("[log]\nfile = \"mail.log\"\n{route}"))
}

fn certify(dir: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(["postfix.test".to_owned()]).unwrap();
    let (certificate, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    format!(
        "smtpd_tls_security_level = may\nsmtpd_tls_cert_file = {}\nsmtpd_tls_key_file = {}\n",
        certificate.display(),
        key.display()
    )
}

#[test]
fn postfix_takes_mail() {
    let (sink, dir) = (Sink::start(), tempfile::tempdir().unwrap());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let tls = certify(dir.path());
    let relay = format!("relayhost = [127.0.0.1]:{}\n", sink.address.port());
    let mut count = 0;
    let mut delivered = |postfix: &Postfix, keys: &str, tried: &str| {
        let daemon = to_postfix(postfix, keys);
        let mut client = crate::common::client::Client::connect(daemon.address).unwrap();
        assert_eq!(
            client.send("jane@mx.test", &["u@far.test", "v@far.test"], MAIL.as_bytes()).unwrap().0,
            250
        );
        count += 1;
        until(tried, || sink.count() == count);
        seen("Postfix", tried, "relayed to its next hop");
    };
    {
        let Some(postfix) = Postfix::start(&format!("{relay}{tls}")) else { return };
        delivered(&postfix, "tls = \"off\"\n", "Postrider to Postfix, in clear text");
        delivered(&postfix, "tls = \"require\"\n", "Postrider to Postfix, STARTTLS");
    }
    let Some(_dovecot) = dovecot_auth(dir.path()) else { return };
    let sasl = format!(
        "smtpd_sasl_auth_enable = yes\nsmtpd_sasl_type = dovecot\nsmtpd_sasl_path = {}\nsmtpd_tls_auth_only = yes\n\
         smtpd_relay_restrictions = permit_sasl_authenticated, reject\n",
        dir.path().join("auth").display()
    );
    let Some(postfix) = Postfix::start(&format!("{relay}{tls}{sasl}")) else { return };
    let login = "tls = \"require\"\nlogin = { user = \"jane\", secret = \"file:secret\" }\n";
    delivered(&postfix, login, "Postrider to Postfix with Dovecot SASL, STARTTLS, AUTH SCRAM-SHA-256");
    until("Postfix has logged the login", || {
        let log = fs::read_to_string(postfix.dir.path().join("log")).unwrap();
        log.contains("sasl_method=SCRAM-SHA-256, sasl_username=jane")
    });
}
