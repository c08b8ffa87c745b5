#!/usr/bin/env bash
# Fuzzes router-core: each target for FUZZ_SECONDS (300), or only those that FUZZ_TARGET names. Inputs that are new in what they reach are added to the corpus in
# .tools, and those that fail are left in router-core/fuzz/crashes. FUZZ_MINIMISE=1 writes the smallest corpus of the same reach back to
# router-core/fuzz/corpus instead.
#
# The compiler's coverage counters are turned on by hand, as stable rustc has them without a flag of their own.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seconds=${FUZZ_SECONDS:-300}
crate="$root/router-core/fuzz"
kept="$crate/corpus"
grown="$tools/fuzz-corpus"
crashes="$crate/crashes"
triple=$(rustc -vV | sed -n 's/^host: //p')

have c++ || apt_install g++
targets=(request renderer canonical encoding event replica)
[ -z "${FUZZ_TARGET:-}" ] || read -ra targets <<<"$FUZZ_TARGET"

flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
say "building the fuzz targets"
# With a target named, build scripts and macros are built without the flags.
RUSTFLAGS="$flags" CARGO_TARGET_DIR="$tools/fuzz-target" \
    cargo build --quiet --locked --release --target "$triple" --manifest-path "$crate/Cargo.toml"

failed=0
for target in "${targets[@]}"; do
    program="$tools/fuzz-target/$triple/release/$target"
    [ -x "$program" ] || die "no fuzz target $target" "targets are: request renderer canonical encoding event replica"
    mkdir -p "$grown/$target" "$kept/$target" "$crashes/$target"
    options=(-rss_limit_mb=1024 -malloc_limit_mb=512 -timeout=10 -max_len=4096 "-artifact_prefix=$crashes/$target/")
    dictionary="$crate/$target.dict"
    [ ! -f "$dictionary" ] || options+=("-dict=$dictionary")
    if [ -n "${FUZZ_MINIMISE:-}" ]; then
        smallest=$(mktemp -d)
        "$program" -merge=1 "${options[@]}" "$smallest" "$kept/$target" "$grown/$target" >"$tools/fuzz-$target.log" 2>&1
        rm -rf "${kept:?}/$target"
        mv "$smallest" "$kept/$target"
        chmod 755 "$kept/$target"
        echo "$target: $(find "$kept/$target" -type f | wc -l) inputs, $(du -sb "$kept/$target" | cut -f1) bytes"
        continue
    fi
    if "$program" "${options[@]}" -max_total_time="$seconds" -print_final_stats=1 "$grown/$target" "$kept/$target" \
        >"$tools/fuzz-$target.log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$tools/fuzz-$target.log")
        echo "$target: no finding in $runs runs, $((runs / (seconds > 0 ? seconds : 1))) a second"
    else
        tail -n 30 "$tools/fuzz-$target.log" >&2
        echo "$target: failed, see $crashes/$target"
        failed=1
    fi
    rmdir "$crashes/$target" 2>/dev/null || true
done
exit $failed
