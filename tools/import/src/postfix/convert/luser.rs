//! `luser_relay`: mail of local(8) for names that are neither accounts nor aliases.

use super::{
    Context,
    addresses::{escaped, separator},
    routes::{Hop, hop},
};
use std::collections::BTreeSet;

/// Writes a map that sends unknown names of the local domains on, behind those of virtual aliases. `None` if it cannot be written.
pub(super) fn write(context: &mut Context<'_>) -> Option<()> {
    context.mapped("luser_relay");
    let relay = context.main.raw("luser_relay").unwrap_or_default().to_owned();
    let own = context.own_domains();
    if relay.is_empty()
        || own.is_empty()
        || hop(context, &context.main.value("local_transport")) != Ok(Hop::Local)
    {
        return Some(());
    }
    let mut names: BTreeSet<String> =
        context.files.users().into_iter().map(|name| name.to_lowercase()).collect();
    names.insert("postmaster".to_owned());
    for parameter in ["alias_maps", "virtual_alias_maps"] {
        for entry in context.entries(parameter)? {
            let key = entry.key.trim_end_matches(':').to_lowercase();
            // The map is asked before keys of other forms.
            let is_whole = key
                .split_once('@')
                .map(|(user, domain)| !user.is_empty() || !own.iter().any(|own| own == domain));
            match (parameter, is_whole) {
                ("alias_maps", _) => drop(names.insert(key)),
                (_, Some(true)) => {}
                _ => return None,
            }
        }
    }
    let target = target(&relay)?;
    let escaped_all =
        |all: Vec<&String>| all.into_iter().map(|one| escaped(one)).collect::<Vec<_>>().join("|");
    let domains = escaped_all(own.iter().collect());
    let detail = separator(context).map_or_else(|| "()".to_owned(), |one| format!("([{one}][^@]*)?"));
    let text = format!(
        "/^({}){detail}@({domains})$/ ${{1}}${{2}}@${{3}}\n/^([^@\"{}]+){detail}@({domains})$/ {target}\n",
        escaped_all(names.iter().collect()),
        separator(context).unwrap_or_default(),
    );
    let name = context.draft.add_numbered("luser", text);
    context.draft.extend("[addresses]", "virtual", [format!("regex:{name}")], "luser_relay");
    context.note(
        "luser_relay",
        format!("{name} lists the accounts and aliases as of the import; add new ones there"),
    );
    Some(())
}

/// Returns the address with the groups of the expression in the places of Postfix's names.
fn target(relay: &str) -> Option<String> {
    let mut text = relay.replace(['{', '}', '(', ')'], "");
    for (name, group) in
        [("$user", "${1}"), ("$local", "${1}${2}"), ("$domain", "${3}"), ("$recipient", "${1}${2}@${3}")]
    {
        text = text.replace(name, group);
    }
    let is_plain = |text: &str| !text.contains(['|', '/', ' ', ',']) && !text.replace("${", "").contains('$');
    is_plain(&text).then_some(text)
}
