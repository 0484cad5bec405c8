"""The fleet of the tests: agents with tools and approvals, and keys with several scopes."""

import json

from clients import fleet

AGENTS = {
    "default_agent": "e",
    "tool_sets": {
        "desk": ["sdk_word_count", "sdk_slug", "delegate", "ask_user", "send_mail", "check_mail", "reply_mail"]
    },
    "agents": {
        "e": fleet.AGENTS["agents"]["e"]
        | {
            "tools": {
                "sets": ["desk"],
                "approvals": [{"tool": "refund_order", "ask": "always"}, {"tool": "send_invoice", "ask": "always"}],
            }
        },
        "r": fleet.AGENTS["agents"]["e"] | {"name": "Rita the Reader"},
    },
}


class Fleet(fleet.Fleet):
    """A fleet with two edges, of which the one with keys can be killed."""

    def __init__(self, ailoop, directory, model):
        super().__init__(ailoop, directory, model)
        (directory / "config/agents.yaml").write_text(json.dumps(AGENTS))

    def _make_key(self, name, scopes):
        return super()._make_key(name, [*scopes, "approve"] if "run" in scopes else scopes)

    def variables(self):
        """What the tests and examples read from their environment."""
        return {
            "AILOOP_URL": self.url,
            "AILOOP_API_KEY": self.key,
            "AILOOP_OBSERVER_KEY": self.observer_key,
            "AILOOP_OPEN_URL": self.open_url,
            "AILOOP_BINARY": str(self.ailoop),
            "AILOOP__NATS__URL": self.nats_url,
            "NATS_URL": self.nats_url,
        }
