"""The fleet of the working directory, without a fleet."""

import json
import os

import pytest

from ailoop import local_fleet
from ailoop.transport import Transport

RUN = {"pid": os.getpid(), "http": "http://127.0.0.1:1234", "nats": "nats://ailoop:secret@127.0.0.1:1", "token": "t"}


@pytest.fixture
def directory(tmp_path, monkeypatch):
    for name in ("AILOOP_URL", "AILOOP_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    return tmp_path


def write(directory, **changes):
    (directory / ".ailoop").mkdir(exist_ok=True)
    (directory / ".ailoop/run.json").write_text(json.dumps(RUN | changes))


def authorization(transport):
    return transport._headers.get("authorization")


def test_fleet_of_a_directory_above_is_found_with_its_token(directory):
    assert local_fleet.find() is None
    write(directory)
    transport = Transport()
    assert (transport.url, authorization(transport)) == ("http://127.0.0.1:1234", "Bearer t")


def test_token_goes_to_its_own_fleet_only(directory, monkeypatch):
    write(directory)
    assert authorization(Transport("http://127.0.0.1:1234/")) == "Bearer t"
    assert authorization(Transport("http://127.0.0.1:9")) is None
    assert authorization(Transport(api_key="mine")) == "Bearer mine"
    monkeypatch.setenv("AILOOP_URL", "https://ailoop.example.org")
    assert (Transport().url, authorization(Transport())) == ("https://ailoop.example.org", None)


@pytest.mark.parametrize(
    "changes",
    [
        {"pid": 2**22 + 1},
        {"one_session": True},
        {"pid": "x"},
        {"pid": 0},
        {"pid": -1},
        {"pid": 10**30},
        {"http": "https://agents.example.org"},
        {"nats": "nats://agents.example.org"},
    ],
)
def test_file_that_no_shared_fleet_keeps_is_ignored(directory, changes):
    write(directory, **changes)
    assert local_fleet.find() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to another user")
def test_file_of_another_user_is_ignored(directory):
    write(directory)
    os.chown(directory / ".ailoop", 65534, 65534)
    assert local_fleet.find() is None
