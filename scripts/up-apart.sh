#!/usr/bin/env bash
# Runs the fleet as it runs in production: each service a process with a NATS user of its own, two loop-orchestrators,
# next to a nats-server that accepts only users with credentials. Ctrl-C ends all of it. Data stays in .ailoop/apart/.
set -euo pipefail
cd "$(dirname "$0")/.."

AILOOP=${AILOOP:-target/debug/ailoop}
NATS_SERVER=${AILOOP_NATS_SERVER:-$([ -x .tools/nats-server ] && echo .tools/nats-server || echo nats-server)}
ROOT=$(realpath "${DIR:-.}")
WS_PORT=${WS_PORT:-7070}
GRPC_PORT=${GRPC_PORT:-7071}
NATS_PORT=${NATS_PORT:-4222}
ORCHESTRATORS=${ORCHESTRATORS:-2}
readonly AILOOP NATS_SERVER ROOT WS_PORT GRPC_PORT NATS_PORT ORCHESTRATORS

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

here=$PWD/.ailoop/apart
mkdir -p "$here/nats" "$here/out" "$here/log"
exec 9>"$here/lock"
flock -n 9 || fail "another fleet runs from $here"

# Keys and credentials of the first run. A later version of ailoop may have other permissions, which `update` brings.
auth=$here/auth
[ -d "$auth/keys" ] || "$AILOOP" nats-auth init --directory "$auth" 2>/dev/null || fail "no credentials in $auth"

cat >"$here/server.conf" <<CONF
server_name: apart
listen: "127.0.0.1:$NATS_PORT"
pid_file: "$here/nats.pid"
jetstream { store_dir: "$here/nats", sync_interval: "1s" }
max_control_line: 32KB
include ./auth/auth.conf
CONF

services=()
nats=
end() {
    local code=$?
    trap - EXIT INT TERM
    # To be told to end is no failure.
    case $code in 130 | 143) code=0 ;; esac
    # The server last, so that services can hand back what they hold.
    if [ ${#services[@]} -gt 0 ]; then
        kill -TERM "${services[@]}" 2>/dev/null || true
        wait "${services[@]}" 2>/dev/null || true
    fi
    if [ -n "$nats" ]; then
        kill -TERM "$nats" 2>/dev/null || true
        wait "$nats" 2>/dev/null || true
    fi
    exit "$code"
}
trap end EXIT
trap 'exit 0' INT TERM

# Ctrl-C goes to every process of a terminal's foreground group; each of ours has a group of its own and is told by us.
set -m

"$NATS_SERVER" -c "$here/server.conf" >"$here/log/nats.log" 2>&1 9>&- &
nats=$!
for _ in $(seq 100); do
    # By its own word: somebody else's server may answer on this port.
    if grep -q 'Server is ready' "$here/log/nats.log"; then break; fi
    kill -0 "$nats" 2>/dev/null || fail "nats-server does not start: $(tail -n 3 "$here/log/nats.log")"
    sleep 0.1
done

"$AILOOP" nats-auth update --keys "$auth" --nats "nats://127.0.0.1:$NATS_PORT" >"$here/log/auth.log" 2>&1 9>&- ||
    fail "no permissions: $(cat "$here/log/auth.log")"

# Runs `ailoop <command>` as a NATS user: as <role> <command> [VARIABLE=value ...]
# An empty role is for the tool-host, whose kinds of tools are users by themselves.
as() {
    local role=$1 command=$2 login=()
    shift 2
    [ -z "$role" ] || login=(AILOOP__NATS__CREDENTIALS="$auth/users/$role.creds")
    exec env -i PATH="$PATH" HOME="$HOME" \
        AILOOP_CONFIG="${AILOOP_CONFIG:-config}" AILOOP__NATS__URL="nats://127.0.0.1:$NATS_PORT" "${login[@]}" \
        ${RUST_LOG:+RUST_LOG="$RUST_LOG"} "$@" "$AILOOP" "$command"
}

(as bootstrap bootstrap) >"$here/log/bootstrap.log" 2>&1 9>&- || fail "no streams: $(cat "$here/log/bootstrap.log")"

start() {
    local name=$1
    shift
    (as "$@") >"$here/log/$name.log" 2>&1 9>&- &
    services+=($!)
    printf '  %-14s pid %-8s %s\n' "$name" "$!" "$here/log/$name.log"
}

# Provider keys go to the gateway alone.
keys=()
while IFS='=' read -r name _; do keys+=("$name=${!name}"); done < <(env | grep -E '^[A-Z0-9_]+_API_KEY=' || true)

printf 'ailoop, each service apart:\n'
printf '  %-14s pid %-8s %s\n' nats "$nats" "$here/log/nats.log"
start composer composer composer "AILOOP__COMPOSER__DEFAULT_MODEL=${MODEL:-rehearsal}"
start gateway gateway gateway "${keys[@]}"
start executor executor executor
logins=()
for kind in FILES PLANS MAIL RESULTS SESSIONS FETCH; do
    logins+=("AILOOP__TOOL_HOST__${kind}__LOGIN__CREDENTIALS=$auth/users/${kind,,}.creds")
done
start tool-host "" tool-host \
    AILOOP__TOOL_HOST__FILES__ROOT="$ROOT" AILOOP__TOOL_HOST__FILES__OUT="$here/out" \
    "${logins[@]}"
for n in $(seq "$ORCHESTRATORS"); do start "orchestrator-$n" orchestrator orchestrator; done
start edge edge edge \
    AILOOP__EDGE__WS__LISTEN="127.0.0.1:$WS_PORT" AILOOP__EDGE__GRPC__LISTEN="127.0.0.1:$GRPC_PORT"

up() { (exec 3<>"/dev/tcp/127.0.0.1/$GRPC_PORT") 2>/dev/null; }
for _ in $(seq 200); do
    if up || ! kill -0 "${services[-1]}" 2>/dev/null; then break; fi
    sleep 0.1
done
kill -0 "${services[-1]}" 2>/dev/null && up || fail "the edge does not answer: $(tail -n 3 "$here/log/edge.log")"

cat <<TEXT
  WebSocket      ws://127.0.0.1:$WS_PORT/ws
  gRPC           http://127.0.0.1:$GRPC_PORT
  console        http://127.0.0.1:$WS_PORT/
  NATS           nats://127.0.0.1:$NATS_PORT
  credentials    $auth/users
  tools read     $ROOT
  tools write    $here/out
Try: $AILOOP run --url http://127.0.0.1:$GRPC_PORT --agent e "Survey this directory and write a report"
Ctrl-C ends it. \`kill -9\` any pid above and see its work go on elsewhere.
TEXT

# A service that ends is told of; the others go on. Ctrl-C ends the wait.
left=$((${#services[@]} + 1))
while [ "$left" -gt 0 ]; do
    gone=
    wait -n -p gone "${services[@]}" "$nats" || true
    [ -n "$gone" ] || break
    left=$((left - 1))
    printf 'process %s ended\n' "$gone"
    [ "$gone" != "$nats" ] || fail "nats-server ended: $(tail -n 3 "$here/log/nats.log")"
    remaining=()
    for pid in "${services[@]}"; do [ "$pid" = "$gone" ] || remaining+=("$pid"); done
    services=("${remaining[@]}")
done
