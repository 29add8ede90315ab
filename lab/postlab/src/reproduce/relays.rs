//! The relays of the kept steps in one picture: ceiling, accepted and drained on one scale, each round a dot.

use super::Kept;
use crate::{
    report::{
        escape,
        tracks::{Track, picture},
    },
    stat::spread::{Spread, shown},
};
use serde_json::Value;
use std::collections::BTreeMap;

/// A server with its sessions and the rate that is meant; ceilings come first.
type Key = (String, u64, bool, String, &'static str);

/// The picture; nothing where no step has a relay.
pub(super) fn relays(kept: &[Kept]) -> String {
    let mut rates: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for Kept { step, record, .. } in kept.iter().filter(|kept| kept.step.name.starts_with("relay")) {
        let rounds = record.iter().flat_map(|record| &record.rounds);
        for run in rounds.flat_map(|round| &round.runs) {
            add(&mut rates, &step.name, &run.output);
        }
    }
    if rates.is_empty() {
        return String::new();
    }
    let track = |((_, sessions, is_relay, server, what), values): (&Key, &Vec<f64>)| {
        let spread = Spread::of(values.iter().copied());
        let sessions = if *sessions == 1 { "1 session".to_owned() } else { format!("{sessions} sessions") };
        Track {
            label: if *is_relay {
                format!("{server}, {sessions}: {what}")
            } else {
                format!("ceiling, {sessions}")
            },
            numbers: spread.map(|s| format!("{} a second, N={}", s.text(), values.len())).unwrap_or_default(),
            dots: values.clone(),
            median: spread.map(|s| s.median),
            class: if *is_relay { what } else { "ceiling" },
            ..Track::default()
        }
    };
    let tracks: Vec<Track> = rates.iter().map(track).collect();
    let shares = shares(&rates);
    let caption = "Messages a second on one logarithmic scale: each round a dot, the median a line. Accepted: until the source had the last 250; drained: until the sink had all.";
    format!("<h2>Relays and their ceiling</h2>\n{}{shares}", picture(&tracks, "/s", false, caption))
}

fn add(rates: &mut BTreeMap<Key, Vec<f64>>, step: &str, output: &str) {
    let all = output.find('{').and_then(|at| serde_json::from_str::<Value>(&output[at..]).ok());
    let cases = all.as_ref().and_then(|all| all["cases"].as_array()).into_iter().flatten();
    for case in cases {
        let (Some(server), Some(sessions)) = (case["server"].as_str(), case["sessions"].as_u64()) else {
            continue;
        };
        let is_relay = server != "ceiling";
        for what in if is_relay { &["accepted", "drained"][..] } else { &["accepted"] } {
            if let Some(rate) = case.pointer(&format!("/figures/{what}/median")).and_then(Value::as_f64) {
                let key = (step.to_owned(), sessions, is_relay, server.to_owned(), *what);
                rates.entry(key).or_default().push(rate);
            }
        }
    }
}

/// The share of the ceiling, in a sentence for each server.
fn shares(rates: &BTreeMap<Key, Vec<f64>>) -> String {
    let median = |values: &Vec<f64>| Spread::of(values.iter().copied()).map(|spread| spread.median);
    let share = |((step, sessions, is_relay, server, what), values): (&Key, &Vec<f64>)| {
        let ceiling = rates.get(&(step.clone(), *sessions, false, "ceiling".to_owned(), "accepted"))?;
        let share = median(values)? / median(ceiling)? * 100.0;
        (*is_relay && *what == "drained").then(|| {
            let remark =
                if share > 100.0 { " More than all: the ceiling does not bound this server." } else { "" };
            format!(
                "<li>{} with {sessions} sessions drains {} % of its ceiling.{remark}",
                escape(server),
                shown(share)
            )
        })
    };
    let lines: Vec<String> = rates.iter().filter_map(share).collect();
    format!("<ul>{}</ul>\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceiling_and_relay_share_a_scale_and_the_share_is_told() {
        let mut rates = BTreeMap::new();
        let output = "{\"cases\": [{\"server\": \"ceiling\", \"sessions\": 10, \"figures\": {\"accepted\": {\"median\": 1000}}},\
                      {\"server\": \"postfix\", \"sessions\": 10, \"figures\": {\"accepted\": {\"median\": 300}, \"drained\": {\"median\": 250}}}]}";
        add(&mut rates, "relay", output);
        add(&mut rates, "relay", "no JSON");
        assert_eq!(rates.len(), 3);
        assert!(shares(&rates).contains("postfix with 10 sessions drains 25.0 % of its ceiling.</ul>"));
        add(&mut rates, "relay", &output.replace("250", "1710"));
        add(&mut rates, "relay", &output.replace("250", "1710"));
        assert!(shares(&rates).contains("171 % of its ceiling. More than all: the ceiling does not bound"));
    }
}
