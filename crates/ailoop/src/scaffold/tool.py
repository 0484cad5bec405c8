"""A tool of the fleet. An agent whose `tools` allow `{{name}}` can call it.

    pip install "<ailoop>/sdk/python[tools]"    # <ailoop> is a clone of the repository of ailoop
    python {{name}}.py            # beside a fleet: `ailoop up`; Ctrl-C ends it
    ailoop tools try {{name}} --args '{"text": "one two"}'
    ailoop tools verify {{name}}
"""

from typing import Annotated

from ailoop.tool import Call, ToolError, serve, tool


@tool(effect="pure", timeout=30)  # pure: it changes nothing, so a call that was lost may run again
async def {{name}}(text: Annotated[str, "The text to count in."], call: Call) -> dict[str, int]:
    """Counts the words of a text. Use it instead of counting yourself."""
    if not text.strip():
        raise ToolError("the text is empty: there is nothing to count")  # the model reads this
    await call.progress("counting")  # people see this
    return {"words": len(text.split())}


if __name__ == "__main__":
    serve({{name}})  # NATS_URL, else the fleet of this directory
