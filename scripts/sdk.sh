#!/usr/bin/env bash
# Tests the SDKs and runs the examples against a fleet. `make sdk` calls it. Where pip or npm cannot install, it says so.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly PLACE=$PWD/.tools/sdk
readonly PINNED=sdk/requirements.txt
readonly COMPILED=$PLACE/examples

skip() {
    printf 'sdk: skipped: %s; check the network and the settings of %s\n' "$1" "$2" >&2
    exit 0
}

if ! cmp --silent "$PINNED" "$PLACE/pinned"; then
    printf 'sdk: bringing the packages of %s to %s\n' "$PINNED" "$PLACE" >&2
    rm -rf "$PLACE"
    python3 -m venv "$PLACE"
    "$PLACE/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$PINNED" ||
        skip 'pip cannot install what the Python SDK needs' pip
    cp "$PINNED" "$PLACE/pinned"
fi
python3 sdk/generate.py --check

# As users get it: a wheel, and not the directory.
rm -rf "$PLACE/wheel"
"$PLACE/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --wheel-dir "$PLACE/wheel" ./sdk/python
"$PLACE/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall "$PLACE"/wheel/*.whl
(cd sdk/python && "$PLACE/bin/python" -m mypy --cache-dir "$PLACE/mypy" src)

rm -rf "$COMPILED"
if command -v npm >/dev/null; then
    (cd sdk/typescript && npm install --silent --no-audit --no-fund --no-package-lock) ||
        skip 'npm cannot install what the TypeScript SDK needs' npm
    rm -rf sdk/typescript/dist
    mkdir -p "$COMPILED"
    cp examples/typescript/* "$COMPILED/"
    package=$(cd sdk/typescript && npm pack --silent --pack-destination "$COMPILED")
    # The examples get the package as users do.
    (cd "$COMPILED" && npm install --silent --no-audit --no-fund --no-package-lock "./$package" && ./node_modules/.bin/tsc)
    export AILOOP_COMPILED_EXAMPLES=$COMPILED/dist
else
    printf 'sdk: TypeScript is skipped: there is no npm\n' >&2
fi

nats_server=$([ -x .tools/nats-server ] && echo "$PWD/.tools/nats-server" || command -v nats-server || true)
AILOOP_NATS_SERVER=$nats_server PYTHONPATH=$PWD/scripts:$PWD/sdk exec "$PLACE/bin/python" -m trials "$@"
