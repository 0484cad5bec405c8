"""A tool of the fleet: every session whose agent allows `sdk_word_count` can call it. Ctrl-C ends it.

Needs `pip install "./sdk/python[tools]"` and a fleet of this directory (`ailoop up`). Then:

    ailoop tools try sdk_word_count --args '{"text": "one two"}'
    ailoop tools verify sdk_word_count

Start it twice: both replicas share the calls, and either may be restarted.
"""

from collections import Counter
from typing import Annotated

from ailoop.tool import Call, ToolError, serve, tool


@tool(effect="pure", timeout=30)  # it changes nothing, so a lost call may run again
async def sdk_word_count(
    text: Annotated[str, "The text to count in."],
    call: Call,
    most_frequent: Annotated[int, "How many of the most frequent words to name."] = 3,
) -> dict[str, object]:
    """Counts the words of a text, and names the most frequent ones. Use it instead of counting yourself."""
    words = text.lower().split()
    if not words:
        raise ToolError("the text is empty: there is nothing to count")  # the model reads this
    await call.progress(f"counting {len(words)} words")  # people see it, and the timeout starts again
    return {"words": len(words), "most_frequent": dict(Counter(words).most_common(most_frequent))}


serve(sdk_word_count)  # NATS_URL and NATS_CREDENTIALS name another server and user
