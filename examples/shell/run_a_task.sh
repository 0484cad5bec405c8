#!/usr/bin/env bash
# Runs a task with curl and jq, and shows its events. It survives lost connections: sent again, nothing runs twice.
#
# Needs a fleet (`ailoop up`): ./run_a_task.sh "Survey this directory"
set -euo pipefail

readonly URL=${AILOOP_URL:-http://127.0.0.1:7070}/v1
readonly PROMPT=${1:-Say hello.}
# One id for the session and for the command that starts it: a start that is repeated starts nothing.
SESSION=run-$(date +%s)-$$
readonly SESSION
headers=(-H 'content-type: application/json')
[ -z "${AILOOP_API_KEY:-}" ] || headers+=(-H "authorization: Bearer $AILOOP_API_KEY")

jq -n --arg prompt "$PROMPT" --arg session "$SESSION" '{$prompt, session_id: $session}' |
    curl --silent --show-error --fail-with-body --retry 5 --retry-connrefused "${headers[@]}" \
        -H "idempotency-key: $SESSION" --data @- "$URL/sessions" >&2
echo >&2

# A stream may break. `Last-Event-ID` names the last event that came, and the next one follows.
last=0
until [ "${ended:-}" ]; do
    while IFS= read -r line; do
        case $line in
        "event: "*) topic=${line#event: } ;;
        "data: "*) data=${line#data: } ;;
        "id: "*) last=${line#id: } ;;
        "") # the end of an event
            case ${topic:-} in
            message.ai_full_received) jq -r '.data.text' <<<"$data" ;;
            tool_call.result_processed) jq -r '"[\(.data.tool): \(.data.outcome)]"' <<<"$data" ;;
            turn.completed) jq -r '"[\(.data.stop_reason), \(.data.spent.usage.output) tokens]"' <<<"$data" ;;
            session_ended) ended=yes ;;
            esac
            topic=''
            ;;
        esac
    done < <(curl --silent --no-buffer "${headers[@]}" -H "last-event-id: $last" "$URL/sessions/$SESSION/events?no_chunks=true")
    [ "${ended:-}" ] || sleep 1
done
