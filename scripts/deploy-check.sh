#!/usr/bin/env bash
# Checks everything below deploy/ without a cluster: the chart and the overlays, their references, nats-server's
# configuration, and the files of the image. `deploy-check.sh manifests` writes what is generated there: the schema of
# the chart's values, deploy/kubernetes/base and the dashboards. Its tools live in .tools/deploy-check and
# .tools/kubernetes.
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

scripts/kubernetes-tools.sh "$VENV/bin/python"
scripts/pods-check.sh "$VENV/bin/python"
PYTHONPATH=scripts exec "$VENV/bin/python" -m deploy_check "$@"
