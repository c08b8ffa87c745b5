#!/usr/bin/env bash
# Makes sure that everything a build, a test or the demo needs is there. Safe to run again; quiet when nothing is to do.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

packages=()
# libzmq and oniguruma are compiled from the sources in their crates.
have cc || packages+=(gcc libc6-dev)
have c++ || packages+=(g++)
have python3 || packages+=(python3)
if ! have cargo; then
    # No rustup: Debian's toolchain builds the host side as well as the filter.
    packages+=(rustc-web cargo-web rust-web-src)
fi
[ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"

"$root/scripts/wasm-toolchain.sh" >/dev/null
"$root/scripts/envoy.sh" >/dev/null
