//! The arguments of the programs of this crate; `cargo xtask` checks them before.

/// Returns the argument behind `name`; `None` if it was not given.
pub fn text(name: &str) -> Option<String> {
    std::env::args().skip_while(|arg| arg != name).nth(1)
}

/// The number behind `name`.
///
/// # Panics
/// When it is none.
pub fn number(name: &str, default: u64) -> u64 {
    text(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: a number, not {text}")))
}
