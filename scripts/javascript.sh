#!/usr/bin/env bash
# Installs what the JavaScript tools need into .tools/javascript, for the tests that run them.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly HOME_OF=$PWD/.tools/javascript
mkdir -p "$HOME_OF"
cp examples/tools/javascript/package.json "$HOME_OF/"
npm install --silent --no-audit --no-fund --no-package-lock --prefix "$HOME_OF"
printf 'the packages of examples/tools/javascript are in %s\n' "$HOME_OF"
