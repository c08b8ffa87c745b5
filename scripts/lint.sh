#!/usr/bin/env bash
# The checks that read code but do not run it. Every warning is an error.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

step() { printf '\n==> %s\n' "$*"; }

step "format"
cargo fmt --all --check

step "clippy on the host"
cargo clippy --locked --workspace --all-targets -- -D warnings

step "clippy on wasm"
if [ "$("$root/scripts/wasm-toolchain.sh")" = rustup ]; then
    cargo clippy --locked -p prefixway-filter -p prefixway-core --target wasm32-unknown-unknown -- -D warnings
else
    # Debian's toolchain has no clippy for this target; the host run above has seen the same code.
    say "skipped: the wasm target is not in rustup's toolchain"
fi

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

if have cargo-deny; then
    step "licences, sources and duplicates"
    cargo deny --offline --log-level error check bans licenses sources
fi

if have shellcheck; then
    step "scripts"
    shellcheck --external-sources --source-path=SCRIPTDIR scripts/*.sh .ci/run
fi
