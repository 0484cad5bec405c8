#!/bin/sh
# Installs an archive of ailoop: `install.sh [--prefix FOLDER] ARCHIVE`, with the path or the address of the archive.
# The binary goes to FOLDER/bin, by default ~/.local/bin; manual pages and completion go to FOLDER/share.
set -eu

fail() {
    printf 'error: %s\n' "$1" >&2
    [ $# -lt 2 ] || printf '  help: %s\n' "$2" >&2
    exit 1
}

usage() {
    printf 'usage: install.sh [--prefix FOLDER] ARCHIVE\n'
    printf 'ARCHIVE is a path or an address (https://…/ailoop-<version>-<target>.tar.gz), with ARCHIVE.sha256 beside it.\n'
    printf 'FOLDER is ~/.local unless it is given.\n'
}

has() { command -v "$1" >/dev/null 2>&1; }

prefix='' archive=''
while [ $# -gt 0 ]; do
    case "$1" in
    --prefix)
        [ $# -ge 2 ] || fail '--prefix needs a folder'
        prefix=$2
        shift 2
        ;;
    --help | -h)
        usage
        exit 0
        ;;
    -*) fail "there is no option $1" "$(usage)" ;;
    *)
        [ -z "$archive" ] || fail 'only one archive can be installed' "$(usage)"
        archive=$1
        shift
        ;;
    esac
done
[ -n "$archive" ] || fail 'no archive is given' "$(usage)"
[ -n "$prefix" ] || prefix=${HOME:?is not set: pass --prefix}/.local

# The name of the archive says for which machines it is.
file=${archive##*/}
case "$file" in
ailoop-*.tar.gz) ;;
*) fail "$file is no archive of ailoop: its name must be ailoop-<version>-<target>.tar.gz" ;;
esac
system=$(uname -s)
processor=$(uname -m)
case "$processor" in
amd64) processor=x86_64 ;;
arm64) processor=aarch64 ;;
esac
case "$system" in
Linux) kind=linux ;;
Darwin) kind=apple-darwin ;;
*) kind=$system ;;
esac
case "$file" in
*-"$processor"-*"$kind"*) ;;
*)
    fail "$file is for another machine: this one is $processor with $system" \
        'take the archive for this machine, or build ailoop from its source: cargo build --release'
    ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

fetch() {
    case "$1" in
    *://*)
        if has curl; then
            curl --fail --silent --show-error --location --output "$2" "$1" || fail "$1 cannot be downloaded"
        elif has wget; then
            wget --quiet --output-document="$2" "$1" || fail "$1 cannot be downloaded"
        else
            fail 'curl or wget is needed for a download' 'download the archive and its .sha256 file, and pass the path'
        fi
        ;;
    *) cp "$1" "$2" || fail "$1 cannot be read" ;;
    esac
}

fetch "$archive.sha256" "$scratch/sha256"
fetch "$archive" "$scratch/archive"
expected=$(sed -n '1s/^\([0-9a-f]\{64\}\) .*$/\1/p' "$scratch/sha256")
[ -n "$expected" ] || fail "$archive.sha256 has no checksum"
if has sha256sum; then
    actual=$(sha256sum "$scratch/archive")
elif has shasum; then
    actual=$(shasum -a 256 "$scratch/archive")
else
    fail 'sha256sum or shasum is needed to verify the archive'
fi
actual=${actual%% *}
[ "$actual" = "$expected" ] || fail "the checksum of $file is $actual, and $file.sha256 says $expected" \
    'the archive is damaged or another one, and nothing was installed: download both files again'

tar -xzf "$scratch/archive" -C "$scratch"
from=$scratch/${file%.tar.gz}
[ -x "$from/ailoop" ] || fail "$file has no ${file%.tar.gz}/ailoop"
# It may be linked against a newer or another C library.
version=$("$from/ailoop" --version 2>"$scratch/error") ||
    fail "the binary does not run here: $(head -n 1 "$scratch/error")" 'build ailoop from its source: cargo build --release'

# A rename, so that a binary that runs is replaced, too, and never by half of a file.
put() {
    mkdir -p "$(dirname "$2")"
    cp "$1" "$2.new"
    mv "$2.new" "$2"
}
put "$from/ailoop" "$prefix/bin/ailoop"
for page in "$from"/man/man1/*.1; do
    put "$page" "$prefix/share/man/man1/${page##*/}"
done
put "$from/completions/ailoop.bash" "$prefix/share/bash-completion/completions/ailoop"
put "$from/completions/ailoop.zsh" "$prefix/share/zsh/site-functions/_ailoop"
put "$from/completions/ailoop.fish" "$prefix/share/fish/vendor_completions.d/ailoop.fish"
put "$from/LICENSE" "$prefix/share/doc/ailoop/LICENSE"
put "$from/THIRD_PARTY.txt" "$prefix/share/doc/ailoop/THIRD_PARTY.txt"

printf 'installed %s to %s\n' "$version" "$prefix/bin/ailoop"
case ":$PATH:" in
*":$prefix/bin:"*) ;;
*) printf 'add it to your PATH: export PATH="%s/bin:$PATH"\n' "$prefix" ;;
esac
has nats-server || printf 'ailoop needs a nats-server 2.15 or newer on PATH, or its path in AILOOP_NATS_SERVER\n'
