//! Block lists of postscreen, as rules with scores.

use super::{super::restrictions::dns_lists, Context};
use crate::{
    draft::{Section, Value},
    report::Effect,
};

/// Each list as it stands, its weight, and its answers, where these are ranges: `zen.example=127.0.0.[2..11]*3`.
fn sites(value: &str) -> Vec<(String, i32, Option<Vec<String>>)> {
    let items = value.split([',', ' ', '\t', '\n']).filter(|item| !item.is_empty());
    let site = |item: &str| {
        let (list, weight) = item.split_once('*').unwrap_or((item, "1"));
        (item.to_owned(), weight.parse().unwrap_or(1).clamp(-1000, 1000), dns_lists(list))
    };
    items.map(site).collect()
}

pub(super) fn write(context: &mut Context<'_>) {
    if context.main.value("postscreen_access_list") == "permit_mynetworks" {
        context.mapped("postscreen_access_list");
    }
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
        context.note(SITES, "not used: postscreen does not run, or postscreen_dnsbl_action is `ignore`");
        return;
    }
    let threshold: i32 = context.main.value("postscreen_dnsbl_threshold").parse().unwrap_or(1);
    let threshold = threshold.clamp(1, 1000);
    for (item, weight, lists) in sites(&value) {
        let Some(lists) = lists else {
            let text = format!(
                "{item}: left out, because its answers are not a single range: write a [[rule]] with `dns_list` and `score = {weight}`"
            );
            // A list without a vote refuses less, and one that spares clients spares none.
            context.effect(if weight > 0 { Effect::Taken } else { Effect::Refused }, SITES, text);
            continue;
        };
        let rule = Section::new("[[rule]]", format!("{SITES}: {}", lists[0]));
        context.draft.push(rule.with("dns_list", lists).with("score", Value::Raw(weight.to_string())));
    }
    let rule = Section::new("[[rule]]", "postscreen_dnsbl_threshold".to_owned())
        .with("min_score", Value::Raw(threshold.to_string()));
    let reply = "550 5.7.1 Service unavailable; client [{client}] blocked by DNS lists";
    context.draft.push(rule.with("reject", reply));
    for name in [SITES, "postscreen_dnsbl_threshold", "postscreen_dnsbl_action"] {
        context.mapped(name);
    }
}
