//! Runs one part so often; `cargo xtask bench` counts what that costs.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next();
    if name.as_deref() == Some("list") {
        bench::PARTS.iter().for_each(|part| println!("{}", part.name));
        return ExitCode::SUCCESS;
    }
    let part = name.and_then(|name| bench::part(&name));
    let count = arguments.next().and_then(|count| count.parse().ok());
    let (Some(part), Some(count)) = (part, count) else {
        eprintln!("usage: bench PART COUNT, or bench list");
        for part in bench::PARTS {
            eprintln!("  {:10} {}", part.name, part.what);
        }
        return ExitCode::from(64);
    };
    (part.run)(count);
    ExitCode::SUCCESS
}
