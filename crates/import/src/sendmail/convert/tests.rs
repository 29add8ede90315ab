use super::*;
use crate::memory_files::MemoryFiles;

const FILES: MemoryFiles = MemoryFiles(&[
    ("/etc/passwd", "root:x:0:0::/:\njoe:x:1:1::/:\n"),
    ("/etc/mail/local-host-names", "# c\na.test\n"),
    ("/etc/mail/relay-domains", "partner.test\n192.0.2\n"),
    (
        "/etc/mail/access",
        "Connect:10.0.0\tRELAY\nFrom:spam@x.test\tREJECT\nTo:gone@a.test ERROR:5.1.1:550 gone\nSrv_Features:1 x\n198.51.100.7 DISCARD\n",
    ),
    ("/etc/mail/virtusertable", "info@a.test joe\n@old.test %1@a.test\nbad@a.test error:nouser no\n"),
    ("/etc/mail/mailertable", ".p.test smtp:[hub.test]\nlocal.test local:\nodd.test uucp-new:x\n"),
    ("/etc/mail/aliases", "postmaster: root\n"),
]);

#[test]
fn the_macros_of_a_site_are_mapped() {
    let mc = b"OSTYPE(`debian')dnl\ndefine(`confDOMAIN_NAME', `mx.test')dnl\ndefine(`SMART_HOST', `relay:[mail.isp.example]')dnl\n\
        define(`confMAX_MESSAGE_SIZE', `2000000')dnl\nFEATURE(`use_cw_file')dnl\nFEATURE(`access_db')dnl\nFEATURE(`virtusertable')dnl\n\
        FEATURE(`mailertable')dnl\nDAEMON_OPTIONS(`Family=inet, Name=MTA, Port=smtp, Addr=127.0.0.1')dnl\n\
        DAEMON_OPTIONS(`Name=MSA, Port=submission, M=Ea')dnl\nINPUT_MAIL_FILTER(`x', `S=local:/x')dnl\nFEATURE(`mystery')dnl\n";
    let (draft, report) = convert(Some(mc), None, "/etc/mail", &FILES).unwrap();
    let toml = draft.as_toml();
    for line in [
        "domains = [\"mx.test\", \"localhost\", \"a.test\", \"partner.test\"]",
        "networks = [\"192.0.2.0/24\", \"127.0.0.0/8\", \"::1/128\", \"10.0.0.0/24\"]",
        "tls = \"off\"\naddress = \"127.0.0.1:25\"",
        "from = [\"spam@x.test\"]\nreject = \"550 5.7.1 Access denied\"",
        "to = [\"gone@a.test\"]\nreject = \"550 5.1.1 gone\"",
        "client = [\"198.51.100.7\"]\ndiscard = true",
        "domains = [\"*.p.test\"]\nsmarthost = \"hub.test:25\"",
        "domains = [\"partner.test\"]\nmx = true",
        "domains = [\"mx.test\", \"localhost\", \"a.test\"]\nmbox = \"/var/mail/{local}\"",
        "domains = [\"*\"]\nsmarthost = \"mail.isp.example:25\"",
        "max_message_size = 2000000",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    let of = |name: &str| &draft.files.iter().find(|file| file.name == name).unwrap().content;
    assert_eq!(of("virtual"), "# From virtusertable\ninfo@a.test joe\n@old.test @a.test\n");
    let text = report.to_string();
    for line in [
        "INPUT_MAIL_FILTER x: content filters",
        "submission are left out",
        "unknown  sendmail.mc:12 FEATURE mystery",
        "odd.test uucp-new:x",
        "srv_features:1",
        "bad@a.test error:nouser no",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn the_lines_of_sendmail_cf_say_the_same() {
    let cf = b"Djmx.test\nDSrelay:[mail.isp.example]\nFw/etc/mail/local-host-names\nO PidFile=/run/x.pid\n\
        O DaemonPortOptions=Name=MTA-v4, Family=inet, Port=26, Addr=127.0.0.1\nKaccess hash -o /etc/mail/access\n\
        Mrelay,\t\tP=[IPC], F=mDFMuXa8, S=EnvFromSMTP,\n\t\tT=DNS/RFC822/SMTP,\n\t\tA=TCP $h 2600\nO UnknownThing=1\nXfilter, S=local:/x\n";
    let (draft, report) = convert(None, Some(cf), "/etc/mail", &FILES).unwrap();
    let toml = draft.as_toml();
    for line in [
        "address = \"127.0.0.1:26\"",
        "smarthost = \"mail.isp.example:2600\"",
        "\"a.test\"",
        "from = [\"spam@x.test\"]",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    assert!(report.to_string().contains("Xfilter, S=local:/x: content filters"), "{report}");
    assert_eq!(names(cf, &FILES).pid_file.as_deref(), Some("/run/x.pid"));
}
