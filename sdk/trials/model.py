"""A scripted model: it calls the tool that the user's message is about, and tells its result."""

from clients import model

# A word of the message, the tool that it is about, and the arguments of the call.
CALLS = [
    ("weather", "weather", {"city": "Bonn"}),
    ("refund", "refund_order", {"order": "A-17", "euros": 40}),
    ("invoice", "send_invoice", {"customer": "Acme", "euros": 120}),
    ("count", "sdk_word_count", {"text": "one two three"}),
    ("slug", "sdk_slug", {"title": "Ten short programs"}),
    ("colleague", "delegate", {"agent": "r", "task": "Say hello"}),
    ("post", "send_mail", {"to": "user", "subject": "The report", "text": "It is ready."}),
    ("wrong", "weather", {"town": 3}),
    ("ask me", "ask_user", {"question": "Which colour?"}),
]
DONE = [("continuation", {"status": "TERMINATE", "reason": "The question is answered."})]


def reply(body):
    """The text and the calls that answer a request."""
    messages = body["messages"]
    user = [message for message in messages if message["role"] == "user"]
    asked = model.text_of(user[-1]["content"])
    offered = {tool["function"]["name"] for tool in body.get("tools", [])}
    if messages[-1]["role"] == "tool":
        return f"The tool says: {model.text_of(messages[-1]['content'])}", DONE
    for word, name, arguments in CALLS:
        if word in asked and name in offered:
            return "Let me look.", [(name, arguments)]
    return f"Message {len(user)} was: {asked}", DONE


model.reply = reply
ModelServer = model.ModelServer
