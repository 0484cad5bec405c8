#!/usr/bin/env bash
# Builds the container image without Docker, and checks it. `scripts/image.sh help` lists what it does.
# PROFILE is cargo's profile, BINARY a binary that was built before, OUT where the image goes, TAG its name.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly PROFILE=${PROFILE:-release} TAG=${TAG:-ailoop:dev}
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
readonly target_dir
readonly OUT=${OUT:-$target_dir/image}
# Of its own, since its flags would make every other build begin again.
readonly BUILD=$target_dir/image-build
readonly VENV=.tools/image
readonly PINNED=scripts/image/requirements.txt

# Builds the binary without paths of this machine.
build() {
    local flags="--remap-path-prefix=$PWD=/ailoop --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=/registry"
    RUSTFLAGS="$flags" cargo build --locked --package ailoop --bin ailoop --profile "$PROFILE" --target-dir "$BUILD" >&2
    local folder=$PROFILE
    if [ "$PROFILE" = dev ]; then folder=debug; fi
    printf '%s' "$BUILD/$folder/ailoop"
}

image() { python3 scripts/image "$@"; }

host() { rustc -vV | sed -n 's/^host: //p'; }

# Checks the documents without a binary: each crate has a licence text, and the SBOM is valid.
documents() {
    local out
    out=$(mktemp -d)
    trap 'rm -rf "$out"' RETURN
    image documents --target "$(host)" --out "$out"
    validate "$out/sbom.cdx.json"
}

validate() {
    if ! cmp --silent "$PINNED" "$VENV/pinned"; then
        printf 'image: bringing the packages of %s to %s\n' "$PINNED" "$VENV" >&2
        rm -rf "$VENV"
        python3 -m venv "$VENV"
        "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --requirement "$PINNED"
        cp "$PINNED" "$VENV/pinned"
    fi
    "$VENV/bin/python" scripts/image/validate.py "$@"
}

case "${1:-help}" in
image)
    binary=${BINARY:-$(build)}
    image build --binary "$binary" --out "$OUT" --tag "$TAG" ${SIZE_MAX:+--size-max "$SIZE_MAX"}
    validate "$OUT"/*.sbom.cdx.json
    image check "$OUT/oci"
    ;;
check) image check "$OUT/oci" ;;
documents) documents ;;
binary) build ;;
root) image root --binary "$(build)" --out "$2" --debug "$3" ;;
join) image join --out "$2" "${@:3}" ;;
*)
    cat <<'HELP'
scripts/image.sh image              build the binary, write the image to OUT (target/image), and check it
scripts/image.sh check              check the image in OUT again
scripts/image.sh documents          check SBOM and notices without a binary
scripts/image.sh binary             build the binary, and print its path
scripts/image.sh root FOLDER DEBUG  write the files of the image to FOLDER, and debugging data to DEBUG
scripts/image.sh join FOLDER LAYOUT...  join images of several platforms
HELP
    ;;
esac
