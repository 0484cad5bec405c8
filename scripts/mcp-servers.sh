#!/usr/bin/env bash
# Brings MCP servers that others wrote to .tools/mcp, and runs the tests that serve their tools.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly HOME_OF_THEM=$PWD/.tools/mcp
readonly TIME=mcp-server-time==2026.10.19
readonly FILESYSTEM=@modelcontextprotocol/server-filesystem@2026.8.31
readonly EVERYTHING=@modelcontextprotocol/server-everything@2026.8.31
readonly WANTED="$TIME $FILESYSTEM $EVERYTHING"

if [ "$(cat "$HOME_OF_THEM/.complete" 2>/dev/null)" != "$WANTED" ]; then
    printf 'mcp-servers: fetching %s\n' "$WANTED" >&2
    rm -rf "$HOME_OF_THEM"
    mkdir -p "$HOME_OF_THEM/node"
    if ! python3 -m venv "$HOME_OF_THEM/python" ||
        ! "$HOME_OF_THEM/python/bin/pip" install --quiet --disable-pip-version-check --only-binary=:all: "$TIME"; then
        printf 'error: %s cannot be fetched\n  help: it needs Python 3.10 or newer with venv, and a package index\n' "$TIME" >&2
        exit 1
    fi
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$HOME_OF_THEM/node" "$FILESYSTEM" "$EVERYTHING" || {
        printf 'error: the servers of npm cannot be fetched\n  help: it needs Node.js 20 or newer with npm, and a registry\n' >&2
        exit 1
    }
    printf '%s' "$WANTED" >"$HOME_OF_THEM/.complete"
fi
cargo test --quiet --locked --package tool-host --test suite mcp::real -- --nocapture
