#!/usr/bin/env bash
# Runs a fleet against Arize Phoenix, kills replicas, and compares Phoenix's spans with the log. `make lab NAME=phoenix`
# calls it; `scripts/phoenix.sh --help` lists the options. Where Phoenix cannot be installed, it says so and skips the
# run.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VENV=.tools/phoenix
readonly PINNED=scripts/phoenix_check/requirements.txt

skip() {
    printf 'phoenix: skipped: %s\n  help: %s\n' "$1" "$2" >&2
    exit 0
}

if ! cmp --silent "$PINNED" "$VENV/pinned"; then
    printf 'phoenix: bringing the packages of %s to %s (about 850 MB)\n' "$PINNED" "$VENV" >&2
    rm -rf "$VENV"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
        skip "arize-phoenix needs Python 3.10 or newer" "install it and put python3 on PATH"
    python3 -m venv "$VENV" ||
        skip "python3 cannot make a virtual environment" "install venv (Debian: apt-get install python3-venv)"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        --requirement "$PINNED" ||
        skip "pip cannot install arize-phoenix" "check the network and pip's settings, and run it again"
    cp "$PINNED" "$VENV/pinned"
fi
nats_server=$([ -x .tools/nats-server ] && echo "$PWD/.tools/nats-server" || command -v nats-server || true)
[ -n "$nats_server" ] || skip "there is no nats-server" "run: make setup"

python=$PWD/$VENV/bin/python
export PYTHONPATH=$PWD/scripts
"$python" -m unittest discover --quiet --start-directory scripts/phoenix_check/tests --top-level-directory scripts
exec "$python" -m phoenix_check --phoenix "$PWD/$VENV/bin/phoenix" --nats-server "$nats_server" "$@"
