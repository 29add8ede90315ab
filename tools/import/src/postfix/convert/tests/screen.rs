//! Lists of postscreen, and addresses in a loop.

use super::*;

#[test]
fn addresses_that_lead_back_to_themselves_are_named() {
    for (table, told) in [
        ("a@x.example b@y.example\nb@y.example a@x.example\n", true),
        ("a@x.example b@x.example\n@x.example a@x.example\n", true),
        ("a@x.example a@x.example\nb@x.example a@x.example, c@z.example\n", false),
    ] {
        let files: &'static [(&str, &str)] =
            Vec::leak(vec![("/etc/postfix/virtual", &*table.to_owned().leak())]);
        let report = converted("virtual_alias_maps = texthash:/etc/postfix/virtual\n", files).1.to_string();
        assert_eq!(report.contains("leads back to itself"), told, "{table}: {report}");
    }
}

#[test]
fn lists_of_postscreen_have_their_weights() {
    let of = |more: &str, master: &[u8]| {
        let main = format!(
            "postscreen_dnsbl_sites = zen.example=127.0.0.[2..11]*3, bl.example*2\n good.example*-4\n{more}"
        );
        let (draft, report) = convert(main.as_bytes(), master, "/etc/postfix", &MemoryFiles(&[]));
        (draft.as_toml(), report.to_string())
    };
    let master = b"smtp inet n - y - 1 postscreen\nsmtpd pass - - y - - smtpd\n";
    let (toml, report) = of("postscreen_dnsbl_threshold = 3\npostscreen_dnsbl_action = enforce\n", master);
    for lines in [
        "dns_list = [\"zen.example=127.0.0.2-11\"]\nscore = 3\n",
        "dns_list = [\"bl.example\"]\nscore = 2\n",
        "dns_list = [\"good.example\"]\nscore = -4\n",
        "min_score = 3\nreject = ",
    ] {
        assert!(toml.contains(lines), "{lines}: {toml}");
    }
    assert!(!report.contains("postscreen_dnsbl"), "{report}");
    let (toml, report) = of(
        "postscreen_dnsbl_sites = a.example=127.[0..1].0.2*2, b.example*3\npostscreen_dnsbl_action = drop\n",
        master,
    );
    assert!(
        toml.contains("dns_list = [\"b.example\"]\nscore = 3\n")
            && report.contains("a.example=127.[0..1].0.2*2: "),
        "{toml} {report}"
    );
    for (more, master) in [("", &master[..]), ("postscreen_dnsbl_action = enforce\n", MASTER)] {
        let (toml, report) = of(more, master);
        assert!(!toml.contains("score") && report.contains("not used: postscreen"), "{toml} {report}");
    }
}
