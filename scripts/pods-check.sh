#!/usr/bin/env bash
# Tests of the runner behind `make pods` that need neither root nor a cluster. Called with a Python that has PyYAML.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHONPATH=scripts "${1:-python3}" -m unittest discover --start-directory scripts/pods/tests --top-level-directory scripts
