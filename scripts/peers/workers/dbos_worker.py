"""Sessions as workflows of DBOS, in this process: each call of the model and of the tool is a step.

Workflows and steps are plain functions in threads: those of asyncio took a tenth more CPU, because DBOS passes each
query to a thread.
"""

import http.client
import threading
import urllib.parse

from agent import PROMPT, first_messages, read_reply, request, run_tool
from dbos import DBOS
from sessions import arguments, keep_running_in_threads

OPTIONS = arguments()
MODEL = urllib.parse.urlsplit(OPTIONS.model)
OF_THREAD = threading.local()


def ask_model(messages):
    """The model's reply as a message. Each thread has a connection."""
    if not hasattr(OF_THREAD, "connection"):
        OF_THREAD.connection = http.client.HTTPConnection(MODEL.hostname, MODEL.port)
    headers = {"content-type": "application/json"}
    OF_THREAD.connection.request("POST", f"{MODEL.path}/chat/completions", request(messages), headers)
    response = OF_THREAD.connection.getresponse()
    body = response.read()
    if response.status != http.HTTPStatus.OK:
        raise RuntimeError(f"the model server answered with {response.status}: {body!r}")
    return read_reply(body)


@DBOS.step()
def model(messages):
    """A reply of the model."""
    return ask_model(messages)


@DBOS.step()
def tool(call):
    """A result of the tool."""
    return run_tool(call)


@DBOS.workflow()
def session(prompt):
    """A session; returns the number of its steps."""
    messages, steps = first_messages(prompt), 0
    while True:
        reply = model(messages)
        messages.append(reply)
        steps += 1
        if "tool_calls" not in reply:
            return steps
        messages += [tool(call) for call in reply["tool_calls"]]


def main():
    """Runs workflows by calling them: with a queue, each process would poll the database."""
    DBOS(config={
        "name": "peers",
        "system_database_url": OPTIONS.server,
        # Each process has an id of its own, or one would recover the workflows of another.
        "executor_id": f"worker-{OPTIONS.worker}",
        "application_version": "1",
        "log_level": "WARNING",
    })
    DBOS.launch()
    keep_running_in_threads(OPTIONS, lambda: session(PROMPT))
    DBOS.destroy()


if __name__ == "__main__":
    main()
