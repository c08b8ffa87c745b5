#!/usr/bin/env bash
# Prints the path of a Python that has the pinned jinja2: the one on PATH if it does, else one in .tools, made with pip first if need be.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

jinja2=3.1.6 markupsafe=3.0.3
home="$tools/python-jinja2-$jinja2"

has_jinja2() { "$1" -c "import importlib.metadata as m, jinja2; assert m.version('jinja2') == '$jinja2'" >/dev/null 2>&1; }

have python3 || apt_install python3
if has_jinja2 python3; then command -v python3; exit; fi
if has_jinja2 "$home/bin/python"; then echo "$home/bin/python"; exit; fi

say "fetching jinja2 $jinja2 for the conformance tests"
pip=(python3 -m pip)
"${pip[@]}" --version >/dev/null 2>&1 || apt_install python3-pip
rm -rf "$home"
# Without pip inside, so that Debian's python3-venv is not needed.
logged python-venv python3 -m venv --without-pip "$home" || die "python3 cannot make a virtual environment"
packages=$("$home/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")
logged python-jinja2 "${pip[@]}" install --quiet --no-deps --target "$packages" "jinja2==$jinja2" "markupsafe==$markupsafe" \
    || die "pip could not fetch jinja2 $jinja2" "put a python3 with jinja2 $jinja2 first on PATH"
has_jinja2 "$home/bin/python" || die "jinja2 $jinja2 was fetched, but does not load"
echo "$home/bin/python"
