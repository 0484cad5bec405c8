"""What the programs of an operator have in common: words that are not known are refused, and output goes to the caller."""

import argparse
import json
import pathlib

from .manifests import Refused


class Parser(argparse.ArgumentParser):
    """A page that names a command that is not known has not been tried, so such a command must fail."""

    def error(self, message):
        raise Refused(f"this {self.prog.split()[0]} does not know this command: {message}")


class Commands:
    """Carries out one call of a program: `_verb` for each verb of its parser."""

    def __init__(self, server, request, client):
        self.server, self.cluster, self.request, self.client = server, server.cluster, request, client

    @staticmethod
    def parser():
        raise NotImplementedError

    def run(self):
        arguments = self.parser().parse_args(self.request["arguments"])
        getattr(self, "_" + arguments.verb.replace("-", "_"))(arguments)

    def write(self, text):
        self.client.sendall(json.dumps({"out": text}).encode() + b"\n")

    def print(self, text):
        self.write(f"{text}\n")

    @property
    def directory(self):
        return pathlib.Path(self.request["directory"])
