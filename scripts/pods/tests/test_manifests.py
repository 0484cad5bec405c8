"""Environment, selectors and quantities."""

import unittest
from types import SimpleNamespace

from pods import manifests

POD = SimpleNamespace(name="p-0", namespace="ns", uid="u", node="node-1", ip="10.244.0.9", node_ip="10.244.0.1",
                      labels={"app": "x"}, annotations={}, spec={})
SECRET = {"kind": "Secret", "data": {"password": "cDE="}, "stringData": {"plain": "p2"}}


def lookup(kind, name):
    return {("Secret", "s"): SECRET, ("ConfigMap", "c"): {"kind": "ConfigMap", "data": {"A": "1", "B": "2"}}}.get((kind, name))


def environment(*entries, **container):
    return manifests.environment({"name": "c", "env": list(entries), **container}, POD, lookup)


class Environment(unittest.TestCase):
    def test_text_with_references_is_expanded_only_for_known_names(self):
        known = {"A": "1", "B_C": "2"}
        rows = [("$(A)", "1"), ("x$(A)y$(B_C)", "x1y2"), ("$(D)", "$(D)"), ("$$(A)", "$(A)"), ("$A", "$A"), ("$$$(A)", "$1"), ("$(", "$(")]
        for text, expected in rows:
            self.assertEqual(manifests.expand(text, known), expected, text)

    def test_variable_sees_those_before_it_and_not_those_after_it(self):
        found = environment({"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C)"}, {"name": "C", "value": "3"})
        self.assertEqual(found, {"A": "1", "B": "1$(C)", "C": "3"})

    def test_fields_and_secrets_are_read(self):
        found = environment(
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}},
            {"name": "PLAIN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "plain"}}},
            {"name": "ALL", "value": "$(NAME)/$(PASSWORD)"})
        self.assertEqual(found, {"NAME": "p-0", "IP": "10.244.0.9", "APP": "x", "PASSWORD": "p1", "PLAIN": "p2", "ALL": "p-0/p1"})

    def test_missing_key_is_refused_unless_it_is_optional(self):
        reference = {"name": "s", "key": "other"}
        with self.assertRaises(manifests.Missing):
            environment({"name": "A", "valueFrom": {"secretKeyRef": reference}})
        self.assertEqual(environment({"name": "A", "valueFrom": {"secretKeyRef": reference | {"optional": True}}}), {})

    def test_env_wins_over_env_from_and_prefixes_apply(self):
        found = environment({"name": "P_A", "value": "9"}, envFrom=[{"prefix": "P_", "configMapRef": {"name": "c"}}])
        self.assertEqual(found, {"P_A": "9", "P_B": "2"})
        with self.assertRaises(manifests.Missing):
            environment(envFrom=[{"secretRef": {"name": "gone"}}])
        self.assertEqual(environment(envFrom=[{"secretRef": {"name": "gone", "optional": True}}]), {})

    def test_resource_field_is_rounded_up_to_its_divisor(self):
        source = {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}
        found = environment({"name": "M", "valueFrom": source}, resources={"limits": {"memory": "1025Ki"}})
        self.assertEqual(found, {"M": "2"})

    def test_service_links_have_the_names_of_kubernetes(self):
        found = manifests.service_links([("ailoop-edge", "10.96.0.9", [{"name": "ws", "port": 7070}])])
        self.assertEqual(found["AILOOP_EDGE_SERVICE_HOST"], "10.96.0.9")
        self.assertEqual(found["AILOOP_EDGE_SERVICE_PORT_WS"], "7070")
        self.assertEqual(found["AILOOP_EDGE_PORT_7070_TCP"], "tcp://10.96.0.9:7070")


class Selectors(unittest.TestCase):
    def test_selector_selects_as_kubernetes_does(self):
        labels = {"app": "x", "tier": "1"}
        rows = [
            (None, False), ({}, True), ({"matchLabels": {"app": "x"}}, True), ({"matchLabels": {"app": "y"}}, False),
            ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]}, True),
            ({"matchExpressions": [{"key": "gone", "operator": "NotIn", "values": ["x"]}]}, True),
            ({"matchExpressions": [{"key": "gone", "operator": "Exists"}]}, False),
            ({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, False),
        ]
        for selector, expected in rows:
            self.assertEqual(manifests.matches(selector, labels), expected, selector)

    def test_quantities_and_percentages_are_numbers(self):
        self.assertEqual(manifests.quantity("64Mi"), 64 * 2**20)
        self.assertEqual(manifests.quantity("500m"), 0.5)
        self.assertEqual([manifests.scaled("25%", 3, True), manifests.scaled("25%", 3, False), manifests.scaled(2, 3, True)], [1, 0, 2])

    def test_secrets_that_no_document_has_are_named_with_their_keys(self):
        container = {"name": "c", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                     "envFrom": [{"secretRef": {"name": "o", "optional": True}}]}
        pod = {"kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [container]}}
        self.assertEqual(manifests.named_secrets([pod]), {("ns", "s"): {"k"}})
        present = {"kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}}
        self.assertEqual(manifests.named_secrets([pod, present]), {})
