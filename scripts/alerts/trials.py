"""How the condition of each alert is made true, and how it ends."""

import contextlib
import dataclasses
import json
import shutil
import socket
import time

from . import model
from .client import Client, Traffic, nats_request
from .errors import Failed

HANGING = ["hang-a", "hang-b", "hang-c", "hang-d"]
MANY_PLACES = {"AILOOP__GATEWAY__CONCURRENCY": "64"}
TRIALS = {}


@dataclasses.dataclass
class Trial:
    """What makes an alert fire. `consequences` are other alerts that may fire too: the same event causes them."""

    alert: str
    make: object
    seconds_max: int
    consequences: frozenset


def trial(alert, seconds_max=60, consequences=()):
    """Registers a context manager: its body makes the condition true, and its end ends it."""

    def register(function):
        TRIALS[alert] = Trial(alert, contextlib.contextmanager(function), seconds_max, frozenset(consequences))
        return function

    return register


@dataclasses.dataclass
class World:
    """What a trial can use."""

    fleet: object
    server: object
    targets: object

    def client(self):
        return Client(self.fleet.edge())

    def start_turns(self, models, prompt="Hello"):
        with self.client() as client:
            return [client.start(prompt, model=name) for name in models]

    def wait_turns(self, sessions):
        with self.client() as client:
            for session in sessions:
                client.wait_turn(session)

    def traffic(self, models, threads=1, pause=0.2):
        """Turns one after another, of these models in turn."""
        names = iter(models * 10_000)

        def work(client):
            client.wait_turn(client.start("Hello", model=next(names)))

        return Traffic(self.fleet.edge(), work, threads, pause)


@contextlib.contextmanager
def hanging(world):
    world.server.hang()
    try:
        yield
    finally:
        world.server.release()


@trial("AiloopQueueWithoutWorkers", consequences=["AiloopServiceMissing", "AiloopProcessDown"])
def gateways_killed(world):
    world.fleet.kill("gateway-1", "gateway-2")
    sessions = world.start_turns(["steady"] * 4)
    try:
        yield
    finally:
        world.fleet.start("gateway-1", "gateway-2")
    world.wait_turns(sessions)


@trial("AiloopQueueOld", seconds_max=120)
def consumer_paused(world):
    """Gateways live and ask for items, and get none."""
    subject = "$JS.API.CONSUMER.PAUSE.AI_LOOP_MODEL.model"

    def pause(until):
        answer = nats_request(world.fleet.nats_address, subject, json.dumps(until).encode())
        if "error" in answer:
            raise Failed(f"{subject}: {answer}")

    pause({"pause_until": "2100-01-01T00:00:00Z"})
    try:
        sessions = world.start_turns(["steady"] * 3)
        yield
    finally:
        pause({})
    world.wait_turns(sessions)


@trial("AiloopWorkersSaturated")
def gateways_full(world):
    """No model has more than half of the places. So many calls wait that workers hardly ask for items."""
    with hanging(world):
        sessions = world.start_turns(HANGING * 15)
        yield
    world.wait_turns(sessions)


@trial("AiloopPlacesHeldByOne", consequences=["AiloopWorkersSaturated"])
def tool_hangs(world):
    with hanging(world):
        sessions = world.start_turns(["steady"] * 16, prompt="call alerts_hang")
        yield
    world.wait_turns(sessions)


@trial("AiloopDeadLetters")
def unreadable_command(world):
    nats_request(world.fleet.nats_address, "ai_loop.control.start.default.alerts-dead.c1", b"no JSON")
    yield


@trial("AiloopRedeliveries", seconds_max=120, consequences=["AiloopProcessRestarts", "AiloopProcessDown"])
def gateways_die_with_calls(world):
    """Each of two gateways dies in turn with calls, which go to the other one."""
    names = ("gateway-1", "gateway-2")
    world.fleet.restart(*names, **MANY_PLACES)
    time.sleep(3)
    sessions = []
    try:
        with hanging(world):
            sessions = world.start_turns(HANGING * 10)
            with killed_in_turn(world, names):
                yield
    finally:
        world.wait_turns(sessions)
        world.fleet.restart(*names)


def killed_in_turn(world, names):
    """Longer than the ack wait of 5 s apart, so that the other gateway has the items of the last one."""
    order = iter(names * 1_000)
    return Traffic(world.fleet.edge(), lambda client: world.fleet.restart(next(order), **MANY_PLACES), pause=7)


@trial("AiloopServiceMissing", consequences=["AiloopProcessDown"])
def composer_killed(world):
    world.fleet.kill("composer")
    try:
        yield
    finally:
        world.fleet.start("composer")


@trial("AiloopProcessDown")
def orchestrator_killed(world):
    world.fleet.kill("orchestrator-2")
    try:
        yield
    finally:
        world.fleet.start("orchestrator-2")


@trial("AiloopProcessRestarts")
def executor_restarts(world):
    for _ in range(3):
        world.fleet.restart("executor-2")
        time.sleep(2)
    yield


@trial("AiloopNatsDisconnected")
def nats_frozen(world):
    world.fleet.freeze_nats()
    try:
        yield
    finally:
        world.fleet.thaw_nats()


@trial("AiloopCellUnreachable")
def cell_away(world):
    here = {"name": "here", "nats": {"url": world.fleet.environment["AILOOP__NATS__URL"]}}
    # Nothing listens on the discard port.
    away = {"name": "away", "nats": {"url": "nats://127.0.0.1:9"}}
    configuration = world.fleet.directory / "config-with-cells"
    shutil.copytree(world.fleet.environment["AILOOP_CONFIG"], configuration)
    # JSON is YAML.
    (configuration / "ailoop.yaml").write_text(json.dumps({"edge": {"cells": [here, away]}}))
    world.fleet.restart("edge-2", AILOOP_CONFIG=str(configuration))
    try:
        yield
    finally:
        world.fleet.restart("edge-2")
        shutil.rmtree(configuration)


@trial("AiloopConfigBroken")
def file_broken(world):
    path = world.fleet.directory / "config/agents.yaml"
    text = path.read_text()
    path.write_text(text.replace("{", "{{", 1))
    try:
        yield
    finally:
        path.write_text(text)


@trial("AiloopVersionsMixed", seconds_max=90)
def old_version(world):
    """Binaries of two versions would take two builds: an exporter says what an old process would say."""
    exporter = model.Exporter('# TYPE ailoop_build_info gauge\nailoop_build_info{version="0.0.9",commit="0"} 1\n')
    world.targets.add(exporter.address)
    try:
        yield
    finally:
        world.targets.remove(exporter.address)
        exporter.shutdown()


@trial("AiloopTurnErrors")
def requests_refused_by_the_model(world):
    """The error is that of the session's request, so no other alert concerns it."""
    world.server.statuses["broken"] = 400
    with world.traffic(["broken", "steady"]):
        yield


@trial("AiloopModelErrors", consequences=["AiloopTurnErrors"])
def key_refused(world):
    world.server.statuses["locked"] = 401
    with world.traffic(["locked", "steady"], threads=2):
        yield


@trial("AiloopModelBreakerOpen", seconds_max=90, consequences=["AiloopModelErrors", "AiloopTurnErrors"])
def model_fails(world):
    world.server.statuses["failing"] = 503
    with world.traffic(["failing"], threads=4):
        try:
            yield
        finally:
            del world.server.statuses["failing"]
        # Each gateway needs a call that succeeds.
        time.sleep(5)


@trial("AiloopToolOutcomeUnknown")
def tool_drops_connection(world):
    world.wait_turns(world.start_turns(["steady"], prompt="call alerts_drop"))
    yield


@trial("AiloopGatesWaiting", seconds_max=90)
def approval_without_answer(world):
    (session,) = world.start_turns(["steady"], prompt="call alerts_ask")
    yield
    with world.client() as client:
        client.call("session.stop", session_id=session)


@trial("AiloopRequestsFail", seconds_max=90, consequences=["AiloopServiceMissing", "AiloopProcessDown"])
def starts_without_composer(world):
    world.fleet.kill("composer")
    refused = Traffic(world.fleet.edge(), lambda client: client.call("session.start", agent="w", prompt="Hello"), threads=8)
    with refused:
        try:
            yield
        finally:
            world.fleet.start("composer")


@trial("AiloopEdgeConnectionsRefused")
def connections_without_credentials(world):
    host, port = world.fleet.edge().rsplit(":", 1)
    with contextlib.ExitStack() as open_sockets:
        for _ in range(100):
            open_sockets.enter_context(socket.create_connection((host, int(port)), timeout=5))
        yield
