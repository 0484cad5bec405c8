"""Planted errors: each must be found in spans that are otherwise complete."""

import copy
import unittest

from phoenix_check import verify

TOKENS = (1900, 40)


def exported(trace_id):
    """The log of a session with one turn, as far as the check reads it."""
    spent = {"usage": {"input": TOKENS[0], "output": TOKENS[1]}}
    started = {"type": "turn.started", "data": {"turn": 1, "traceparent": f"00-{trace_id}-00000000000000aa-01"}}
    completed = {"type": "turn.completed", "data": {"turn": 1, "iterations": 2, "spent": spent}}
    return [{"format": "ailoop"}, {"commit": {"events": [started]}}, {"commit": {"events": [completed]}}]


def span(trace_id, span_id, parent, name, kind="UNKNOWN", **attributes):
    """A span as the REST API gives it."""
    attributes = {name.replace("__", "."): value for name, value in attributes.items()}
    context = {"trace_id": trace_id, "span_id": span_id}
    return {"context": context, "parent_id": parent, "name": name, "span_kind": kind, "attributes": attributes}


def chat(span_id, tokens):
    """A model call."""
    usage = {"gen_ai__usage__input_tokens": tokens[0], "gen_ai__usage__output_tokens": tokens[1]}
    counted = {"llm": {"token_count": {"prompt": tokens[0], "completion": tokens[1]}}}
    return span("t", span_id, "root", "chat scripted", "LLM", **usage, **counted)


def complete():
    """Spans and the project of one turn, whose gateway and executor were killed."""
    root = span(
        "t", "root", None, "invoke_agent e", "AGENT",
        gen_ai__agent__id="e", gen_ai__agent__name="Eamonn", ailoop__turn=1,
        gen_ai__usage__input_tokens=TOKENS[0], gen_ai__usage__output_tokens=TOKENS[1],
    )
    spans = [
        root,
        chat("chat-1", (900, 20)),
        span("t", "request-1", "chat-1", "POST"),
        span("t", "taken-1", "chat-1", "redelivered", ailoop__closed_by="gateway"),
        span("t", "tool", "root", "execute_tool look_up", "TOOL"),
        span("t", "try", "tool", "call look_up", "TOOL"),
        span("t", "taken-2", "tool", "redelivered", ailoop__closed_by="executor"),
        chat("chat-2", (1000, 20)),
        span("t", "request-2", "chat-2", "POST"),
        span("edge", "start", None, "session.start", rpc__method="session.start"),
    ]
    sums = {"cumulativeTokenCountPrompt": float(TOKENS[0]), "cumulativeTokenCountCompletion": float(TOKENS[1])}
    session = {
        "sessionId": "s", "numTraces": 2, "tokenUsage": {"prompt": float(TOKENS[0]), "completion": float(TOKENS[1])},
        "traces": {"edges": [{"node": {"traceId": "t", "rootSpan": sums}}]},
    }
    return spans, {"id": "p", "sessions": {"edges": [{"node": session}]}}


def report(plant=lambda spans, session: None):
    """The report after `plant` has changed spans or the session."""
    spans, project = complete()
    plant(spans, project["sessions"]["edges"][0]["node"])
    return verify.check(verify.turns("s", exported("t")), spans, project)


def named(spans, name):
    """The first span of that name."""
    return next(span for span in spans if span["name"] == name)


def without(name):
    """Drops the first span of a name."""
    return lambda spans, _: spans.remove(named(spans, name))


def attribute(span_name, name, value):
    """Changes an attribute."""
    return lambda spans, _: named(spans, span_name)["attributes"].update({name: value})


PLANTED = [
    ("the turn's span was not sent", without("invoke_agent e"), "orphan"),
    ("a model call was not sent", without("chat scripted"), "1 spans of model calls for 2 steps"),
    ("a request was not sent", without("POST"), "has no span POST below it"),
    ("a try was not sent", without("call look_up"), "has no span call below it"),
    ("a second root", lambda spans, _: named(spans, "POST").update(parent_id=None), "its roots are"),
    ("a parent of another trace", lambda spans, _: named(spans, "POST").update(parent_id="start"), "orphan"),
    ("a span twice", lambda spans, _: spans.append(copy.deepcopy(spans[1])), "2 times"),
    ("no name", lambda spans, _: named(spans, "POST").update(name=""), "has no whole name"),
    ("half a name", lambda spans, _: named(spans, "call look_up").update(name="call "), "has no whole name"),
    ("no agent", lambda spans, _: spans[0]["attributes"].pop("gen_ai.agent.name"), "has no gen_ai.agent.name"),
    ("another turn", attribute("invoke_agent e", "ailoop.turn", 2), "is about turn 2"),
    ("tokens as a text", attribute("chat scripted", "gen_ai.usage.input_tokens", "900"), "no integer"),
    ("other tokens", attribute("invoke_agent e", "gen_ai.usage.input_tokens", 1901), "1901"),
    ("another kind", lambda spans, _: named(spans, "chat scripted").update(span_kind="CHAIN"), "of kind CHAIN"),
    ("a trace of nobody", lambda spans, _: spans.append(span("x", "x", None, "POST")), "belongs to no turn"),
    ("no kill", without("redelivered"), "no killed gateway"),
    ("another session", lambda _, session: session.update(sessionId="z"), "no session 's'"),
    ("tokens of the root twice", lambda _, session: session["tokenUsage"].update(prompt=3800.0), "and its log"),
    ("another sum", lambda _, session: session["traces"]["edges"][0]["node"].update(rootSpan=None), "sums up None"),
    ("a session without the trace", lambda _, session: session["traces"]["edges"].clear(), "does not have its trace"),
]


class Verify(unittest.TestCase):
    def test_complete_spans_have_no_findings(self):
        result = report()
        self.assertEqual(result.findings, [])
        self.assertEqual((result.turns, result.spans, result.requests, result.taken_over), (1, 10, 1, "t"))
        self.assertIn("0 orphans", result.text())

    def test_planted_errors_are_found(self):
        for what, plant, finding in PLANTED:
            with self.subTest(what):
                result = report(plant)
                self.assertTrue(any(finding in found for found in result.findings), result.findings)
                self.assertNotIn("0 orphans", result.text())


if __name__ == "__main__":
    unittest.main()
