#!/usr/bin/env bash
# Checks the dependencies: licences and sources (deny.toml), and none that nothing uses. `dependencies.sh advisories` asks
# for known vulnerabilities, which needs the network. The pinned tools are built into .tools/cargo once.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TOOLS=.tools/cargo
readonly DENY=0.20.2 MACHETE=0.9.2

tool() {
    local name=$1 version=$2
    if [ "$("$TOOLS/bin/$name" --version 2>/dev/null | awk '{ print $NF }')" != "$version" ]; then
        printf 'dependencies: building %s %s into %s, once\n' "$name" "$version" "$TOOLS" >&2
        # Without optimisation: building takes longer than all runs.
        cargo install --quiet --locked --debug --root "$TOOLS" --target-dir "$TOOLS/build" "$name@$version"
        rm -rf "$TOOLS/build"
    fi
}

tool cargo-deny "$DENY"
if [ "${1:-}" = advisories ]; then
    exec "$TOOLS/bin/cargo-deny" check advisories
fi
"$TOOLS/bin/cargo-deny" --locked check --hide-inclusion-graph bans licenses sources
tool cargo-machete "$MACHETE"
"$TOOLS/bin/cargo-machete"
