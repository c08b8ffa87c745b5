#!/usr/bin/env bash
# Renders the conformance set again with jinja2: writes router-core/tests/conformance/expected.jsonl.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

python=$("$root/scripts/python.sh")
"$python" -B "$root/router-core/tests/conformance/reference/generate.py"
