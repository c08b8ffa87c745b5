# shellcheck shell=bash
# Shared by the scripts in this folder; sourced, never run.
# Messages go to stderr, results (a path, a word) to stdout.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools="$root/.tools"

say() { printf 'prefixway: %s\n' "$*" >&2; }
die() { printf 'prefixway: error: %s\n' "$1" >&2; shift; for hint in "$@"; do printf 'hint: %s\n' "$hint" >&2; done; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command with its output in .tools/<log name>.log; shows the log only when the command fails.
logged() {
    local log="$tools/$1.log"
    shift
    mkdir -p "$tools"
    "$@" >"$log" 2>&1 </dev/null || { tail -n 20 "$log" >&2; return 1; }
}

# Prints the prefix that makes a command run as root ("" or "sudo -n"); fails when there is no way.
as_root() {
    if [ "$(id -u)" = 0 ]; then echo env
    elif have sudo && sudo -n true 2>/dev/null; then echo "sudo -n env"
    else return 1
    fi
}

# Installs Debian packages, or says which command does.
apt_install() {
    local prefix
    have apt-get || die "missing: $*" "install the equivalents of these Debian packages: $*"
    prefix=$(as_root) || die "missing: $*" "run: sudo apt-get update && sudo apt-get install -y $*"
    say "installing with apt: $*"
    # shellcheck disable=SC2086  # the prefix is two words
    logged apt-update $prefix apt-get update \
        || say "apt-get update failed, trying with the package lists at hand"
    # shellcheck disable=SC2086
    logged apt-install $prefix DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" \
        || die "apt-get could not install: $*" "run: sudo apt-get update && sudo apt-get install -y $*"
}
