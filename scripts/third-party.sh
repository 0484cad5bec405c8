#!/usr/bin/env bash
# Runs the gateway's conversations against servers that others wrote: aimock, and llama.cpp with a small model on the CPU.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly AIMOCK_VERSION=1.43.0
readonly AIMOCK=$PWD/.tools/aimock
started=()

# Only what was started here is ended here.
cleanup() {
    for pid in "${started[@]:-}"; do
        [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    done
}
trap cleanup EXIT

# Prints the first address in a log, as soon as it is there.
address() {
    local log=$1 url
    for _ in $(seq 300); do
        url=$(grep -o 'http://127\.0\.0\.1:[0-9]*' "$log" | tail -1 || true)
        if [ -n "$url" ]; then
            printf '%s' "$url"
            return
        fi
        sleep 0.2
    done
    printf 'error: no server within a minute\n' >&2
    cat "$log" >&2
    return 1
}

if [ ! -d "$AIMOCK/node_modules/@copilotkit/aimock" ]; then
    mkdir -p "$AIMOCK"
    npm install --silent --no-audit --no-fund --prefix "$AIMOCK" "@copilotkit/aimock@$AIMOCK_VERSION"
fi
(cd tests/third-party && exec node "$AIMOCK/node_modules/@copilotkit/aimock/dist/aimock-cli.js" --config aimock.json) \
    >"$AIMOCK/log" 2>&1 &
started+=($!)
PORT=0 scripts/local-model.sh >"$AIMOCK/local.log" 2>&1 &
started+=($!)

AILOOP_AIMOCK_URL=$(address "$AIMOCK/log")
AILOOP_LLAMACPP_URL=$(address "$AIMOCK/local.log")
export AILOOP_AIMOCK_URL AILOOP_LLAMACPP_URL
printf 'aimock %s at %s, llama.cpp at %s\n' "$AIMOCK_VERSION" "$AILOOP_AIMOCK_URL" "$AILOOP_LLAMACPP_URL"
cargo test --quiet --locked --package model-gateway --test suite third_party -- --nocapture
