//! The configuration: any text gives settings or problems, and both can be shown.

/// The bytes as a file, and as a file made of sections, keys and values that exist.
pub fn configuration(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check(text);
    }
    check(&mostly_right(bytes));
}

/// Settings read back to themselves when they are shown; problems are shown with nothing in them
/// that a terminal would obey.
fn check(text: &str) {
    match config::load_text(text) {
        Ok(loaded) => {
            let shown = loaded.as_toml();
            match config::load_text(&shown) {
                Ok(again) => assert_eq!(again.settings, loaded.settings, "{shown}"),
                Err(problems) => panic!("{shown}\n{problems}"),
            }
        }
        Err(problems) => {
            let shown = problems.to_string();
            let is_tame = |c: char| !c.is_control() || c == '\n';
            assert!(shown.chars().all(is_tame), "{shown:?}");
        }
    }
}

/// Values of every kind; most keys take few of them.
const VALUES: [&str; 38] = [
    "0",
    "1",
    "-1",
    "4096",
    "99999999999",
    "1.5",
    "true",
    "false",
    "\"\"",
    "\"5m\"",
    "\"1h30m\"",
    "\"64KiB\"",
    "\"1GiB\"",
    "\"mx.example.com\"",
    "\"mx.example.com:25\"",
    "\"ä.example\"",
    "\"a@b.example\"",
    "\"127.0.0.1\"",
    "\"127.0.0.1:2525\"",
    "\"[::1]:2525\"",
    "\"unix:/run/x\"",
    "\"/tmp/{local}\"",
    "\"{domain}/{local}\"",
    "\"off\"",
    "\"verify\"",
    "\"log\"",
    "\"both\"",
    "[]",
    "[\"*\"]",
    "[\"example.com\", \"*.example.org\"]",
    "[\"10.0.0.0/8\", \"::1\"]",
    "{}",
    "{ client = [\"10.0.0.0/8\"], tls = true }",
    "\"5/h\"",
    "\"client\"",
    "\"content\"",
    "\"550 5.7.1 {from}\"",
    "[\"text:x\", \"a@*\"]",
];

fn mostly_right(bytes: &[u8]) -> String {
    let sections = config::schema();
    let (mut text, mut section) = (String::new(), &sections[0]);
    for step in bytes.chunks_exact(3) {
        let [what, which, value] = step else { continue };
        match what % 8 {
            0 => {
                section = &sections[usize::from(*which) % sections.len()];
                if !section.name.is_empty() {
                    let repeated = section.repeated ^ (*value == 0);
                    let (open, close) = if repeated { ("[[", "]]") } else { ("[", "]") };
                    text.push_str(&format!("{open}{}{close}\n", section.name));
                }
            }
            1 => text.push(char::from(*which)),
            _ => {
                let key = section.keys.get(usize::from(*which) % section.keys.len().max(1));
                let key = key.map_or("\"mx.example.com\"", |key| key.name);
                // Its own default is a value that is right.
                let own = section.keys.iter().find(|k| k.name == key).map_or("", |k| k.default);
                let any = VALUES[usize::from(*value) % VALUES.len()];
                let value = if what % 8 < 5 && !own.is_empty() && !own.contains('{') { own } else { any };
                text.push_str(&format!("{key} = {value}\n"));
            }
        }
    }
    text
}
