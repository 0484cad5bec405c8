"""A `helm` for a cluster of this runner: the real helm renders a chart, and releases and hooks are carried out here.

`helm install` and `helm upgrade` need an API server, which there is not.
"""

import argparse
import copy
import dataclasses
import subprocess
import time

from . import commands, manifests
from .manifests import Refused, key_of

# helm's own --timeout.
HOOK_SECONDS_MAX = 300
FINAL = {"Succeeded": True, "Failed": False}
# Options that say how a chart is rendered, as the real helm knows them.
RENDERING = ("--values", "--set", "--set-file")


def real(directory, *arguments, text=""):
    """The output of the real helm."""
    done = subprocess.run(["helm", *arguments], cwd=directory, input=text, capture_output=True, text=True)
    if done.returncode:
        raise Refused(done.stderr.strip())
    return done.stdout


def annotation(document, name, default=""):
    return (document["metadata"].get("annotations") or {}).get(f"helm.sh/{name}", default)


def words(document, name, default=""):
    return {word.strip() for word in annotation(document, name, default).split(",") if word.strip()}


def hooks_of(documents, event):
    """The hooks of an event, in the order in which they run."""
    found = [document for document in documents if event in words(document, "hook")]
    return sorted(found, key=lambda hook: (int(annotation(hook, "hook-weight", "0")), hook["metadata"]["name"]))


@dataclasses.dataclass
class Revision:
    """What a chart was rendered to, hooks included."""

    documents: list
    status: str = "failed"  # until it is deployed

    @property
    def objects(self):
        return [document for document in self.documents if not words(document, "hook")]


class Releases:
    """The releases of a cluster, and what was installed by each of their revisions."""

    def __init__(self, cluster):
        self.cluster, self.history = cluster, {}

    def install(self, namespace, name, documents):
        if (namespace, name) in self.history:
            raise Refused("INSTALLATION FAILED: cannot reuse a name that is still in use")
        for key in (key_of(document, namespace) for document in documents if not words(document, "hook")):
            if self.cluster.lookup(key[0], key[2], key[1]):
                raise Refused(f'INSTALLATION FAILED: {key[0]} "{key[2]}" exists and cannot be imported into the current release')
        self.history[namespace, name] = []
        return self._add(namespace, name, documents, "install")

    def upgrade(self, namespace, name, documents):
        self.revisions(namespace, name)
        return self._add(namespace, name, documents, "upgrade")

    def rollback(self, namespace, name, number=None):
        """Goes back to a revision, by default the one before the last; this makes another revision."""
        revisions = self.revisions(namespace, name)
        number = number or len(revisions) - 1
        if not 1 <= number <= len(revisions):
            raise Refused("release has no such revision")
        return self._add(namespace, name, revisions[number - 1].documents, "rollback")

    def uninstall(self, namespace, name):
        revision = self.deployed(namespace, name)
        self._run_hooks(namespace, revision.documents, "pre-delete")
        self.cluster.apply([], namespace, instead_of=revision.objects)
        self._run_hooks(namespace, revision.documents, "post-delete")
        del self.history[namespace, name]

    def test(self, namespace, name):
        self._run_hooks(namespace, self.deployed(namespace, name).documents, "test")

    def revisions(self, namespace, name):
        if (namespace, name) not in self.history:
            raise Refused("release: not found")
        return self.history[namespace, name]

    def deployed(self, namespace, name):
        found = [revision for revision in self.revisions(namespace, name) if revision.status == "deployed"]
        if not found:
            raise Refused(f'"{name}" has no deployed releases')
        return found[-1]

    def _add(self, namespace, name, documents, action):
        """Runs an action with its hooks; a failed one leaves the revision before as the deployed one."""
        old = [] if action == "install" else self.deployed(namespace, name).objects
        revisions, revision = self.history[namespace, name], Revision(documents)
        revisions.append(revision)
        self._run_hooks(namespace, documents, f"pre-{action}")
        # The cluster changes what it gets, and a rollback must find the documents as they were.
        self.cluster.apply(copy.deepcopy(revision.objects), namespace, instead_of=old)
        self._run_hooks(namespace, documents, f"post-{action}")
        for other in revisions:
            other.status = "superseded" if other.status == "deployed" else other.status
        revision.status = "deployed"
        return len(revisions)

    def _run_hooks(self, namespace, documents, event):
        ran = []
        for hook in hooks_of(documents, event):
            kind, of, name = key_of(hook, namespace)
            policies = words(hook, "hook-delete-policy", "before-hook-creation")
            if "before-hook-creation" in policies and self.cluster.lookup(kind, name, of):
                self.cluster.delete(kind, of, name)
            self.cluster.report(f"hook {event}: {kind} {name}")
            self.cluster.apply(copy.deepcopy(hook), namespace)
            failure = self._wait_for_end(kind, of, name)
            if failure:
                if "hook-failed" in policies:
                    self.cluster.delete(kind, of, name)
                raise Refused(f"{event} hooks failed: {kind} {name}: {failure}")
            ran.append((policies, (kind, of, name)))
        for key in [key for policies, key in ran if "hook-succeeded" in policies]:
            self.cluster.delete(*key)

    def _wait_for_end(self, kind, namespace, name):
        """What went wrong, or nothing; only Jobs and Pods are waited for."""
        key, deadline = (kind, namespace, name), time.monotonic() + HOOK_SECONDS_MAX
        while kind in ("Job", "Pod"):
            pods = self.cluster.owned(key)
            if kind == "Job":
                succeeded = self.cluster.lookup(kind, name, namespace).get("status", {}).get("succeeded")
            else:
                succeeded = next((FINAL.get(pod.phase) for pod in pods), None)
            if succeeded is not None:
                return "" if succeeded else "failed: " + "".join(self.cluster.logs(pod) for pod in pods)[-500:]
            if time.monotonic() > deadline:
                return f"timed out after {HOOK_SECONDS_MAX} s"
            time.sleep(0.1)
        return ""


class Commands(commands.Commands):
    """Carries out the commands of one call."""

    @staticmethod
    def parser():
        top = commands.Parser(prog="helm", add_help=False)
        top.add_argument("-n", "--namespace", default="default")
        verbs = top.add_subparsers(dest="verb", required=True, parser_class=commands.Parser)

        def verb(name, *positional):
            made = verbs.add_parser(name, add_help=False)
            made.add_argument("-n", "--namespace", default=argparse.SUPPRESS)
            for argument in positional:
                made.add_argument(argument)
            return made

        for name in ("install", "upgrade"):
            rendered = verb(name, "name", "chart")
            rendered.add_argument("-f", "--values", action="append", default=[])
            for option in RENDERING[1:]:
                rendered.add_argument(option, action="append", default=[])
        verb("rollback", "name").add_argument("revision", type=int, nargs="?")
        verb("test", "name")
        verb("uninstall", "name")
        # These two need no cluster, and the real helm carries them out.
        for name in ("template", "show"):
            verbs.add_parser(name, add_help=False).add_argument("words", nargs=argparse.REMAINDER)
        return top

    def _render(self, arguments, *more):
        options = [f"{option}={value}" for option in RENDERING for value in getattr(arguments, option[2:].replace("-", "_"))]
        command = ["template", arguments.name, arguments.chart, "--namespace", arguments.namespace, *options, *more]
        return manifests.read(real(self.directory, *command, text=self.request["input"]))

    def _done(self, arguments, revision):
        self.print(f"NAME: {arguments.name}\nNAMESPACE: {arguments.namespace}\nSTATUS: deployed\nREVISION: {revision}")

    def _install(self, arguments):
        documents = self._render(arguments)
        self._done(arguments, self.server.releases.install(arguments.namespace, arguments.name, documents))

    def _upgrade(self, arguments):
        documents = self._render(arguments, "--is-upgrade")
        self._done(arguments, self.server.releases.upgrade(arguments.namespace, arguments.name, documents))

    def _rollback(self, arguments):
        self.server.releases.rollback(arguments.namespace, arguments.name, arguments.revision)
        self.print("Rollback was a success! Happy Helming!")

    def _test(self, arguments):
        self.server.releases.test(arguments.namespace, arguments.name)
        self.print(f"NAME: {arguments.name}\nPhase: Succeeded")

    def _uninstall(self, arguments):
        self.server.releases.uninstall(arguments.namespace, arguments.name)
        self.print(f'release "{arguments.name}" uninstalled')

    def _template(self, arguments):
        self.write(real(self.directory, arguments.verb, *arguments.words, text=self.request["input"]))

    _show = _template
