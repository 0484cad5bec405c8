#!/usr/bin/env bash
# Notes, checks and publication of a release. VERSION is its tag or version; without it, the version of Cargo.toml.
set -euo pipefail
cd "$(dirname "$0")/.."

workspace=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
version=${VERSION:-$workspace}
version=${version#v}

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

# The part of CHANGELOG.md about this version, without its heading. AILOOP_SOURCE, the address of the repository, makes
# links to files work outside of it.
notes() {
    local text links='s/^//'
    if [ -n "${AILOOP_SOURCE:-}" ]; then links="s#\]\(([^):]+)\)#](${AILOOP_SOURCE}/blob/v$version/\1)#g"; fi
    text=$(awk -v heading="## [$version]" '
        /^## / { on = index($0, heading) == 1; next }
        on { print }
    ' CHANGELOG.md | sed -e '/./,$!d')
    [ -n "$text" ] || fail "CHANGELOG.md says nothing about $version: write a part \"## [$version] - <date>\""
    sed -E "$links" <<<"$text"
}

check() {
    [ "$version" = "$workspace" ] || fail "the release is $version, but Cargo.toml says $workspace"
    grep -Eq "^## \[${version//./\\.}\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md ||
        fail "CHANGELOG.md has no line \"## [$version] - <date>\""
    notes >/dev/null
    [ -z "$(git status --porcelain --untracked-files=no)" ] || fail "the tree has changes: a release is built from its tag"
    printf 'ok  %s: Cargo.toml and CHANGELOG.md agree\n' "$version"
}

# Publishes what each platform's `make image OUT=<OUT>/<platform>` wrote: REPOSITORY gets the image, GitHub the files.
publish() {
    local repository=${REPOSITORY:?is the repository of the image, such as ghcr.io/example/ailoop} digest platform
    repository=${repository,,}
    check
    scripts/image.sh join "$OUT/oci" "$OUT"/*/oci
    if [ -n "${REGISTRY_PASSWORD:-}" ]; then
        skopeo login --username "$REGISTRY_USER" --password-stdin "${repository%%/*}" <<<"$REGISTRY_PASSWORD"
    fi
    # shellcheck disable=SC2086
    skopeo copy --all --preserve-digests ${SKOPEO_FLAGS:-} "oci:$OUT/oci" "docker://$repository:$version"
    digest=$(manifest_of "$OUT/oci")
    cosign sign --yes --recursive "$repository@$digest"
    for platform in "$OUT"/*/oci; do
        cosign attest --yes --type cyclonedx --predicate "$(dirname "$platform")"/*.sbom.cdx.json \
            "$repository@$(manifest_of "$platform")"
    done
    mv "$OUT"/*/ailoop-* "$OUT"
    (cd "$OUT" && sha256sum ailoop-* >SHA256SUMS)
    notes >"$OUT/notes.md"
    gh release create "v$version" --verify-tag --title "ailoop $version" --notes-file "$OUT/notes.md" \
        "$OUT"/ailoop-* "$OUT/SHA256SUMS"
    printf 'repository=%s\ndigest=%s\n' "$repository" "$digest" >>"${GITHUB_OUTPUT:-/dev/stdout}"
}

manifest_of() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["manifests"][0]["digest"])' "$1/index.json"; }

case "${1:-}" in
notes) notes ;;
check) check ;;
publish) publish ;;
*) fail "usage: scripts/release.sh notes | check | publish" ;;
esac
