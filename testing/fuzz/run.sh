#!/bin/bash
# Fuzzes with libFuzzer: `bash testing/fuzz/run.sh [RUNS [TARGET...]]` (10,000,000 runs of every target of testing/fuzz/tests/targets.rs). Needs a nightly
# toolchain for the coverage (`rustup toolchain install nightly`). Begins with the committed corpus; what is found stays in
# target/fuzz-corpus. Prints a line for each target; ends with 1 if one crashed, hung for 10 s or took more than 2 GiB.
# Environment: JOBS (2) targets at the same time, SECONDS_MAX (3600) for each, CARGO_TARGET_DIR.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
runs=${1:-10000000}
[ $# -lt 1 ] || shift
target=${CARGO_TARGET_DIR:-target}/fuzz
export CARGO_INCREMENTAL=0
# One line: cargo splits the flags at spaces only.
flags="--cfg fuzzing --cfg fuzzing_libfuzzer -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags+=" -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
binary=$(RUSTFLAGS=$flags \
	BOLERO_FUZZER=libfuzzer rustup run nightly cargo test --quiet --profile fuzz --package fuzz --test targets --no-run \
	--target x86_64-unknown-linux-gnu --target-dir "$target" --message-format json |
	sed -n 's/.*"name":"targets".*"executable":"\([^"]*\)".*/\1/p' | tail -1)
[ -n "$binary" ] || { echo "run.sh: the targets do not compile" >&2; exit 1; }
names=("$@")
[ ${#names[@]} -gt 0 ] || mapfile -t names < <(sed -n '/^targets!(/,/^);/s/^    \([a-z_]*\),\{0,1\}$/\1/p' testing/fuzz/tests/targets.rs)

one() { # NAME
	local corpus=$target-corpus/$1 begin end status=0
	mkdir -p "$corpus" "$target-crashes/$1"
	begin=$(date +%s)
	(
		cd testing/fuzz
		export BOLERO_TEST_NAME=$1 BOLERO_LIBTEST_HARNESS=1
		export BOLERO_LIBFUZZER_ARGS="$corpus tests/__fuzz__/$1/corpus -artifact_prefix=$target-crashes/$1/ -runs=$runs -timeout=10 -max_len=4096 -rss_limit_mb=2048 -max_total_time=${SECONDS_MAX:-3600} -print_final_stats=1"
		"$binary" "$1" --exact --nocapture
	) >"$corpus.log" 2>&1 || status=$?
	end=$(date +%s)
	printf '%-24s %12s runs %6d s  %s\n' "$1" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$corpus.log")" $((end - begin)) \
		"$([ "$status" = 0 ] && echo ok || echo "FAILED: $corpus.log")"
	return "$status"
}
case $target in /*) ;; *) target=$PWD/$target ;; esac
mkdir -p "$target-corpus" "$target-crashes"
failed=0
for name in "${names[@]}"; do
	mkdir -p "testing/fuzz/tests/__fuzz__/$name/corpus"
	while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-2}" ]; do wait -n || failed=1; done
	one "$name" &
done
while [ -n "$(jobs -rp)" ]; do wait -n || failed=1; done
exit "$failed"
