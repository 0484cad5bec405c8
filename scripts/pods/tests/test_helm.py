"""Releases: revisions, what an upgrade removes, and the order of hooks."""

import unittest

from pods import helm
from pods.manifests import Refused, key_of


def document(name, kind="ConfigMap", **annotations):
    named = {f"helm.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"kind": kind, "metadata": {"name": name, "annotations": named}}


class FakeCluster:
    """Objects by name, and what happened to them; every Job ends at once."""

    def __init__(self, job_succeeds=True):
        self.names, self.log, self.job_succeeds = {}, [], job_succeeds

    def lookup(self, _kind, name, _namespace):
        return self.names.get(name)

    def apply(self, documents, namespace, instead_of=()):
        documents = [documents] if isinstance(documents, dict) else documents
        for new in documents:
            self.names[new["metadata"]["name"]] = new | {"status": {"succeeded": self.job_succeeds}}
            self.log.append(f"apply {new['metadata']['name']}")
        for key in {key_of(old, namespace) for old in instead_of} - {key_of(new, namespace) for new in documents}:
            self.delete(*key)

    def delete(self, _kind, _namespace, name):
        del self.names[name]
        self.log.append(f"delete {name}")

    def owned(self, _owner):
        return []

    def report(self, _text):
        return


class Releases(unittest.TestCase):
    def setUp(self):
        self.cluster = FakeCluster()
        self.releases = helm.Releases(self.cluster)

    def test_hooks_run_by_weight_before_the_objects_of_their_event_alone(self):
        hooks = [document("b", "Job", hook="pre-upgrade,pre-rollback"), document("a", "Job", hook="pre-upgrade", hook_weight="2"),
                 document("c", hook="pre-upgrade", hook_weight="-1"), document("t", "Job", hook="test")]
        self.releases.install("x", "r", [document("o"), *hooks])
        self.assertEqual(self.cluster.log, ["apply o"])
        self.releases.upgrade("x", "r", [document("o"), *hooks])
        self.assertEqual(self.cluster.log[1:], ["apply c", "apply b", "apply a", "apply o"])
        self.releases.rollback("x", "r")
        self.assertEqual(self.cluster.log[5:], ["delete b", "apply b", "apply o"])

    def test_upgrade_removes_what_is_not_rendered_and_rollback_brings_it_back(self):
        self.releases.install("x", "r", [document("old"), document("both")])
        self.releases.upgrade("x", "r", [document("new"), document("both")])
        self.assertEqual(set(self.cluster.names), {"new", "both"})
        self.releases.rollback("x", "r")
        self.assertEqual(set(self.cluster.names), {"old", "both"})
        self.assertEqual([revision.status for revision in self.releases.history["x", "r"]], ["superseded", "superseded", "deployed"])
        self.releases.uninstall("x", "r")
        self.assertEqual(self.cluster.names, {})

    def test_failed_hook_leaves_the_objects_and_the_deployed_revision(self):
        self.releases.install("x", "r", [document("old")])
        self.cluster.job_succeeds = False
        with self.assertRaises(Refused):
            self.releases.upgrade("x", "r", [document("new"), document("h", "Job", hook="pre-upgrade", hook_delete_policy="hook-failed")])
        self.assertEqual(set(self.cluster.names), {"old"})
        self.assertEqual([revision.status for revision in self.releases.history["x", "r"]], ["deployed", "failed"])

    def test_hooks_that_succeeded_are_deleted_where_they_ask_for_it(self):
        self.releases.install("x", "r", [document("t", "Job", hook="test", hook_delete_policy="before-hook-creation,hook-succeeded")])
        self.releases.test("x", "r")
        self.assertEqual(self.cluster.log, ["apply t", "delete t"])

    def test_release_is_installed_once_and_not_over_objects_of_others(self):
        self.releases.install("x", "r", [document("o")])
        for name in ("r", "other"):
            with self.assertRaises(Refused):
                self.releases.install("x", name, [document("o")])
        with self.assertRaises(Refused):
            self.releases.upgrade("x", "absent", [])
