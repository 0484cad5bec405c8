"""The NATS services protocol for one tool. nats.micro cannot say which calls a replica runs, so it is written out here."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .definition import Tool

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

QUEUE = "tools"


class Service:
    """Answers requests for the description and the state of a replica."""

    def __init__(self, client: "Client", tool: Tool, tenant: str, is_running: Callable[[str], bool]) -> None:
        self._client, self._tool, self._is_running = client, tool, is_running
        service_id = client.new_inbox().rpartition(".")[2]
        #: `<service name>.<service id>`: this replica among all services.
        self.instance = f"{tool.name}.{service_id}"
        self.requests = self.errors = self.nanoseconds = 0
        self.last_error = ""
        self._identity = {"name": tool.name, "id": service_id, "version": tool.version, "metadata": {}}
        self._endpoint = {"name": tool.name, "subject": f"ai_tool.{tenant}.{tool.name}", "queue_group": QUEUE}
        self._is_draining = False
        self._queries: list["Subscription"] = []

    async def subscribe(self) -> None:
        """Subscribes to the nine subjects of the protocol."""
        for verb in ("PING", "INFO", "STATS"):
            for subject in (f"$SRV.{verb}", f"$SRV.{verb}.{self._tool.name}", f"$SRV.{verb}.{self.instance}"):
                self._queries.append(await self._client.subscribe(subject, cb=self._answer))

    def begin_drain(self) -> None:
        """Is not found any more, but still says which calls run here."""
        self._is_draining = True

    async def _answer(self, message: "Msg") -> None:
        call = (message.headers or {}).get("Ailoop-Call")
        if not message.reply or (self._is_draining and call is None and ".PING." not in message.subject):
            return
        headers = None if call is None else {"Ailoop-Running": "1" if self._is_running(call) else "0"}
        body = self._describe(message.subject.split(".")[1])
        await self._client.publish(message.reply, json.dumps(body).encode(), headers=headers)

    def _describe(self, verb: str) -> dict[str, Any]:
        if verb == "PING":
            return self._identity | {"type": "io.nats.micro.v1.ping_response"}
        if verb == "INFO":
            endpoint: dict[str, Any] = self._endpoint | {"metadata": self._tool.metadata()}
            kind = {"type": "io.nats.micro.v1.info_response", "description": self._tool.description}
            return self._identity | kind | {"endpoints": [endpoint]}
        endpoint = self._endpoint | {
            "num_requests": self.requests,
            "num_errors": self.errors,
            "last_error": self.last_error,
            "processing_time": self.nanoseconds,
            "average_processing_time": self.nanoseconds // max(self.requests, 1),
        }
        return self._identity | {"type": "io.nats.micro.v1.stats_response", "endpoints": [endpoint]}
