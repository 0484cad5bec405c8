#!/usr/bin/env bash
# Ten runs of a small model on the CPU to which tools are offered, RUNS=10: whether each ends by itself, with an answer.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly RUNS=${RUNS:-10}
work=$(mktemp -d)
readonly work
server=

# Only what was started here is ended here.
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

PORT=0 scripts/local-model.sh >"$work/model.log" 2>&1 &
server=$!
url=
for _ in $(seq 1500); do
    url=$(grep -o 'http://127\.0\.0\.1:[0-9]*' "$work/model.log" | tail -1 || true)
    [ -z "$url" ] || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.2
done
if [ -z "$url" ]; then
    printf 'error: the local model does not start\n' >&2
    cat "$work/model.log" >&2
    exit 1
fi
cp -r config "$work/config"
sed -i "s#http://127.0.0.1:8080#$url#" "$work/config/models.yaml"
# A model of this size follows a short prompt with one tool, or none at all.
cat >>"$work/config/agents.yaml" <<'YAML'

  reader:
    name: Rita the Reader
    prompt_file: eamonn_executioner.md
    tools: {allow: [read_file]}
    ai_config:
      system_prompt: You read files with read_file and answer in one sentence.
      include_shared: false
      parameters: {temperature: 0.4}
YAML
"${CARGO:-cargo}" build --quiet --locked --bin ailoop
# The runs have a directory of their own.
if [ -z "${AILOOP_NATS_SERVER:-}" ] && [ -x .tools/nats-server ]; then
    export AILOOP_NATS_SERVER="$PWD/.tools/nats-server"
fi
python3 scripts/local_chain.py "${CARGO_TARGET_DIR:-$PWD/target}/debug/ailoop" "$work" "$RUNS"
