#!/usr/bin/env bash
# Runs public SDKs, unmodified, against a fleet. `make clients` calls it. Where they cannot be installed, it says so.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VENV=.tools/clients
readonly PINNED=scripts/clients/requirements.txt

if ! cmp --silent "$PINNED" "$VENV/pinned"; then
    printf 'clients: bringing the packages of %s to %s\n' "$PINNED" "$VENV" >&2
    rm -rf "$VENV"
    python3 -m venv "$VENV"
    if ! "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --requirement "$PINNED"; then
        printf 'clients: skipped: pip cannot install the SDKs; check the network and the settings of pip\n' >&2
        exit 0
    fi
    cp "$PINNED" "$VENV/pinned"
fi
nats_server=$([ -x .tools/nats-server ] && echo "$PWD/.tools/nats-server" || command -v nats-server || true)
AILOOP_NATS_SERVER=$nats_server PYTHONPATH=$PWD/scripts exec "$VENV/bin/python" -m clients "$@"
