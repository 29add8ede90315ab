//! The time each part takes.

#![allow(missing_docs)] // the macro makes a public function

use criterion::{Criterion, criterion_group, criterion_main};
use std::time::Instant;

fn parts(criterion: &mut Criterion) {
    for part in bench::PARTS {
        criterion.bench_function(part.name, |bencher| {
            bencher.iter_custom(|rounds| {
                let begun = Instant::now();
                (part.run)(rounds);
                begun.elapsed()
            });
        });
    }
}

criterion_group!(benches, parts);
criterion_main!(benches);
