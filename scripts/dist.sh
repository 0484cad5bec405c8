#!/usr/bin/env bash
# Packs the stripped binary with its manual pages into an archive that scripts/dist/install.sh installs.
set -euo pipefail
cd "$(dirname "$0")/.."

target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
readonly target_dir

usage() {
    cat <<'HELP'
scripts/dist.sh [--binary FILE] [--out FOLDER]

Writes these files to FOLDER (target/dist):
  ailoop-<version>-<target>.tar.gz         the stripped binary, licences, manual pages and completion of shells
  ailoop-<version>-<target>.tar.gz.sha256  its checksum
  ailoop-<version>-<target>.debug          what a debugger needs beside the binary
  install.sh                               installs an archive, from a file or an address
Without --binary it builds one with the profile PROFILE (release).
HELP
}

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

binary='' out=$target_dir/dist
while [ $# -gt 0 ]; do
    case "$1" in
    --binary | --out)
        [ $# -ge 2 ] || fail "$1 needs a value"
        if [ "$1" = --binary ]; then binary=$2; else out=$2; fi
        shift 2
        ;;
    --help | -h)
        usage
        exit 0
        ;;
    *) fail "there is no option $1; scripts/dist.sh --help lists them" ;;
    esac
done
[ -n "$binary" ] || binary=$(scripts/image.sh binary)
[ -x "$binary" ] || fail "$binary is no program"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# What the binary says of itself: it runs here, so it was built for this machine.
build=$("$binary" version --json)
field() { python3 -c 'import json, sys; print(json.loads(sys.argv[1])[sys.argv[2]] or "")' "$build" "$1"; }
version=$(field version)
target=$(field target)
date=$(field commit_date)
name=ailoop-$version-$target
folder=$scratch/$name
mkdir -p "$out" "$folder/man/man1" "$folder/completions"

python3 scripts/image strip --binary "$binary" --out "$folder/ailoop" --debug "$scratch/$name.debug"
chmod 755 "$folder/ailoop"
cp LICENSE "$folder/LICENSE"
python3 scripts/image documents --target "$target" --out "$scratch/documents" >/dev/null
cp "$scratch/documents/THIRD_PARTY.txt" "$folder/THIRD_PARTY.txt"
"$folder/ailoop" man --dir "$folder/man/man1" 2>/dev/null
for shell in bash zsh fish; do
    "$folder/ailoop" completion "$shell" >"$folder/completions/ailoop.$shell"
done
chmod -R u=rwX,go=rX "$folder"

# The same binary gives the same archive: without names, times and an order of this machine.
tar --create --directory "$scratch" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu \
    --mtime="${date:-1970-01-01}" "$name" | gzip --no-name --best >"$scratch/$name.tar.gz"
(cd "$scratch" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
mv "$scratch/$name.tar.gz" "$scratch/$name.tar.gz.sha256" "$scratch/$name.debug" "$out"
install -m 755 scripts/dist/install.sh "$out/install.sh"
printf '%s: %s bytes\n' "$out/$name.tar.gz" "$(stat --format=%s "$out/$name.tar.gz")"
