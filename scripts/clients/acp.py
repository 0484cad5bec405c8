"""What an editor does with `ailoop acp`, by the Python and npm packages of the Agent Client Protocol."""

import asyncio
import contextlib

import acp
from acp import schema

from .common import asking_fleet, expect, run_javascript
from .fleet import Failed

WAIT_SECONDS_MAX = 60
SLOW = "Take your time and say this slowly, word for word, so that there is time to break something meanwhile"


class Editor(acp.Client):
    """An editor that remembers what it is shown."""

    def __init__(self):
        self.updates, self.permissions, self.changed = [], [], asyncio.Event()
        self.choose = lambda options: options[0].option_id
        self.fill = None

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)
        self.changed.set()

    async def request_permission(self, session_id, tool_call, options, **_):
        self.permissions.append(tool_call)
        self.changed.set()
        option = self.choose(options)
        if option is None:
            await asyncio.sleep(WAIT_SECONDS_MAX)
        return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(outcome="selected", option_id=option))

    async def create_elicitation(self, message, mode, **_):
        return schema.AcceptElicitationResponse(action="accept", content=self.fill(message))

    def text(self, kind="agent_message_chunk"):
        """What the agent said."""
        chunks = [update for update in self.updates if update.session_update == kind]
        return "".join(chunk.content.text for chunk in chunks)

    def statuses(self):
        """The statuses of all calls, in order."""
        kinds = ("tool_call", "tool_call_update")
        return [update.status for update in self.updates if update.session_update in kinds and update.status]

    async def until(self, holds):
        """Waits until something is shown."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


def env_of_command(fleet):
    """The environment of an `ailoop acp` that uses the fleet."""
    return fleet.env | {"AILOOP_GRPC_URL": f"http://127.0.0.1:{fleet.edge_grpc_port}", "AILOOP_TOKEN": fleet.key}


@contextlib.asynccontextmanager
async def open_editor(fleet, forms=False):
    """An editor with its agent, after `initialize`."""
    editor, env = Editor(), env_of_command(fleet)
    agent = acp.spawn_agent_process(
        editor, str(fleet.ailoop), "acp", env=env, cwd=fleet.directory, use_unstable_protocol=True
    )
    async with agent as (connection, process):
        abilities = {"elicitation": {"form": {}}} if forms else {}
        abilities = schema.ClientCapabilities.model_validate(abilities)
        answer = await connection.initialize(protocol_version=1, client_capabilities=abilities)
        expect(answer.protocol_version == 1 and answer.agent_capabilities.load_session, answer)
        yield editor, connection, process


async def new_session(fleet, connection):
    """The id of a new session."""
    return (await connection.new_session(cwd=str(fleet.directory), mcp_servers=[])).session_id


async def ask(connection, session, text):
    """Sends a prompt and waits for its answer."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return await connection.prompt(session_id=session, prompt=[acp.text_block(text)])


def check(steps, **options):
    """A check in an editor of its own."""

    def run(fleet):
        async def steps_in_editor():
            async with open_editor(fleet, **options) as (editor, connection, process):
                return await steps(fleet, editor, connection, process)

        return asyncio.run(steps_in_editor())

    return run


async def settings(fleet, editor, connection, process):
    session = await connection.new_session(cwd=str(fleet.directory), mcp_servers=[])
    options = {option.id: option.current_value for option in session.config_options}
    return expect(options == {"agent": "e", "model": "scripted-model"}, options)


async def stream(fleet, editor, connection, process):
    session = await new_session(fleet, connection)
    answer = await ask(connection, session, "Hello slowly")
    pieces = [update for update in editor.updates if update.session_update == "agent_message_chunk"]
    expect(answer.stop_reason == "end_turn" and len(pieces) > 3, editor.updates)
    expect(editor.text().strip() == "Message 1 was: Hello slowly", editor.text())
    await ask(connection, session, "Again")
    expect("Message 2 was: Again" in editor.text(), editor.text())
    return f"{len(pieces)} pieces: {editor.text()!r}"


async def tool_call(fleet, editor, connection, process):
    await ask(connection, await new_session(fleet, connection), "Please list the files")
    expect(editor.statuses() == ["pending", "in_progress", "completed"], editor.updates)
    call = next(update for update in editor.updates if update.session_update == "tool_call")
    expect(call.kind == "search" and call.raw_input == {"path": "."}, call)
    return f"{call.title}: {editor.statuses()}"


async def permission(fleet, editor, connection, process):
    session = await new_session(fleet, connection)
    await ask(connection, session, "Please write a file")
    [asked] = editor.permissions
    expect(asked.raw_input == {"path": "note.txt", "content": "hello"}, asked)
    expect(editor.statuses() == ["pending", "in_progress", "completed"], editor.statuses())
    editor.choose = lambda options: next(option.option_id for option in options if option.kind == "reject_once")
    await ask(connection, session, "Please write a file")
    return expect(editor.statuses()[3:] == ["pending", "failed"], editor.statuses())


async def question_in_a_form(fleet, editor, connection, process):
    editor.fill = lambda message: {"answer": f"an answer to {message}"}
    await ask(connection, await new_session(fleet, connection), "Please ask me")
    return expect("an answer to Which colour?" in editor.text(), editor.text())


async def question_in_the_chat(fleet, editor, connection, process):
    session = await new_session(fleet, connection)
    answer = await ask(connection, session, "Please ask me")
    expect(answer.stop_reason == "end_turn" and "Which colour?" in editor.text(), editor.text())
    await ask(connection, session, "mauve")
    return expect("The tool says: mauve" in editor.text(), editor.text()[-60:])


async def cancel(fleet, editor, connection, process):
    session = await new_session(fleet, connection)
    prompt = asyncio.create_task(ask(connection, session, SLOW))
    await editor.until(lambda: "Take" in editor.text())
    await connection.cancel(session_id=session)
    answer = await prompt
    expect(answer.stop_reason == "cancelled" and "meanwhile" not in editor.text(), editor.text())
    editor.updates.clear()
    await ask(connection, session, "Something else")
    return expect(editor.text().strip() == "Message 2 was: Something else", editor.text())


async def cancel_at_a_permission(fleet, editor, connection, process):
    session = await new_session(fleet, connection)
    editor.choose = lambda options: None
    prompt = asyncio.create_task(ask(connection, session, "Please write a file"))
    await editor.until(lambda: editor.permissions)
    await connection.cancel(session_id=session)
    expect((await prompt).stop_reason == "cancelled", editor.updates)
    answer = await ask(connection, session, "Something else")
    expect(answer.stop_reason == "end_turn" and editor.statuses()[-1] == "failed", editor.updates)
    return expect("Something else" in editor.text(), editor.text())


async def edge_killed_in_a_prompt(fleet, editor, connection, process):
    session = await new_session(fleet, connection)
    prompt = asyncio.create_task(ask(connection, session, SLOW))
    await editor.until(lambda: "Take" in editor.text())
    await asyncio.to_thread(fleet.kill_edge)
    await asyncio.to_thread(fleet.start_edge)
    expect((await prompt).stop_reason == "end_turn", editor.updates)
    return expect(editor.text().strip() == f"Message 1 was: {SLOW}", editor.text())


async def load_after_a_kill(fleet, editor, connection, process):
    session = await new_session(fleet, connection)
    prompt = asyncio.create_task(ask(connection, session, SLOW))
    await editor.until(lambda: "Take" in editor.text())
    process.kill()
    prompt.cancel()
    async with open_editor(fleet) as (second, connection, _):
        await connection.load_session(cwd=str(fleet.directory), session_id=session, mcp_servers=[])
        expect(second.text("user_message_chunk") == SLOW, second.updates)
        await second.until(lambda: "meanwhile" in second.text())
        expect(second.text().strip() == f"Message 1 was: {SLOW}", second.text())
        await ask(connection, session, "Again")
        listed = await connection.list_sessions(cwd=str(fleet.directory))
        expect(session in [entry.session_id for entry in listed.sessions], listed)
        async with open_editor(fleet) as (third, connection, _):
            await connection.resume_session(cwd=str(fleet.directory), session_id=session, mcp_servers=[])
            expect(third.updates == [], third.updates)
            await ask(connection, session, "Third")
            return expect("Message 3 was: Third" in third.text(), third.text())


async def refusals(fleet, editor, connection, process):
    session = await new_session(fleet, connection)
    first = asyncio.create_task(ask(connection, session, "Hello slowly"))
    await editor.until(editor.text)
    seen = []
    unknown = connection.load_session(cwd="/", session_id="nobody", mcp_servers=[])
    for request in [ask(connection, session, "More"), ask(connection, "nobody", "More"), unknown]:
        try:
            await request
        except acp.RequestError as error:
            seen.append(error.data["code"])
    await first
    return expect(seen == ["not_now", "unknown_session", "unknown_session"], seen)


CHECKED = [
    ("new session with its settings", check(settings)),
    ("stream", check(stream)),
    ("tool call", check(tool_call)),
    ("permission", check(permission)),
    ("question in a form", check(question_in_a_form, forms=True)),
    ("question in the chat", check(question_in_the_chat)),
    ("cancel", check(cancel)),
    ("cancel at a permission", check(cancel_at_a_permission)),
    ("edge killed in a prompt", check(edge_killed_in_a_prompt)),
    ("load after a kill", check(load_after_a_kill)),
    ("refusals", check(refusals)),
]


def run_all(fleet):
    """Runs every check, each by its name."""
    seen = []
    for name, run in CHECKED:
        try:
            seen.append(f"{name}: {run(asking_fleet(fleet))}")
            print(f"    acp: {seen[-1][:160]}", flush=True)
        except Exception as error:
            raise Failed(f"acp: {name}") from error
    return f"{len(seen)} checks"


def javascript(given):
    """The driver of the npm package starts `ailoop acp` itself, and prints one line for each scenario."""
    fleet = asking_fleet(given)
    arguments = (str(fleet.ailoop), str(fleet.directory))
    return run_javascript("acp-js", "driver.mjs", *arguments, env=env_of_command(fleet)).replace("\n", "; ")


CHECKS = [
    ("acp: the Python client of the Agent Client Protocol", run_all),
    ("@agentclientprotocol/sdk: stream, tool, permission, cancel, load after a kill", javascript),
]
