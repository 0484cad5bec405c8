"""Arize Phoenix on the loopback address, and what its API says about spans and sessions."""

import json
import urllib.error
import urllib.parse
import urllib.request

from .errors import Failed
from .processes import free_ports, wait_until

PROJECT = "default"
PAGE_SPANS = 500
SESSIONS_MAX = 100


class Phoenix:
    """A running Phoenix with an empty database below `directory`."""

    def __init__(self, processes, command, directory):
        self.port, self.grpc_port = free_ports(2)
        directory.mkdir()
        env = {
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(self.port),
            "PHOENIX_GRPC_PORT": str(self.grpc_port),
            "PHOENIX_WORKING_DIR": str(directory),
            # Nothing goes to the outside: no analytics, no fonts, no downloads.
            "PHOENIX_TELEMETRY_ENABLED": "false",
            "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
            "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
        }
        processes.start("phoenix", [command, "serve"], env, lambda _: self._answers())

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def otlp_endpoint(self):
        """Where it takes spans by OTLP over gRPC."""
        return f"http://127.0.0.1:{self.grpc_port}"

    def _answers(self):
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def _json(self, path, body=None):
        request = urllib.request.Request(f"{self.url}{path}", headers={"content-type": "application/json"})
        if body is not None:
            request.data = json.dumps(body).encode()
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def _query(self, query):
        answer = self._json("/graphql", {"query": query})
        if "errors" in answer:
            raise Failed(f"Phoenix refuses a query: {answer['errors'][0]['message']}")
        return answer["data"]

    def spans(self):
        """All spans, by its REST API."""
        spans, cursor = [], None
        while True:
            query = {"limit": PAGE_SPANS} | ({"cursor": cursor} if cursor else {})
            try:
                page = self._json(f"/v1/projects/{PROJECT}/spans?{urllib.parse.urlencode(query)}")
            except urllib.error.HTTPError as error:
                if error.code == 404:  # the project begins with its first span
                    return []
                raise
            spans += page["data"]
            cursor = page.get("next_cursor")
            if not cursor:
                return spans

    def project(self):
        """The project's id, its sessions with their token counts, and the tokens that each root span sums up."""
        query = f"""{{ projects {{ edges {{ node {{ id name
            sessions(first: {SESSIONS_MAX}) {{ edges {{ node {{
                sessionId numTraces tokenUsage {{ prompt completion }}
                traces(first: {SESSIONS_MAX}) {{ edges {{ node {{ traceId
                    rootSpan {{ name cumulativeTokenCountPrompt cumulativeTokenCountCompletion }} }} }} }}
            }} }} }} }} }} }} }}"""
        projects = [edge["node"] for edge in self._query(query)["projects"]["edges"]]
        found = [project for project in projects if project["name"] == PROJECT]
        if not found:
            raise Failed(f"Phoenix has no project {PROJECT!r}")
        return found[0]
