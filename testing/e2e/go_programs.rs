//! Go's mail client. Its compiler builds the whole library first, so that this is one of the long proofs.

use crate::programs::{Server, run};
use std::{fs, process::Command};

const GO: &str = r#"
package main

import (
	"crypto/tls"
	"net"
	"net/smtp"
	"os"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	address, how := os.Args[1], os.Args[2]
	config := &tls.Config{InsecureSkipVerify: true}
	var conn net.Conn
	var err error
	if how == "implicit" {
		conn, err = tls.Dial("tcp", address, config)
	} else {
		conn, err = net.Dial("tcp", address)
	}
	check(err)
	client, err := smtp.NewClient(conn, "127.0.0.1")
	check(err)
	if how == "starttls" {
		check(client.StartTLS(config))
	}
	if len(os.Args) > 3 {
		check(client.Auth(smtp.PlainAuth("", "jane", "secret", "127.0.0.1")))
	}
	check(client.Mail("jane@mx.test"))
	check(client.Rcpt("joe@mx.test"))
	data, err := client.Data()
	check(err)
	_, err = data.Write([]byte("Subject: s\r\n\r\n.body\r\n"))
	check(err)
	check(data.Close())
	check(client.Quit())
}
"#;

#[test]
fn gos_net_smtp_delivers() {
    let mut server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let (source, binary) = (dir.path().join("main.go"), dir.path().join("send"));
    fs::write(&source, GO).unwrap();
    let Some(mut go) = crate::common::program("go") else { return };
    let home = [("GOCACHE", "cache"), ("GOPATH", "path"), ("HOME", "home")]
        .map(|(name, at)| (name, dir.path().join(at)));
    run(go.args(["build", "-o"]).arg(&binary).arg(&source).envs(home).env("GO111MODULE", "off"), b"");
    for (address, arguments, tried) in [
        (server.plain, &["plain"][..], "in clear text"),
        (server.plain, &["starttls"], "STARTTLS"),
        (server.submission, &["starttls", "auth"], "STARTTLS, PlainAuth"),
        (server.wrapped, &["implicit", "auth"], "implicit TLS, PlainAuth"),
    ] {
        run(Command::new(&binary).arg(address.to_string()).args(arguments), b"");
        server.delivered("Go net/smtp", tried);
    }
}
