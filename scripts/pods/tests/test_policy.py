"""Network policies and Services as rules of nftables."""

import unittest

from pods import policy
from pods.policy import Host, ServicePort

EDGE = Host("ailoop", {"app": "edge"}, "10.244.0.5", {"ws": ("TCP", 7070)})
NATS = Host("ailoop", {"app": "nats"}, "10.244.0.6", {"client": ("TCP", 4222)})
SCRAPER = Host("monitoring", {"app": "edge"}, "10.244.0.7", {})
HOSTS = [EDGE, NATS, SCRAPER]
LABELS = {"ailoop": {"kubernetes.io/metadata.name": "ailoop"}, "monitoring": {"kubernetes.io/metadata.name": "monitoring"}}


def chains(**spec):
    document = {"metadata": {"name": "p", "namespace": "ailoop"}, "spec": spec}
    return policy.policy_chains(HOSTS, [document], LABELS)


class Policies(unittest.TestCase):
    def test_empty_policy_isolates_its_namespace_and_no_other(self):
        found = chains(podSelector={}, policyTypes=["Ingress", "Egress"])
        self.assertEqual(set(found), {(way, host.ip) for way in ("Ingress", "Egress") for host in (EDGE, NATS)})
        self.assertEqual(set(map(tuple, found.values())), {()})

    def test_policy_without_types_isolates_ingress_and_egress_only_if_it_names_it(self):
        self.assertEqual(set(chains(podSelector={"matchLabels": {"app": "nats"}})), {("Ingress", NATS.ip)})
        both = chains(podSelector={"matchLabels": {"app": "nats"}}, egress=[])
        self.assertEqual(set(both), {("Ingress", NATS.ip), ("Egress", NATS.ip)})

    def test_peer_is_of_the_policys_namespace_unless_it_names_another(self):
        def peers(peer):
            return chains(podSelector={"matchLabels": {"app": "nats"}}, ingress=[{"from": [peer]}])["Ingress", NATS.ip]

        monitoring = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
        self.assertEqual(peers({"podSelector": {"matchLabels": {"app": "edge"}}}), ["ip saddr { 10.244.0.5 } accept"])
        self.assertEqual(peers({"namespaceSelector": monitoring}), ["ip saddr { 10.244.0.7 } accept"])
        self.assertEqual(peers({"namespaceSelector": {}}), ["ip saddr { 10.244.0.5, 10.244.0.6, 10.244.0.7 } accept"])
        self.assertEqual(peers({"namespaceSelector": monitoring, "podSelector": {"matchLabels": {"app": "nats"}}}), [])

    def test_block_with_exceptions_and_ports(self):
        block = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}
        ports = [{"protocol": "TCP", "port": 443}, {"protocol": "UDP", "port": 1000, "endPort": 1010}]
        found = chains(podSelector={"matchLabels": {"app": "edge"}}, policyTypes=["Egress"], egress=[{"to": [block], "ports": ports}])
        self.assertEqual(found["Egress", EDGE.ip], [
            "ip daddr != { 10.0.0.0/8 } tcp dport 443 accept", "ip daddr != { 10.0.0.0/8 } udp dport 1000-1010 accept"])

    def test_named_port_is_that_of_the_server(self):
        ingress = chains(podSelector={"matchLabels": {"app": "edge"}}, ingress=[{"ports": [{"port": "ws"}]}])
        self.assertEqual(ingress["Ingress", EDGE.ip], ["tcp dport 7070 accept"])
        egress = chains(podSelector={"matchLabels": {"app": "edge"}}, policyTypes=["Egress"],
                        egress=[{"to": [{"podSelector": {}}], "ports": [{"port": "client"}]}])
        self.assertEqual(egress["Egress", EDGE.ip], ["ip daddr 10.244.0.6 tcp dport 4222 accept"])
        self.assertEqual(chains(podSelector={}, ingress=[{"ports": [{"port": "gone"}]}])["Ingress", EDGE.ip], [])

    def test_rule_without_peers_or_ports_lets_everything_in(self):
        self.assertEqual(chains(podSelector={}, ingress=[{}])["Ingress", EDGE.ip], ["accept"])


class Rules(unittest.TestCase):
    def test_service_sends_to_ready_endpoints_and_refuses_without_one(self):
        services = [ServicePort("10.96.0.9", "TCP", 80, (("10.244.0.5", 7070), ("10.244.0.8", 7070))), ServicePort("10.96.0.8", "TCP", 80, ())]
        text = policy.ruleset(HOSTS, [], LABELS, services)
        self.assertIn("ip daddr 10.96.0.9 tcp dport 80 dnat to numgen random mod 2 map { 0 : 10.244.0.5 . 7070, 1 : 10.244.0.8 . 7070 }", text)
        self.assertNotIn("10.96.0.8", text)
        self.assertIn("ip daddr 10.96.0.0/16 reject", text)

    def test_isolated_pod_is_dropped_after_its_rules(self):
        document = {"metadata": {"name": "p", "namespace": "ailoop"}, "spec": {"podSelector": {"matchLabels": {"app": "edge"}}, "ingress": [{}]}}
        text = policy.ruleset(HOSTS, [document], LABELS, [])
        self.assertIn("chain ingress_10_244_0_5 {\n    return\n    counter drop\n  }", text)
        self.assertIn("ip daddr 10.244.0.5 jump ingress_10_244_0_5", text)
        self.assertNotIn("ingress_10_244_0_6", text)

    def test_packets_of_a_lost_node_vanish(self):
        self.assertIn("ip daddr { 10.244.0.5 } drop", policy.ruleset(HOSTS, [], LABELS, [], lost={EDGE.ip}))
