#!/usr/bin/env bash
# Builds, checks and tests the web console: `make console` and `make console-…` call it. Cargo needs none
# of this, as what is built is committed. Where node is missing, the checks say so and are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly HOME_OF=services/edge/console
readonly NODE_MIN=20

skip() {
    printf 'console: skipped: %s\n' "$1" >&2
    exit 0
}

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

# Says why the tools are missing; nothing if they are there.
missing() {
    command -v npm >/dev/null || { echo "there is no npm; install Node.js $NODE_MIN or newer"; return; }
    [ "$(node --print 'process.versions.node.split(".")[0]')" -ge "$NODE_MIN" ] || { echo "Node.js is older than $NODE_MIN"; return; }
    if ! cmp --silent "$HOME_OF/package-lock.json" "$HOME_OF/node_modules/.pinned"; then
        printf 'console: bringing the packages of %s/package-lock.json\n' "$HOME_OF" >&2
        # esbuild needs no script of its own: npm brings its binary.
        (cd "$HOME_OF" && npm ci --silent --no-audit --no-fund --ignore-scripts) >&2 ||
            { echo "npm cannot install the packages; check the network and the settings of npm"; return; }
        cp "$HOME_OF/package-lock.json" "$HOME_OF/node_modules/.pinned"
    fi
}

compile() {
    (cd "$HOME_OF" && node_modules/.bin/tsc -p . && node build.mjs "$@")
}

build() {
    local why; why=$(missing); [ -z "$why" ] || fail "$why"
    compile
    printf 'console: %s files, %s bytes compressed\n' "$(find "$HOME_OF/dist" -type f | wc -l)" \
        "$(find "$HOME_OF/dist" -type f -exec gzip --best --stdout {} + | wc --bytes)"
}

check() {
    local why; why=$(missing); [ -z "$why" ] || skip "$why"
    built=$(mktemp -d)
    trap 'rm -rf "$built"' EXIT
    compile "$built"
    diff --recursive --brief "$HOME_OF/dist" "$built" >&2 ||
        fail "$HOME_OF/dist is not what its sources give: run \`make console\` and commit it"
    (cd "$HOME_OF" && node_modules/.bin/prettier --log-level warn --check "src/**/*.{ts,tsx}" "test/**/*.{ts,mjs}" build.mjs) ||
        fail "format the sources: (cd $HOME_OF && npx prettier --write \"src/**/*.{ts,tsx}\" \"test/**/*.{ts,mjs}\" build.mjs)"
    (cd "$HOME_OF" && node test/unit.mjs)
    printf 'console: dist is what its sources give, and the unit tests pass\n'
}

run_tests() {
    local why; why=$(missing); [ -z "$why" ] || skip "$why"
    export CHROMIUM=${CHROMIUM:-/usr/bin/chromium}
    [ -x "$CHROMIUM" ] || skip "there is no browser at $CHROMIUM; install the package chromium, or set CHROMIUM to its path"
    local nats_server
    nats_server=$([ -x .tools/nats-server ] && echo "$PWD/.tools/nats-server" || command -v nats-server || true)
    export AILOOP_NATS_SERVER=${AILOOP_NATS_SERVER:-$nats_server}
    if [ "$1" = cost ]; then
        (cd "$HOME_OF" && exec node --experimental-websocket test/cost.mjs)
    else
        (cd "$HOME_OF" && node test/unit.mjs && exec node test/browser.mjs)
    fi
}

case "${1:-}" in
build) build ;;
check) check ;;
test | cost) run_tests "$1" ;;
*) fail "call it as scripts/console.sh build, check, test or cost" ;;
esac
