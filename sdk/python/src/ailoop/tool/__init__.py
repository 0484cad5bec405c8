"""Tools for the agents of a fleet: functions that are served over NATS. Needs nats-py: the extra `tools`.

    from ailoop.tool import serve, tool

    @tool(effect="pure")
    def word_count(text: str) -> dict[str, int]:
        \"\"\"Counts the words of a text. Use it instead of counting yourself.\"\"\"
        return {"words": len(text.split())}

    serve(word_count)

The effect class says what the fleet may do with a call whose process died: see docs/tools.md. `ailoop tools verify NAME`
checks a tool that runs.
"""

from .call import Call, ToolError
from .definition import Tool, tool
from .serve import serve, serve_async

__all__ = ["Call", "Tool", "ToolError", "serve", "serve_async", "tool"]
