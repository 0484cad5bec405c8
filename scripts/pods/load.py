"""Sessions that run all the time, and the proof afterwards that none of their turns was lost or done twice."""

import dataclasses
import json
import threading
import time

import yaml

from .manifests import Refused

# Played by the model `rehearsal` for prompts of the load: a call of a tool, then an answer that repeats the prompt.
STEPS = """
- name: "load: write a mail"
  at: 1
  when: "'pods-load mail' in prompt"
  text: I write a mail.
  tool_calls:
    - name: send_mail
      arguments: {to: "{{ (prompt | trim | split(' '))[3] }}", subject: "{{ prompt | trim }}", text: "A mail."}
- name: "load: list sessions"
  at: 1
  when: "'pods-load list' in prompt"
  text: I list the sessions.
  tool_calls:
    - name: list_sessions
      arguments: {limit: 1}
- name: "load: answer"
  when: "'pods-load' in prompt"
  text: "Answer to {{ prompt | trim }}."
  signal: {status: TERMINATE, reason: The load is done.}
"""
TURNS = 3
MAILBOXES = ("a", "e", "p", "t", "d", "user")
PAUSE_SECONDS = 0.5
# A turn that takes longer is lost.
TURN_SECONDS_MAX = 120


def first_options(model="rehearsal"):
    """Options of the first turn of a session."""
    return "--agent", "d", "--model", model


def with_steps(documents):
    """The ConfigMaps that hold the script of the rehearsal, with the steps of the load before its own."""
    changed = []
    for document in documents:
        if document["kind"] == "ConfigMap" and "rehearsal.yaml" in document.get("data", {}):
            script = yaml.safe_load(document["data"]["rehearsal.yaml"])
            if not any(step["name"].startswith("load: ") for step in script["steps"]):
                script["steps"] = yaml.safe_load(STEPS) + script["steps"]
            changed.append(document | {"data": document["data"] | {"rehearsal.yaml": yaml.safe_dump(script, sort_keys=False)}})
    if not changed:
        raise Refused("no ConfigMap has the script of the rehearsal (rehearsal.yaml), which the load needs")
    return changed


@dataclasses.dataclass
class Turn:
    session: str
    prompt: str
    began: float
    ended: float
    failure: str = ""  # the error that the client got in place of an answer

    @property
    def is_answered(self):
        return self.ended != float("inf") and not self.failure

    @property
    def answer(self):
        return f"Answer to {self.prompt}."


class Load:
    """Workers that run one session after another by the command line, through the Service of the edge."""

    def __init__(self, cluster, client, ailoop, url, token, workers=4):
        self.cluster, self.client, self.ailoop = cluster, client, ailoop
        self.env = {"AILOOP_GRPC_URL": url, "AILOOP_TOKEN": token, "AILOOP_PLAINTEXT": "true"}
        self.turns, self._stop, self._lock = [], threading.Event(), threading.Lock()
        self.worker_count = workers
        self.models = ["rehearsal"]  # of the sessions, in turn
        self._workers = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(workers)]

    def __enter__(self):
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for worker in self._workers:
            worker.join()

    def command(self, *arguments, timeout=TURN_SECONDS_MAX):
        return self.cluster.exec_in_pod(self.client, [self.ailoop, *arguments], timeout, self.env)

    def _work(self, worker):
        number = 0
        while not self._stop.is_set():
            number += 1
            session = f"load-{worker}-{number}"
            mailbox = MAILBOXES[(number + worker) % len(MAILBOXES)]
            first = first_options(self.models[worker % len(self.models)])
            turns = [(f"pods-load mail to {mailbox} {session}-1", first)]
            turns += [(f"pods-load list {session}-{turn}", ()) for turn in range(2, TURNS + 1)]
            for prompt, settings in turns:
                is_answered = self.turn(session, prompt, settings)
                if self._stop.wait(PAUSE_SECONDS):
                    return
                if not is_answered:
                    break  # a person would look; this worker goes on with another session

    def turn(self, session, prompt, settings=()):
        """Sends a message and waits for its answer; gives whether it came. `settings` are options of `ailoop run`."""
        began, failure = time.monotonic(), ""
        turn = Turn(session, prompt, began, float("inf"))
        with self._lock:
            self.turns.append(turn)
        try:
            arguments = ["run", "--session", session, *settings, "--timeout", f"{TURN_SECONDS_MAX}s", prompt]
            code, output = self.command(*arguments, timeout=TURN_SECONDS_MAX + 10)
            if code:
                failure = f"exit code {code}: {output.strip()[-300:]}"
            elif turn.answer not in output:
                failure = f"another answer: {output.strip()[-300:]}"
        except Exception as error:  # pylint: disable=broad-except
            failure = repr(error)  # a turn whose client died is lost, whatever the reason
        turn.failure, turn.ended = failure, time.monotonic()
        return not failure

    def under_way(self, since):
        """Turns that ran at some time since then."""
        with self._lock:
            return [turn for turn in self.turns if turn.ended >= since]

    def verify(self):
        """Compares what clients saw with the transcripts: a `Verdict` for each turn, and the outcomes of tool calls."""
        verdicts, outcomes = [], {}
        for session in dict.fromkeys(turn.session for turn in self.turns):
            code, output = self.command("transcript", session, "--json")
            messages = [message for line in output.splitlines() for message in json.loads(line)["messages"]] if code == 0 else []
            for turn in (turn for turn in self.turns if turn.session == session):
                asked = sum(message["role"] == "user" and message["text"].strip() == turn.prompt for message in messages)
                answered = sum(message["role"] == "assistant" and turn.answer in message["text"] for message in messages)
                verdicts.append(Verdict(turn, judge(turn, asked, answered), f"asked {asked} times, answered {answered} times"))
            for message in messages:
                for call in message.get("tool_calls") or []:
                    outcomes.setdefault(call["tool"], []).append(call.get("outcome") or "none")
        return verdicts, outcomes


@dataclasses.dataclass
class Verdict:
    """What became of a turn."""

    turn: Turn
    word: str
    detail: str


def judge(turn, asked, answered):
    """`ok`, `refused` (an error for the client, and nothing happened), `unanswered` (done, but the client got an error), `lost`, `doubled`."""
    if asked > 1 or answered > 1:
        return "doubled"
    if asked == answered == 1:
        return "unanswered" if turn.failure else "ok"
    return "refused" if turn.failure and asked == answered == 0 else "lost"
