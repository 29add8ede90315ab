//! The set-up of a provider: a relay that signs for a thousand domains.

use super::*;
use crate::{common::python_with, signatures::verify};
use aws_lc_rs::{
    encoding::{AsDer as _, Pkcs8V1Der},
    signature::{Ed25519KeyPair, KeyPair as _},
};
use data_encoding::BASE64;

/// Customers, each with a domain and a key.
const DOMAINS: usize = 1000;

#[test]
fn the_example_of_a_relay_signs_for_a_thousand_domains_each_with_its_key() {
    let test = "examples::signing::the_example_of_a_relay_signs_for_a_thousand_domains_each_with_its_key";
    if !is_inside(test) {
        return;
    }
    let Some(mut python) = python_with("dkim") else { return };
    let (_names, elsewhere) = (names(), sink("203.0.113.21:25"));
    let server = "198.51.100.1:25";
    let own = format!("\"{server}\"");
    let replacements = [("\"systemd:smtp\"", own.as_str()), ("10.20.0.0/16", "192.0.2.0/24")];
    let Some(machine) = machine("signing-relay", &replacements, "") else {
        return;
    };
    let (mut keys, mut domains, mut records) = (String::new(), String::new(), Vec::new());
    for number in 0..DOMAINS {
        let key = Ed25519KeyPair::generate().unwrap();
        let private: Pkcs8V1Der<'_> = key.as_der().unwrap();
        keys += &format!("d{number}.example k1:{}\n", BASE64.encode(private.as_ref()));
        domains += &format!("d{number}.example x\n");
        let public = BASE64.encode(key.public_key().as_ref());
        let name = format!("k1._domainkey.d{number}.example");
        records.push((name, format!("v=DKIM1; k=ed25519; p={public}")));
    }
    machine.write("postrider/dkim-keys", &keys);
    machine.write("postrider/domains", &domains);
    let _running = start(&machine, server);
    let client = "192.0.2.7";
    let senders: Vec<usize> = (0..DOMAINS).collect();
    std::thread::scope(|scope| {
        for part in senders.chunks(DOMAINS / 4) {
            scope.spawn(move || {
                for number in part {
                    let from = format!("news@d{number}.example");
                    accepted(client, server, &from, "bob@example.net");
                }
            });
        }
    });
    let stranger = send(client, server, "x@elsewhere.example", "bob@example.net");
    assert!(stranger.0 == 550 && stranger.1.contains("not in a domain of a customer"), "{stranger:?}");
    // The client is answered 554 and disconnected.
    let outside = Client::connect_from(STRANGER, server.parse().unwrap());
    assert!(outside.and_then(|mut client| client.say("EHLO client.example")).is_err());
    until("all have arrived", || elsewhere.count() == DOMAINS);
    let left: Vec<Received> = elsewhere.take();
    let contents: Vec<Vec<u8>> = left.iter().map(|message| message.content.clone()).collect();
    for message in &left {
        let domain = message.from.split_once('@').unwrap().1;
        let signed = format!("d={domain};");
        assert!(String::from_utf8_lossy(&message.content).contains(&signed), "{}", message.from);
    }
    let dir = tempfile::tempdir().unwrap();
    let verdicts = verify(&mut python, dir.path(), &records, &contents);
    assert_eq!(verdicts.len(), DOMAINS);
    assert!(verdicts.iter().all(|line| line.ends_with(" pass")), "{verdicts:?}");
}
