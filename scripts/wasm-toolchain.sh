#!/usr/bin/env bash
# Prints the way to build for wasm32-unknown-unknown on this machine, preparing it first where needed:
#   rustup   the active toolchain has (or rustup just fetched) the target
#   debian   Debian's rustc-web with rust-web-src builds the standard library itself
# PREFIXWAY_WASM_TOOLCHAIN=rustup|debian forces one. A rustup that cannot fetch the target is remembered in .tools/.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

target=wasm32-unknown-unknown
remembered="$tools/no-rustup-wasm"

active_has_target() { have rustc && [ -d "$(rustc --print sysroot 2>/dev/null)/lib/rustlib/$target/lib" ]; }

rustup_way() {
    active_has_target && return 0
    have rustup && have rustc || return 1
    local version
    version=$(rustc --version)
    [ "$(cat "$remembered" 2>/dev/null)" = "$version" ] && [ "${1:-}" != force ] && return 1
    say "fetching the $target target with rustup"
    if logged rustup-target timeout 90 rustup target add "$target" && active_has_target; then
        rm -f "$remembered"
        return 0
    fi
    say "rustup cannot fetch the target here, using Debian's packages instead"
    mkdir -p "$tools" && printf '%s\n' "$version" >"$remembered"
    return 1
}

debian_ready() { [ -x /usr/bin/rustc ] && [ -x /usr/bin/cargo ] && [ -f "$(debian_source)" ]; }
debian_source() { echo "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock"; }
debian_way() { debian_ready 2>/dev/null || apt_install rustc-web cargo-web rust-web-src; debian_ready; }

case "${PREFIXWAY_WASM_TOOLCHAIN:-}" in
rustup) rustup_way force || die "rustup has no $target target" "run: rustup target add $target"; echo rustup ;;
debian) debian_way || die "Debian's web toolchain is incomplete" "run: sudo apt-get install -y rustc-web cargo-web rust-web-src"; echo debian ;;
"")
    if rustup_way; then echo rustup
    elif debian_way; then echo debian
    else die "no toolchain for $target" "run: rustup target add $target" "or: sudo apt-get install -y rustc-web cargo-web rust-web-src"
    fi ;;
*) die "PREFIXWAY_WASM_TOOLCHAIN is '$PREFIXWAY_WASM_TOOLCHAIN', allowed are rustup and debian" ;;
esac
