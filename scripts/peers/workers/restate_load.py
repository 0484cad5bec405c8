"""The load of Restate: each session is a request to its ingress, answered when the session has ended."""

import aiohttp
import uvloop
from agent import PROMPT
from sessions import arguments, keep_running


async def main():
    """Sends requests."""
    options = arguments()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def session():
            async with http.post(f"{options.server}/sessions/run", json=PROMPT) as response:
                response.raise_for_status()
                return await response.json()

        await keep_running(options, session)


if __name__ == "__main__":
    uvloop.run(main())
