"""Tools that are served over NATS keep the protocol."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from ailoop import Client

AILOOP = os.environ["AILOOP_BINARY"]
FILE = pathlib.Path(__file__).with_name("served_tools.py")


def ailoop(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([AILOOP, *arguments], capture_output=True, text=True, check=False, timeout=120)


def wait_for(tool: str) -> None:
    """Waits until the fleet has found a tool."""
    deadline = time.monotonic() + 20
    with Client() as client:
        while tool not in [entry["name"] for entry in client.api.tools_list()["tools"]]:
            assert time.monotonic() < deadline, f"{tool} is not in the catalogue"
            time.sleep(0.1)


class ServedTools(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        # Two replicas: a call may go to either.
        cls.replicas = [subprocess.Popen([sys.executable, FILE]) for _ in range(2)]
        for replica in cls.replicas:
            cls.addClassCleanup(replica.kill)
        wait_for("py_pay")

    @classmethod
    def tearDownClass(cls) -> None:
        for replica in cls.replicas:
            replica.terminate()
        for replica in cls.replicas:
            assert replica.wait(15) == 0

    def test_each_tool_passes_verify(self) -> None:
        for name, arguments in {
            "py_words": {"text": "a b"}, "py_ring": {"seconds": 2.5}, "py_block": {"seconds": 0.1}, "py_pay": {"euros": 3},
        }.items():
            found = ailoop("tools", "verify", name, "--yes", "--json", "--args", json.dumps(arguments))
            with self.subTest(name):
                self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
                marks = {check["check"]: check["mark"] for check in json.loads(found.stdout)["checks"]}
                if name == "py_ring":
                    self.assertEqual((marks["cancel"], marks["progress"]), ("pass", "pass"))

    def test_idempotent_tool_of_one_replica_passes_verify(self) -> None:
        # The notes of this test are in the memory of a process, so that a second one would not find them.
        self.replicas.pop().terminate()
        found = ailoop("tools", "verify", "py_keep", "--yes", "--json")
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)

    def test_failures_are_errors_and_unknown_outcomes(self) -> None:
        unknown = ailoop("tools", "try", "py_pay", "--args", '{"euros": -1}')
        self.assertIn("the bank does not answer", unknown.stderr)
        self.assertIn("unknown", unknown.stderr)

    def test_running_call_ends_before_a_stopped_replica(self) -> None:
        alone = subprocess.Popen([sys.executable, "-c", _SLOW])
        self.addCleanup(alone.kill)
        wait_for("py_slow")
        pipe = subprocess.PIPE
        call = subprocess.Popen([AILOOP, "tools", "try", "py_slow", "--args", "{}"], stdout=pipe, stderr=pipe, text=True)
        assert call.stderr is not None and call.stdout is not None
        self.assertIn("begins", call.stderr.readline())
        alone.send_signal(signal.SIGTERM)
        self.assertEqual(call.stdout.read().strip(), "ended")
        call.wait(10)
        call.stderr.close()
        call.stdout.close()
        self.assertEqual(alone.wait(5), 0)


_SLOW = """
import asyncio
from ailoop.tool import Call, serve, tool

@tool(effect="at_most_once")
async def py_slow(call: Call) -> str:
    await call.progress("begins")
    await asyncio.sleep(2)
    return "ended"

serve(py_slow)
"""

if __name__ == "__main__":
    unittest.main()
