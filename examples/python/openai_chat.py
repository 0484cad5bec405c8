"""A chat by the SDK of OpenAI: agents of the fleet are its models. Nothing of ailoop is needed here.

Needs `pip install openai` and a fleet (`ailoop up`). What this API cannot say, such as approvals and resumed streams,
the other examples show.
"""

import os
import uuid

from openai import OpenAI

url = os.environ.get("AILOOP_URL", "http://127.0.0.1:7070")
client = OpenAI(base_url=f"{url}/openai/v1", api_key=os.environ.get("AILOOP_API_KEY", "none"))
agent = next(iter(client.models.list())).id

# With this header, each request is a turn of one session, which remembers the messages.
headers = {"X-Ailoop-Session": uuid.uuid4().hex}
print(f"Chat with {agent}. An empty line ends it.")
while prompt := input("> ").strip():
    messages = [{"role": "user", "content": prompt}]
    stream = client.chat.completions.create(model=agent, messages=messages, stream=True, extra_headers=headers)
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            print(chunk.choices[0].delta.content, end="", flush=True)
    print()
