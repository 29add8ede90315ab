//! Runs one part so often; `cargo xtask bench` counts what that costs.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next().and_then(|name| bench::part(&name));
    let count = arguments.next().and_then(|count| count.parse().ok());
    let (Some(part), Some(count)) = (part, count) else {
        eprintln!("usage: bench PART COUNT");
        for part in bench::PARTS {
            eprintln!("  {:10} {}", part.name, part.what);
        }
        return ExitCode::from(64);
    };
    (part.run)(count);
    ExitCode::SUCCESS
}
