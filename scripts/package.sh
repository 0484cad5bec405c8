#!/usr/bin/env bash
# The crates that are published: packs them, and checks what a registry and its users would find. Without the network.
# `package.sh contents` does not build the packages; `package.sh` builds each from its archive, as a registry would have it.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly CARGO=${CARGO:-cargo}

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

metadata=$("$CARGO" metadata --format-version 1 --no-deps --offline --locked)
# Name, version and directory of each package that Cargo.toml does not keep from being published.
mapfile -t published < <(python3 -c '
import json, pathlib, sys
for package in json.load(sys.stdin)["packages"]:
    if package["publish"] is None:
        print(package["name"], package["version"], pathlib.Path(package["manifest_path"]).parent)
' <<<"$metadata")
[ "${#published[@]}" -gt 0 ] || fail "Cargo.toml keeps every package from being published"
archives=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])' <<<"$metadata")/package

selection=()
for package in "${published[@]}"; do selection+=(--package "${package%% *}"); done
case "${1:-}" in
contents) selection+=(--no-verify) ;;
"") ;;
*) fail "usage: scripts/package.sh [contents]" ;;
esac
# The archives that are checked below are those of this tree, with what is not committed yet.
"$CARGO" package --quiet --offline --locked --allow-dirty "${selection[@]}"

for package in "${published[@]}"; do
    read -r name version directory <<<"$package"
    archive=$archives/$name-$version.crate root=$name-$version
    files=$(tar --list --file "$archive")
    for file in LICENSE README.md Cargo.toml; do
        grep -qx "$root/$file" <<<"$files" || fail "$name has no $file: a registry shows it, and the licence asks for it"
    done
    tar --extract --to-stdout --file "$archive" "$root/LICENSE" | cmp --silent - LICENSE ||
        fail "the LICENSE of $name differs from that of the repository"
    # Pages of a registry and of docs.rs have no files beside them.
    if links=$(grep -nE '\]\((\.|/|[A-Za-z0-9_-]+/|[A-Za-z0-9_.-]+\.md)' "$directory/README.md"); then
        fail "the README of $name has links to files, which lead nowhere in a registry: $links"
    fi
    if links=$(grep -rnE '^ *//[/!].*\]\([^)]*(\.\./|\.md)' "$directory/src"); then
        fail "the documentation of $name has links to files, which lead nowhere on docs.rs: $links"
    fi
    for source in $(cd "$directory" && git ls-files '*.proto'); do
        grep -qx "$root/$source" <<<"$files" || fail "$name has no $source, from which its code is generated"
    done
    printf 'ok  %s %s: %s files, %s bytes\n' "$name" "$version" "$(wc -l <<<"$files")" "$(stat --format %s "$archive")"
done
