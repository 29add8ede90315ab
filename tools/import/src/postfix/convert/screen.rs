//! Block lists of postscreen, as rules with scores.

use super::{super::restrictions::dns_lists, Context};
use crate::{
    draft::{Section, Value},
    report::Effect,
};

/// Each list with its answers, and its weight: `zen.example=127.0.0.[2..11]*3`.
fn sites(value: &str) -> Option<Vec<(Vec<String>, i32)>> {
    let items = value.split([',', ' ', '\t', '\n']).filter(|item| !item.is_empty());
    let site = |item: &str| {
        let (list, weight) =
            item.split_once('*').map_or((item, Some(1)), |(list, weight)| (list, weight.parse().ok()));
        Some((dns_lists(list)?, weight.filter(|weight: &i32| weight.abs() <= 1000)?))
    };
    items.map(site).collect()
}

pub(super) fn write(context: &mut Context<'_>) {
    const SITES: &str = "postscreen_dnsbl_sites";
    let is_screened = context
        .master
        .services
        .iter()
        .any(|service| service.kind == "inet" && service.program() == "postscreen");
    let (value, action) = (context.main.value(SITES), context.main.value("postscreen_dnsbl_action"));
    if value.is_empty() {
        return;
    }
    if !is_screened || !matches!(&*action, "enforce" | "drop") {
        context.note(
            SITES,
            "the lists refuse nobody here: postscreen does not run, or postscreen_dnsbl_action is `ignore`",
        );
        return;
    }
    let threshold: i32 = context.main.value("postscreen_dnsbl_threshold").parse().unwrap_or(1);
    let Some(sites) = sites(&value).filter(|_| (1..=1000).contains(&threshold)) else {
        context.effect(
            Effect::Taken,
            SITES,
            "some answers are no single range: write a [[rule]] with `dns_list` and `score` for each list, and one with `min_score`",
        );
        return;
    };
    for (lists, weight) in sites {
        let rule = Section::new("[[rule]]", format!("{SITES}: {}", lists[0]));
        context.draft.push(rule.with("dns_list", lists).with("score", Value::Raw(weight.to_string())));
    }
    let rule = Section::new("[[rule]]", "postscreen_dnsbl_threshold".to_owned())
        .with("min_score", Value::Raw(threshold.to_string()));
    let reply = "550 5.7.1 Service unavailable; client [{client}] blocked by several lists";
    context.draft.push(rule.with("reject", reply));
    for name in [SITES, "postscreen_dnsbl_threshold", "postscreen_dnsbl_action"] {
        context.mapped(name);
    }
}
