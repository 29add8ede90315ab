//! Links between documents: a relative link of a Markdown file leads to a file that exists.

use std::path::Path;

/// Returns each link to a missing file, as `file:line: what`.
pub(super) fn faults(root: &Path, name: &str, text: &str) -> Vec<String> {
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for target in targets(line) {
            let path = target.split('#').next().unwrap_or_default();
            let is_elsewhere = path.is_empty() || path.contains("://") || path.starts_with("mailto:");
            if !is_elsewhere && !root.join(folder).join(path).exists() {
                faults
                    .push(format!("{name}:{}: the link leads to {target}, which does not exist", number + 1));
            }
        }
    }
    faults
}

/// Returns what stands in the parentheses of `[text](target)`, on one line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_missing_file_is_told_with_its_line() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text =
            "[a](Cargo.toml) [b](src/main.rs#x)\n[c](none.md)\n[d](https://example.com/none) [e](#part)\n";
        let told = faults(root, "a.md", text);
        assert_eq!(told, ["a.md:2: the link leads to none.md, which does not exist"]);
        assert_eq!(faults(root, "src/a.md", "[a](../Cargo.toml)\n"), [""; 0]);
    }
}
