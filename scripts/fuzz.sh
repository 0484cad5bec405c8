#!/usr/bin/env bash
# Feeds every target below fuzz/ with bytes that nobody would write, for so many seconds each. What they find that is new
# goes to fuzz/found, what breaks them to fuzz/artifacts; the inputs that are kept in fuzz/corpus are not changed.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly SECONDS_EACH="${1:?seconds for each target}"
shift
readonly TOOLCHAIN="${FUZZ_TOOLCHAIN:-nightly}"

fail() {
    printf 'error[%s]: %s\n' "$1" "$2" >&2
    printf '  help: %s\n' "$3" >&2
    exit 1
}

cargo "+$TOOLCHAIN" --version >/dev/null 2>&1 ||
    fail nightly_missing "there is no Rust toolchain \"$TOOLCHAIN\", which sanitizers need" \
        "rustup toolchain install $TOOLCHAIN; or name another nightly in FUZZ_TOOLCHAIN"
cargo fuzz --version >/dev/null 2>&1 ||
    fail cargo_fuzz_missing "cargo-fuzz is not there" "cargo install cargo-fuzz --locked"

# Our code holds nothing unsafe: what sanitizers would remember of each allocation makes it only slower.
export ASAN_OPTIONS="${ASAN_OPTIONS:-malloc_context_size=0:quarantine_size_mb=8}"

targets=("$@")
[ "${#targets[@]}" -gt 0 ] || mapfile -t targets < <(cargo "+$TOOLCHAIN" fuzz list)
failed=()
for target in "${targets[@]}"; do
    printf 'fuzz: %s for %s s\n' "$target" "$SECONDS_EACH" >&2
    mkdir -p "fuzz/found/$target"
    cargo "+$TOOLCHAIN" fuzz run "$target" "fuzz/found/$target" "fuzz/corpus/$target" -- \
        -max_total_time="$SECONDS_EACH" -max_len=4096 -timeout=60 -rss_limit_mb=1024 -print_final_stats=1 ||
        failed+=("$target")
done
if [ "${#failed[@]}" -gt 0 ]; then
    printf 'fuzz: broken: %s. Make a test of what is in fuzz/artifacts first, then mend it.\n' "${failed[*]}" >&2
    exit 1
fi
