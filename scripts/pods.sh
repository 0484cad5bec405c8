#!/usr/bin/env bash
# Runs rendered manifests without a cluster: each container a process in namespaces of this machine. `make pods` calls
# it; `scripts/pods.sh --help` lists the options. Packages of Debian that are missing are installed: runc, nftables,
# iproute2.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VENV=.tools/pods
readonly PINNED="PyYAML==6.0.3"

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

[ "$(uname -s)" = Linux ] || fail "namespaces are of Linux: run it there, or in a virtual machine"

needs=()
command -v runc >/dev/null || needs+=(runc)
command -v nft >/dev/null || needs+=(nftables)
command -v ip >/dev/null || needs+=(iproute2)
if [ ${#needs[@]} -gt 0 ] && [ "${1:-}" != --help ]; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || fail "${needs[*]} must be installed"
    printf 'pods: installing %s\n' "${needs[*]}" >&2
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${needs[@]}" >/dev/null
fi

if [ "$(cat "$VENV/pinned" 2>/dev/null)" != "$PINNED" ]; then
    printf 'pods: bringing %s to %s\n' "$PINNED" "$VENV" >&2
    rm -rf "$VENV"
    python3 -m venv "$VENV"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$PINNED"
    printf '%s' "$PINNED" >"$VENV/pinned"
fi
python=$PWD/$VENV/bin/python
scripts/kubernetes-tools.sh "$python"
export PATH=$PWD/.tools/kubernetes:$PATH PYTHONPATH=$PWD/scripts
exec "$python" -m pods "$@"
