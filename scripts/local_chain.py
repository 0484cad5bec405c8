"""Runs a session with tools several times and prints how each ended; fails where one left its user without an answer."""

import json
import os
import subprocess
import sys
import time

binary, work, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
PROMPT = "Read the file notes.txt with read_file. Then tell me in one sentence on which day the meeting is."
# A turn that does not end by its own limits is a failure of what is tested here.
SECONDS_MAX = 600

project = os.path.join(work, "project")
os.makedirs(project)
with open(os.path.join(project, "notes.txt"), "w", encoding="utf-8") as notes:
    notes.write("The meeting about the garden is on Tuesday at nine. Bring the seeds.\n")
environment = dict(os.environ, AILOOP_CONFIG=os.path.join(work, "config"), NO_COLOR="1")
line = [binary, "run", "--json", "--agent", "reader", "--model", "local", "--root", project, PROMPT]

print("| run | ended | steps | tool calls | seconds | answer |")
print("|---|---|---|---|---|---|")
without = 0
for number in range(1, runs + 1):
    began = time.monotonic()
    try:
        ran = subprocess.run(line, cwd=work, env=environment, capture_output=True, timeout=SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        without += 1
        print(f"| {number} | still running | | | {SECONDS_MAX} | |", flush=True)
        continue
    took = time.monotonic() - began
    events = [json.loads(text) for text in ran.stdout.decode().splitlines()]
    turns = [event["data"] for event in events if event.get("topic") == "turn.completed"]
    calls = sum(event.get("topic") == "tool_call.result_processed" for event in events)
    if not turns:
        sys.stderr.write(ran.stderr.decode())
        if not events:
            sys.exit("error: the run did not begin")
    turn = turns[-1] if turns else {"stop_reason": f"exit code {ran.returncode}", "iterations": 0, "final_response": ""}
    reason, answer = turn["stop_reason"], turn["final_response"]
    without += not answer.strip()
    shown = " ".join(answer.split())[:70].replace("|", "/")
    steps = turn["iterations"]
    print(f"| {number} | {reason} | {steps} | {calls} | {took:.0f} | {shown} |", flush=True)
print(f"\n{runs - without} of {runs} ended with an answer")
sys.exit(1 if without else 0)
