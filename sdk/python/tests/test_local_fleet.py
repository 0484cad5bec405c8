"""The fleet of the working directory, without a fleet."""

import json
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from ailoop import local_fleet
from ailoop.transport import Transport

RUN = {"pid": os.getpid(), "http": "http://127.0.0.1:1234", "nats": "nats://ailoop:secret@127.0.0.1:1", "token": "t"}


def authorization(transport):
    return transport._headers.get("authorization")


class LocalFleet(unittest.TestCase):
    """A working directory below one with a file of a fleet."""

    def setUp(self):
        before = os.getcwd()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.addCleanup(os.chdir, before)
        unset = {name: value for name, value in os.environ.items() if name not in ("AILOOP_URL", "AILOOP_API_KEY")}
        environment = mock.patch.dict(os.environ, unset, clear=True)
        environment.start()
        self.addCleanup(environment.stop)
        self.directory = pathlib.Path(directory.name)
        (self.directory / "below").mkdir()
        os.chdir(self.directory / "below")

    def write(self, **changes):
        (self.directory / ".ailoop").mkdir(exist_ok=True)
        (self.directory / ".ailoop/run.json").write_text(json.dumps(RUN | changes))

    def test_fleet_of_a_directory_above_is_found_with_its_token(self):
        self.assertIsNone(local_fleet.find())
        self.write()
        transport = Transport()
        self.assertEqual((transport.url, authorization(transport)), ("http://127.0.0.1:1234", "Bearer t"))

    def test_token_goes_to_its_own_fleet_only(self):
        self.write()
        self.assertEqual(authorization(Transport("http://127.0.0.1:1234/")), "Bearer t")
        self.assertIsNone(authorization(Transport("http://127.0.0.1:9")))
        self.assertEqual(authorization(Transport(api_key="mine")), "Bearer mine")
        os.environ["AILOOP_URL"] = "https://ailoop.example.org"
        self.assertEqual((Transport().url, authorization(Transport())), ("https://ailoop.example.org", None))

    def test_file_that_no_shared_fleet_keeps_is_ignored(self):
        for changes in (
            {"pid": 2**22 + 1},
            {"one_session": True},
            {"pid": "x"},
            {"pid": 0},
            {"pid": -1},
            {"pid": 10**30},
            {"http": "https://agents.example.org"},
            {"nats": "nats://agents.example.org"},
        ):
            with self.subTest(changes):
                self.write(**changes)
                self.assertIsNone(local_fleet.find())

    @unittest.skipIf(os.geteuid() != 0, "only root gives a file to another user")
    def test_file_of_another_user_is_ignored(self):
        self.write()
        os.chown(self.directory / ".ailoop", 65534, 65534)
        self.assertIsNone(local_fleet.find())
