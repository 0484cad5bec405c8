"""Compares what Phoenix has with the logs of the sessions. Pure: the tests plant errors here."""

import collections
import dataclasses

# Findings beyond this number are only counted.
FINDINGS_MAX = 20
# Spans of one delivery, below the spans of their call.
TRIES = {"chat": "POST", "execute_tool": "call"}
USAGE = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
COUNTED = ("llm.token_count.prompt", "llm.token_count.completion")


@dataclasses.dataclass(frozen=True)
class Turn:
    """A turn that ended, as the log has it."""

    session: str
    number: int
    trace_id: str
    steps: int
    tokens: tuple  # of requests and of replies

    def __str__(self):
        return f"turn {self.number} of {self.session}"


@dataclasses.dataclass(frozen=True)
class Span:
    """A span as Phoenix gives it, with flat attributes."""

    trace_id: str
    id: str
    parent: str | None
    name: str
    kind: str
    attributes: dict

    @property
    def operation(self):
        """The first word of its name, such as `chat`."""
        return self.name.partition(" ")[0]

    def __str__(self):
        return f"{self.name or 'a span without a name'} ({self.id})"


def turns(session, lines):
    """The turns of a session that ended, from the lines of `ailoop export`. The first line is no commit."""
    traces, ended = {}, []
    for line in lines[1:]:
        for event in line["commit"]["events"]:
            data = event.get("data", {})
            if event["type"] == "turn.started":
                traces[data["turn"]] = data["traceparent"].split("-")[1]
            if event["type"] == "turn.completed":
                usage = data["spent"]["usage"]
                tokens = (usage["input"], usage["output"])
                ended.append(Turn(session, data["turn"], traces[data["turn"]], data["iterations"], tokens))
    return ended


def flat(attributes, prefix=""):
    """Attributes with dots in their names, whether Phoenix gives them so or as nested objects."""
    found = {}
    for name, value in attributes.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def read(span):
    """A span of Phoenix's REST API."""
    context = span["context"]
    attributes = flat(span["attributes"])
    return Span(
        context["trace_id"], context["span_id"], span["parent_id"], span["name"], span["span_kind"], attributes
    )


@dataclasses.dataclass
class Report:
    """What was counted, and what is wrong."""

    project: str
    turns: int
    spans: int
    requests: int
    redelivered: collections.Counter
    tokens: tuple
    sessions: int
    findings: list
    taken_over: str | None = None  # trace of a turn whose gateway was killed

    def text(self):
        """The lines that a person reads."""
        taken = ", ".join(f"{count} by the next {worker}" for worker, count in sorted(self.redelivered.items()))
        lines = [
            f"phoenix: {self.turns} turns in {self.sessions} sessions, {self.spans} spans",
            f"  taken over: {taken or 'nothing'}",
            f"  tokens of the log: {self.tokens[0]} in, {self.tokens[1]} out",
            f"  traces of clients' requests, each with one span: {self.requests}",
        ]
        if not self.findings:
            lines += [
                "  each turn is one trace with one root: 0 orphans, 0 spans without a name, 0 turns without an agent",
                "  tokens are integers, and the same in spans, in Phoenix's sums and in the log",
            ]
        lines += [f"  finding: {finding}" for finding in self.findings[:FINDINGS_MAX]]
        if len(self.findings) > FINDINGS_MAX:
            lines.append(f"  and {len(self.findings) - FINDINGS_MAX} findings more")
        return "\n".join(lines)


def check(expected, spans, project):
    """The report about `expected` turns, the spans of the REST API and the project of the GraphQL API."""
    spans = [read(span) for span in spans]
    traces = collections.defaultdict(list)
    for span in spans:
        traces[span.trace_id].append(span)
    sessions = {edge["node"]["sessionId"]: edge["node"] for edge in project["sessions"]["edges"]}
    findings = list(findings_of_spans(spans, traces))
    for turn in expected:
        found = traces.pop(turn.trace_id, [])
        findings += [f"{turn}: {finding}" for finding in findings_of_turn(turn, found, sessions.get(turn.session))]
    findings += findings_of_sessions(expected, sessions)
    for trace_id, others in traces.items():
        if len(others) > 1 or "rpc.method" not in others[0].attributes:
            findings.append(f"the trace {trace_id} belongs to no turn: {', '.join(span.name for span in others)}")
    redelivered = collections.Counter(
        span.attributes.get("ailoop.closed_by") for span in spans if span.name == "redelivered"
    )
    findings += [f"no killed {worker} was taken over" for worker in ("gateway", "executor") if not redelivered[worker]]
    taken_over = [
        span.trace_id for span in spans
        if span.name == "redelivered" and span.attributes.get("ailoop.closed_by") == "gateway"
    ]
    return Report(
        project=project["id"], turns=len(expected), spans=len(spans), requests=len(traces), redelivered=redelivered,
        tokens=total(turn.tokens for turn in expected), sessions=len(sessions), findings=findings,
        taken_over=min(taken_over, default=None),
    )


def total(pairs):
    """The sums of pairs."""
    pairs = list(pairs)
    return sum(first for first, _ in pairs), sum(second for _, second in pairs)


def findings_of_spans(spans, traces):
    """What is wrong with spans, whatever they are about."""
    for span_id, count in collections.Counter(span.id for span in spans).items():
        if count > 1:
            yield f"the span {span_id} is there {count} times"
    ids = {trace_id: {span.id for span in found} for trace_id, found in traces.items()}
    for span in spans:
        if not span.name.strip() or span.name != span.name.strip():
            yield f"{span} has no whole name"
        if span.parent and span.parent not in ids[span.trace_id]:
            yield f"{span} is an orphan: its parent {span.parent} is not there"


def findings_of_turn(turn, spans, session):
    """What is wrong with the trace of a turn."""
    roots = [span for span in spans if not span.parent]
    if len(roots) != 1 or roots[0].operation != "invoke_agent":
        yield f"its roots are {[span.name for span in roots]}, and not one invoke_agent"
        return
    root, attributes = roots[0], roots[0].attributes
    for name in ("gen_ai.agent.id", "gen_ai.agent.name"):
        if not attributes.get(name):
            yield f"{root} has no {name}"
    if root.name != f"invoke_agent {attributes.get('gen_ai.agent.id')}":
        yield f"{root} is not named after its agent"
    if attributes.get("ailoop.turn") != turn.number:
        yield f"{root} is about turn {attributes.get('ailoop.turn')}"
    kinds = {"invoke_agent": "AGENT", "chat": "LLM", "execute_tool": "TOOL"}
    for span in spans:
        if span.kind != kinds.get(span.operation, span.kind):
            yield f"{span} is of kind {span.kind} to Phoenix, and not {kinds[span.operation]}"
    chats = [span for span in spans if span.operation == "chat"]
    if len(chats) != turn.steps:
        yield f"it has {len(chats)} spans of model calls for {turn.steps} steps"
    parents = {(span.parent, span.operation) for span in spans}
    for span in spans:
        if span.operation in TRIES and (span.id, TRIES[span.operation]) not in parents:
            yield f"{span} has no span {TRIES[span.operation]} below it"
    yield from findings_of_tokens(turn, root, chats, session)


def findings_of_tokens(turn, root, chats, session):
    """Whether tokens are whole numbers, and add up to those of the log."""
    for span, names in [(root, USAGE), *((chat, USAGE + COUNTED) for chat in chats)]:
        for name in names:
            if type(span.attributes.get(name)) is not int:  # pylint: disable=unidiomatic-typecheck
                yield f"{name} of {span} is {span.attributes.get(name)!r}, and no integer"
                return
    if (own := tuple(root.attributes[name] for name in USAGE)) != turn.tokens:
        yield f"{root} has {own} tokens, and the log {turn.tokens}"
    if (summed := total(tuple(chat.attributes[name] for name in COUNTED) for chat in chats)) != turn.tokens:
        yield f"its model calls have {summed} tokens, and the log {turn.tokens}"
    traces = {} if session is None else {edge["node"]["traceId"]: edge["node"] for edge in session["traces"]["edges"]}
    if turn.trace_id not in traces:
        yield f"Phoenix's session {turn.session} does not have its trace"
        return
    sums = traces[turn.trace_id]["rootSpan"]
    summed = (sums["cumulativeTokenCountPrompt"], sums["cumulativeTokenCountCompletion"]) if sums else None
    if summed != turn.tokens:
        yield f"Phoenix sums up {summed} tokens, and the log has {turn.tokens}"


def findings_of_sessions(expected, sessions):
    """Whether Phoenix's sessions are ours, with the tokens of their turns."""
    by_session = collections.defaultdict(list)
    for turn in expected:
        by_session[turn.session].append(turn.tokens)
    for unknown in sorted(set(sessions) - set(by_session)):
        yield f"Phoenix has a session {unknown!r} that is not ours"
    for name, tokens in by_session.items():
        if name not in sessions:
            yield f"Phoenix has no session {name!r}"
            continue
        usage = sessions[name]["tokenUsage"]
        if (usage["prompt"], usage["completion"]) != total(tokens):
            yield f"Phoenix's session {name} has {usage} tokens, and its log {total(tokens)}"
