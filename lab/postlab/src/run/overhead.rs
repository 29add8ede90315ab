//! The cost of a part of a server: the rate with it beside the rate without it. For durability the second is a twin of a
//! variant, whose MTA does not wait for its disk.

use super::{
    runner::{Kind, Run},
    scenario::{Experiment, Scenario, Variant},
    table::{Name, cases, label},
};
use crate::stat::{
    Confidence, Sample, Verdict,
    spread::{Spread, shown},
};
use std::{collections::BTreeMap, fmt::Write as _};

/// Appended to the name of a variant that is measured without syncs.
const SUFFIX: &str = "not synced";

/// Adds a twin to each variant: the same, with an environment in which the MTA does not wait for its disk.
///
/// # Errors
/// The scenario does not say how.
pub(crate) fn add_twins(scenario: &mut Scenario) -> Result<(), String> {
    let env = scenario.mta.as_ref().map(|mta| mta.unsynced_env.clone()).unwrap_or_default();
    if env.is_empty() {
        return Err(
            "--durability-cost: the scenario has no mta.unsynced_env, which starts its MTA without syncs"
                .into(),
        );
    }
    let safe = scenario.variants().into_iter().filter(|variant| !variant.is_unsafe);
    let pairs = safe.flat_map(|variant| {
        let mut twin = variant.clone();
        twin.name =
            if variant.name.is_empty() { SUFFIX.to_owned() } else { format!("{}, {SUFFIX}", variant.name) };
        twin.env.extend(env.clone());
        twin.durability = "nothing: the reply does not wait for the disk".to_owned();
        twin.is_unsafe = true;
        [variant, twin]
    });
    scenario.variant = pairs.collect();
    Ok(())
}

/// Returns the lines of a relay's table that say what durability costs, or how it is measured.
pub(crate) fn lines(scenario: &Scenario, runs: &[Run]) -> String {
    let all = cases(scenario, runs);
    let variants = scenario.variants();
    let mut out = String::new();
    for (name, safe) in all.iter().filter(|(name, _)| name.2 == Kind::Relay) {
        let Some(twin) = variants.get(name.1).and_then(|variant| twin_of(&variants, variant)) else {
            continue;
        };
        let twin_name: Name = (name.0, twin, Kind::Relay);
        let rates = |runs: &[&Run]| runs.iter().map(|run| run.drained_rate).collect::<Vec<_>>();
        let costs = all.get(&twin_name).and_then(|unsafe_runs| cost(&rates(safe), &rates(unsafe_runs)));
        if let Some(costs) = costs {
            let (label, twin) = (label(scenario, *name), &variants[twin].name);
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{} sessions, {label}: durability costs {costs} ({twin})", name.0);
        }
    }
    out.push_str(&named_overhead(scenario, &all));
    let is_relay = scenario.mta.as_ref().is_some_and(|mta| !mta.unsynced_env.is_empty());
    if out.is_empty() && is_relay && scenario.experiment == Experiment::Relay {
        out.push_str("durability: --durability-cost measures what waiting for the disk costs\n");
    }
    out
}

/// The cost that the scenario asks for, in rate and in processor time.
fn named_overhead(scenario: &Scenario, all: &BTreeMap<Name, Vec<&Run>>) -> String {
    let mut out = String::new();
    let Some(overhead) = &scenario.overhead else { return out };
    let variants = scenario.variants();
    let place = |name: &str| variants.iter().position(|variant| variant.name == name);
    let (Some(with), Some(without)) = (place(&overhead.with), place(&overhead.without)) else { return out };
    for (name, runs) in all.iter().filter(|(name, _)| name.1 == with && name.2 == Kind::Relay) {
        let Some(others) = all.get(&(name.0, without, name.2)) else { continue };
        let rates = |runs: &[&Run]| runs.iter().map(|run| run.drained_rate).collect::<Vec<_>>();
        let Some(costs) = cost(&rates(runs), &rates(others)) else { continue };
        let times = |runs: &[&Run]| Spread::of(runs.iter().filter_map(|run| run.mta_cpu_us_per_message));
        let time = match (times(runs), times(others)) {
            (Some(a), Some(b)) => format!("; CPU µs a message {}, without {}", a.text(), b.text()),
            _ => String::new(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{} sessions: {} costs {costs}{time}", name.0, overhead.of);
    }
    out
}

/// The variant that is like another one but for its durability: its twin, or the only unsafe one.
fn twin_of(variants: &[Variant], safe: &Variant) -> Option<usize> {
    if safe.is_unsafe {
        return None;
    }
    let twin = if safe.name.is_empty() { SUFFIX.to_owned() } else { format!("{}, {SUFFIX}", safe.name) };
    let named = |name: &str| variants.iter().position(|other| other.is_unsafe && other.name == name);
    let is_pair = variants.len() == 2;
    named(&twin).or_else(|| variants.iter().position(|other| is_pair && other.is_unsafe))
}

/// Returns the cost in percent of the rate without syncs, with both rates; none without runs of both.
pub(crate) fn cost(synced: &[f64], unsynced: &[f64]) -> Option<String> {
    let (a, b) = (Spread::of(synced.iter().copied())?, Spread::of(unsynced.iter().copied())?);
    let percent = (1.0 - a.median / b.median) * 100.0;
    let proof = match verdict(synced, unsynced) {
        None => ", less than three rounds",
        Some(true) => "",
        Some(false) => ", no difference proven",
    };
    Some(format!("{} % (median of {} to {}{proof})", shown(percent), a.text(), b.text()))
}

/// Is there a difference, at 95 %? None with fewer than three runs of each.
fn verdict(synced: &[f64], unsynced: &[f64]) -> Option<bool> {
    let a = Sample::new("synced", synced.to_vec()).ok()?;
    let b = Sample::new("not synced", unsynced.to_vec()).ok()?;
    Some(Verdict::new(&a, &b, Confidence::parse("95").ok()?).is_proven())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::detect::tests::run;

    const RELAY: &str = "title = \"x\"\nexperiment = \"relay\"\n[load]\nmessages = 10\nsessions = [1]\n\
                         [mta]\nname = \"m\"\nendpoint = \"127.0.0.1:25\"\nunsynced_env = { D = \"none\" }\n";

    #[test]
    fn twins_differ_in_their_environment_and_are_stamped() {
        let mut scenario = Scenario::parse(RELAY).unwrap();
        add_twins(&mut scenario).unwrap();
        let names: Vec<&str> = scenario.variant.iter().map(|variant| variant.name.as_str()).collect();
        assert_eq!(names, ["", "not synced"]);
        assert!(scenario.variant[1].is_unsafe && scenario.variant[1].env["D"] == "none");
        let mut other = Scenario::parse(&RELAY.replace("unsynced_env = { D = \"none\" }", "")).unwrap();
        assert!(add_twins(&mut other).unwrap_err().contains("mta.unsynced_env"));
    }

    #[test]
    fn an_overhead_that_a_scenario_names_is_told_with_processor_time() {
        let named = "overhead = { of = \"the scheduler\", with = \"a\", without = \"b\" }\n";
        let variants = "[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\n";
        let scenario = Scenario::parse(&format!("{named}{RELAY}{variants}")).unwrap();
        assert!(Scenario::parse(&format!("{named}{RELAY}")).unwrap_err().contains("variant `a`"));
        let one = |name: &str, rate: f64, us: f64| Run {
            variant: name.to_owned(),
            mta_cpu_us_per_message: Some(us),
            ..run("relay", 1, rate, 1.0, 1.0)
        };
        let runs: Vec<Run> = [(75.0, 40.0), (76.0, 41.0), (74.0, 39.0)].map(|(r, us)| one("a", r, us)).into();
        let others = [(100.0, 30.0), (101.0, 31.0), (99.0, 29.0)].map(|(r, us)| one("b", r, us));
        let text = lines(&scenario, &[runs, others.into()].concat());
        assert!(text.contains("1 sessions: the scheduler costs 25.0 % (median of 75"), "{text}");
        assert!(text.contains("CPU µs a message 40"), "{text}");
    }

    #[test]
    fn the_cost_is_told_with_its_proof_or_the_option_is_named() {
        let mut scenario = Scenario::parse(RELAY).unwrap();
        let synced = [90.0, 91.0, 89.0].map(|rate| run("relay", 1, rate, 1.0, 1.0));
        assert!(lines(&scenario, &synced).contains("--durability-cost measures"));
        add_twins(&mut scenario).unwrap();
        let twin = |rate| Run { variant: "not synced".to_owned(), ..run("relay", 1, rate, 1.0, 1.0) };
        let fast: Vec<Run> = synced.iter().cloned().chain([100.0, 101.0, 99.0].map(twin)).collect();
        let text = lines(&scenario, &fast);
        assert!(text.starts_with("1 sessions, relay: durability costs 10.00 % (median of 90"), "{text}");
        assert!(!text.contains("no difference"), "{text}");
        let same: Vec<Run> = synced.iter().cloned().chain([90.0, 92.0, 88.0].map(twin)).collect();
        assert!(lines(&scenario, &same).contains("no difference proven"));
    }
}
