#!/bin/sh
# Runs the test of a rolling upgrade: OLD is the path of an older binary, or OLD_REV a revision that is built for it.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)
cargo=${CARGO:-cargo}

if [ -z "${OLD:-}" ]; then
    if [ -z "${OLD_REV:-}" ]; then
        echo "usage: make upgrade OLD=<path of an older ailoop> | OLD_REV=<git revision>" >&2
        exit 2
    fi
    rev=$(git rev-parse --verify --short=12 "$OLD_REV^{commit}")
    tree="$root/target/upgrade/$rev"
    OLD="$tree/target/debug/ailoop"
    if [ ! -x "$OLD" ]; then
        mkdir -p "$tree"
        git archive "$rev" | tar -x -C "$tree"
        echo "building ailoop of $rev"
        (cd "$tree" && CARGO_TARGET_DIR="$tree/target" $cargo build --locked --bin ailoop)
    fi
fi
case "$OLD" in
    /*) ;;
    *) OLD="$root/$OLD" ;;
esac
AILOOP_UPGRADE_OLD="$OLD" exec $cargo test --quiet --locked --workspace --test campaigns upgrade -- --nocapture
