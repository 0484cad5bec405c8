"""Routes of the Gateway API: WebSockets and turns may last, and names are of one kind of route."""

from .refused import name_of, refuse_unless
from .workloads import of_kind


def check(documents):
    names = {}
    for document in of_kind(documents, "HTTPRoute", "GRPCRoute"):
        for hostname in document["spec"]["hostnames"]:
            other = names.setdefault(hostname, document)
            problem = f"{hostname} is a name of {name_of(other)} too, and a Gateway accepts one of them"
            refuse_unless(other["kind"] == document["kind"], name_of(document), problem, "use another name for gRPC")
    for document in of_kind(documents, "HTTPRoute"):
        for rule in document["spec"]["rules"]:
            paths = [match.get("path", {}).get("value") for match in rule["matches"]]
            limits = rule.get("timeouts", {})
            lasts = limits.get("request") == "0s" and limits.get("backendRequest", "0s") == "0s"
            problem = f"a WebSocket or a turn ends after {limits.get('request')}"
            refuse_unless(lasts, f"{name_of(document)}, {' '.join(paths)}", problem, "set timeouts.request: 0s")
