"""Sessions as threads of LangGraph, in this process: a checkpoint follows each call of the model and of the tool."""

import contextlib
import operator
import uuid
from typing import Annotated, TypedDict

import aiohttp
import uvloop
from agent import PROMPT, first_messages, read_reply, request, run_tool
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from sessions import arguments, keep_running

# A checkpointer uses one connection at a time: more are of no use.
CONNECTIONS = 2


class State(TypedDict):
    """The transcript, of plain messages: langchain's classes are not measured."""

    messages: Annotated[list, operator.add]


def graph(options, http, checkpointer):
    """Model and tool in turn, until a reply calls no tool."""

    async def model(state):
        body, headers = request(state["messages"]), {"content-type": "application/json"}
        async with http.post(f"{options.model}/chat/completions", data=body, headers=headers) as response:
            response.raise_for_status()
            return {"messages": [read_reply(await response.read())]}

    async def tool(state):
        return {"messages": [run_tool(call) for call in state["messages"][-1]["tool_calls"]]}

    def next_node(state):
        return "tool" if "tool_calls" in state["messages"][-1] else END

    builder = StateGraph(State)
    builder.add_node("model", model)
    builder.add_node("tool", tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", next_node, ["tool", END])
    builder.add_edge("tool", "model")
    return builder.compile(checkpointer=checkpointer)


@contextlib.asynccontextmanager
async def checkpointer(server):
    """The checkpointer for a URL of Postgres, or for a file of SQLite."""
    if not server.startswith("postgresql://"):
        async with AsyncSqliteSaver.from_conn_string(server) as saver:
            await saver.setup()
            yield saver
        return
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(server, kwargs=settings, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield saver


async def main():
    """Runs graphs in this process, by asyncio."""
    options = arguments()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http, checkpointer(options.server) as saver:
        runnable = graph(options, http, saver)

        async def session():
            config = {"configurable": {"thread_id": uuid.uuid4().hex}}
            # Each checkpoint is stored before the next node runs.
            state = await runnable.ainvoke({"messages": first_messages(PROMPT)}, config, durability="sync")
            return sum(message["role"] == "assistant" for message in state["messages"])

        await keep_running(options, session)


if __name__ == "__main__":
    uvloop.run(main())
