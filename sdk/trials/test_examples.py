"""Every program of examples/ runs against the fleet, and says what it should."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from ailoop import Client

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
#: Where scripts/sdk.sh compiles the programs in TypeScript.
COMPILED = os.environ.get("AILOOP_COMPILED_EXAMPLES", "")
LINES_MAX = 60


class Examples(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def command(self, name: str, *arguments: str) -> list[str]:
        if name.endswith(".py"):
            return [sys.executable, "-u", str(EXAMPLES / "python" / name), *arguments]
        if name.endswith(".sh"):
            return [str(EXAMPLES / "shell" / name), *arguments]
        if not COMPILED:
            self.skipTest("the programs in TypeScript are not compiled")
        return ["node", str(pathlib.Path(COMPILED) / name.replace(".ts", ".js")), *arguments]

    def run_program(self, name: str, *arguments: str, stdin: str = "") -> str:
        result = subprocess.run(
            self.command(name, *arguments), input=stdin, capture_output=True, text=True, timeout=60, cwd=self.directory,
            check=False,
        )
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def start(self, name: str, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            self.command(name, *arguments), stdout=subprocess.PIPE, text=True, cwd=self.directory
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def test_approve_calls(self) -> None:
        self.assertIn("sent an invoice of 120 € to Acme", self.run_program("approve_calls.py", "Send an invoice", stdin="y\n"))
        self.assertIn("invoice of 5 €", self.run_program("approve_calls.py", "Send an invoice", stdin="5\n"))
        self.assertIn("declined", self.run_program("approve_calls.py", "Send an invoice", stdin="n\n"))

    def test_serve_a_tool(self) -> None:
        served = self.start("serve_a_tool.py")
        with Client() as client:
            self.wait_for_tool(client, "sdk_word_count")
            self.assertIn('"words": 3', client.run("e", "count the words").text)
        verified = subprocess.run(
            [os.environ["AILOOP_BINARY"], "tools", "verify", "sdk_word_count", "--yes"], capture_output=True, text=True,
            check=False,
        )
        self.assertEqual(verified.returncode, 0, verified.stdout)
        served.send_signal(signal.SIGTERM)
        self.assertEqual(served.wait(15), 0)

    def wait_for_tool(self, client: Client, name: str) -> None:
        deadline = time.monotonic() + 20
        while name not in [tool["name"] for tool in client.api.tools_list()["tools"]]:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)

    def test_resume_after_crash(self) -> None:
        prompt = "Say slowly what a checkpoint is good for, and take some time for it"
        first = self.start("resume_after_crash.py", prompt)
        self.assertTrue(first.stdout.read(4))
        first.kill()
        key = (self.directory / "question.key").read_text()
        self.assertIn(f"Message 1 was: {prompt}", self.run_program("resume_after_crash.py", prompt))
        with Client() as client:
            self.assertEqual(client.session(key).get()["turn"], 1)
        self.assertFalse((self.directory / "question.key").exists())

    def test_nightly_batch(self) -> None:
        tasks = [f"Task {number} of {self.directory.name}, slowly" for number in range(12)]
        (self.directory / "tasks.txt").write_text("\n".join(tasks))
        first = self.start("nightly_batch.py", "tasks.txt")
        first.stdout.readline()
        first.kill()
        lines = [json.loads(line) for line in self.run_program("nightly_batch.py", "tasks.txt").splitlines()]
        self.assertEqual(sorted(line["task"] for line in lines), sorted(tasks))
        with Client() as client:
            titles = [one["title"] for one in client.api.session_list(limit=1000)["sessions"]]
            self.assertEqual(sum(self.directory.name in title for title in titles), len(tasks))
            self.assertEqual({client.session(line["session"]).get()["turn"] for line in lines}, {1})

    def test_colleagues(self) -> None:
        output = self.run_program("colleagues.py")
        self.assertIn("r answered: Message 1 was", output)
        self.assertIn("mail of e: The report", output)

    def test_openai_chat(self) -> None:
        output = self.run_program("openai_chat.py", stdin="Hello\nAgain\n\n")
        self.assertIn("Message 1 was: Hello", output)
        self.assertIn("Message 2 was: Again", output)

    def test_run_a_task(self) -> None:
        if not shutil.which("jq"):
            self.skipTest("there is no jq")
        output = self.run_program("run_a_task.sh", "Say hello")
        self.assertEqual(output.splitlines(), ["Message 1 was: Say hello ", "[completed, 4 tokens]"])

    def test_stream_a_turn(self) -> None:
        output = self.run_program("stream_a_turn.ts", stdin="Hello\nAgain\n\n")
        self.assertIn("Message 1 was: Hello", output)
        self.assertIn("Message 2 was: Again", output)

    def test_own_tool(self) -> None:
        self.assertIn('{"city":"Bonn","millimetres":12}', self.run_program("own_tool.ts"))

    def test_follow_sessions(self) -> None:
        follower = self.start("follow_sessions.ts")
        with Client() as client:
            session = client.start("e", "Say this slowly, so that it is seen")
            deadline = time.monotonic() + 30
            # Sessions of other tests may be among the lines.
            for line in follower.stdout:
                if line.startswith(f"{session.id[:8]} ") and "turn 1 ended: completed" in line:
                    break
                self.assertLess(time.monotonic(), deadline)

    def test_ten_programs_are_short_and_each_has_a_test(self) -> None:
        programs = sorted(EXAMPLES.glob("python/*.py")) + sorted(EXAMPLES.glob("typescript/*.ts"))
        programs += sorted(EXAMPLES.glob("shell/*.sh"))
        self.assertEqual(len(programs), 10)
        page = (EXAMPLES / "README.md").read_text()
        for program in programs:
            self.assertLessEqual(len(program.read_text().splitlines()), LINES_MAX, program)
            self.assertTrue(hasattr(self, f"test_{program.stem}"), program)
            self.assertTrue(re.search(rf"\({program.parent.name}/{re.escape(program.name)}\)", page), program)


if __name__ == "__main__":
    unittest.main()
