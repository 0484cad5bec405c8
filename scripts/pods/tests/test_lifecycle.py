"""Restarts, probes, rolling updates, budgets, and the page."""

import unittest

from pods import controllers, dns, helm, image, kubectl, page, probes
from pods.kubelet import restart_delay
from pods.load import with_steps
from pods.manifests import Refused


class Kubelet(unittest.TestCase):
    def test_pause_before_a_restart_doubles_up_to_five_minutes(self):
        self.assertEqual([restart_delay(crashes) for crashes in range(1, 9)], [0, 10, 20, 40, 80, 160, 300, 300])

    def test_probe_changes_its_state_after_as_many_results_in_a_row(self):
        threshold = probes.Threshold({"failureThreshold": 2, "successThreshold": 2}, False)
        results = [True, True, False, True, False, False, True, True]
        self.assertEqual([threshold.add(result) for result in results], [False, True, True, True, True, False, False, True])

    def test_startup_probe_has_no_state_before_its_threshold(self):
        threshold = probes.Threshold({"failureThreshold": 2}, None)
        self.assertEqual([threshold.add(False), threshold.add(False)], [None, False])

    def test_probe_that_would_not_be_made_is_refused(self):
        with self.assertRaises(Refused):
            probes.check({"name": "c", "livenessProbe": {"grpc": {"port": 1}}})


class RollingUpdates(unittest.TestCase):
    def simulate(self, desired, surge, unavailable):
        """Replaces all pods, each new one available a step later: (most pods, fewest available) on the way."""
        old, ready, fresh = desired, 0, 0
        most, fewest = desired, desired
        for _ in range(50):
            step = controllers.rolling_update(desired, ready + fresh, ready, old, old, surge, unavailable)
            old -= step.delete_old_available
            most, fewest = max(most, old + ready + fresh + step.create), min(fewest, old + ready)
            ready, fresh = ready + fresh, step.create
            if old == 0 and ready == desired:
                return most, fewest
        self.fail("the update does not end")

    def test_update_keeps_its_bounds_and_ends(self):
        for desired in (1, 2, 3, 5):
            for surge, unavailable in ((1, 0), (0, 1), (1, 1), (2, 0)):
                most, fewest = self.simulate(desired, surge, unavailable)
                self.assertLessEqual(most, desired + surge, (desired, surge, unavailable))
                self.assertGreaterEqual(fewest, desired - unavailable, (desired, surge, unavailable))

    def test_update_that_never_gets_ready_keeps_the_old_pods(self):
        step = controllers.rolling_update(2, 1, 0, 2, 2, 1, 0)
        self.assertEqual((step.create, step.delete_old_available, step.delete_old_not_available), (0, 0, 0))

    def test_new_pods_that_are_not_available_count_as_lost(self):
        step = controllers.rolling_update(3, 1, 0, 3, 2, 1, 0)
        self.assertEqual((step.create, step.delete_old_not_available, step.delete_old_available), (0, 0, 0))

    def test_old_pods_that_are_broken_go_first(self):
        step = controllers.rolling_update(3, 1, 1, 3, 2, 1, 0)
        self.assertEqual((step.delete_old_not_available, step.delete_old_available), (1, 0))

    def test_percentages_round_as_in_kubernetes(self):
        self.assertEqual(controllers.surge_and_unavailable({"replicas": 3}), (1, 0))
        zero = {"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}}}
        self.assertEqual(controllers.surge_and_unavailable(zero), (0, 1))

    def test_budget_counts_what_may_go(self):
        rows = [({"maxUnavailable": 1}, 3, 3, 1), ({"maxUnavailable": 1}, 3, 2, 0), ({"minAvailable": "50%"}, 3, 3, 1), ({"minAvailable": 3}, 3, 3, 0)]
        for spec, expected, healthy, allowed in rows:
            self.assertEqual(controllers.disruptions_allowed({"spec": spec}, expected, healthy), allowed, spec)

    def test_fields_that_cannot_change_are_refused(self):
        def change(kind, before, after):
            controllers.check_change(*({"kind": kind, "metadata": {"name": "x"}, "spec": spec} for spec in (before, after)))

        change("StatefulSet", {"replicas": 1, "template": 1}, {"replicas": 2, "template": 2})
        for kind, field in (("StatefulSet", "volumeClaimTemplates"), ("Job", "template"), ("Deployment", "selector")):
            with self.assertRaises(Refused):
                change(kind, {"template": 1, "selector": 1, field: 1}, {"template": 1, "selector": 1, field: 2})


class Around(unittest.TestCase):
    def test_name_is_answered_refused_or_empty(self):
        def ask(name, kind):
            query = b"\0\7\1\0\0\1\0\0\0\0\0\0" + dns.encode_name(name) + kind.to_bytes(2) + b"\0\1"
            reply = dns.answer(query, {"nats.ailoop.svc.cluster.local": ["10.244.0.9", "10.244.0.10"]}, {})
            return reply[3] & 15, int.from_bytes(reply[6:8])

        self.assertEqual(ask("NATS.ailoop.svc.cluster.local", dns.A), (0, 2))
        self.assertEqual(ask("nats.ailoop.svc.cluster.local", dns.AAAA), (0, 0))
        self.assertEqual(ask("nats.other.svc.cluster.local", dns.A), (dns.NO_SUCH_NAME, 0))

    def test_image_is_that_of_the_last_stage(self):
        found = image.final_stage('FROM a AS b\nENTRYPOINT ["x"]\nFROM c\nENV A=1\nCOPY --from=b /out/y /usr/bin/y\nUSER 7:8\nENTRYPOINT ["/usr/bin/y"]\n')
        self.assertEqual((found["entrypoint"], found["user"], found["env"]), (["/usr/bin/y"], "7:8", {"A": "1"}))
        names = ["ailoop", "registry.example.com:5000/x/ailoop:0.1.0", "r/ailoop@sha256:0a", "nats:2.15.1-alpine"]
        self.assertEqual([image.Images.repository(name) for name in names], ["ailoop", "ailoop", "ailoop", "nats"])

    def test_shell_blocks_of_a_section_are_found(self):
        text = "## A\n\n1. a\n\n   ```sh\n   b\n     c\n   ```\n\n## Next\n```sh\nd\n```\n"
        self.assertEqual(page.blocks(text, "## A"), ["b\n  c\n"])
        with self.assertRaises(Refused):
            page.blocks(text, "## B")

    def test_steps_of_the_page_differ_by_setup(self):
        scripts = {setup: page.script(page.PAGE.read_text(), *words) for setup, words in page.SETUPS.items()}
        for setup, script in scripts.items():
            tool, values = page.SETUPS[setup]
            self.assertEqual((f"values-{values}.yaml" in script, "helm " in script), (tool == "helm",) * 2, setup)
            self.assertEqual(f"overlays/{values}" in script, tool == "kustomize", setup)
            self.assertEqual("--model rehearsal" in script, values == "prod", setup)
            self.assertTrue(script.index("create namespace") < script.index("rollout status") < script.index("ailoop run"), setup)

    def test_port_forward_of_the_page_is_awaited(self):
        script = page.FORWARD.sub(rf"\g<0>\n{page.LISTENS}", page.script(page.PAGE.read_text(), "helm", "local"))
        self.assertRegex(script, r"port-forward service/ailoop-edge 7070 7071 &\ntimeout .*/dev/tcp/127\.0\.0\.1/7070\)")

    def test_command_that_a_shim_does_not_know_is_refused(self):
        known = {
            kubectl: [["-n", "x", "create", "secret", "generic", "s", "--from-literal=a=b"], ["rollout", "restart", "deployment/x", "-n", "x"]],
            helm: [["-n", "x", "test", "r"], ["install", "r", "chart", "-f", "a.yaml", "--set", "a=b"], ["rollback", "r", "1"]],
        }
        unknown = {
            kubectl: [["top", "pods"], ["apply", "--server-side", "-f", "x"], ["get", "nodes"]],
            helm: [["upgrade", "--install", "r", "chart"], ["rollback", "r", "one"], ["history", "r"]],
        }
        for program in (kubectl, helm):
            for words in known[program]:
                program.Commands.parser().parse_args(words)
            for words in unknown[program]:
                with self.assertRaises(Refused):
                    program.Commands.parser().parse_args(words)

    def test_load_needs_the_script_of_the_rehearsal(self):
        with self.assertRaises(Refused):
            with_steps([{"kind": "ConfigMap", "data": {}}])
        changed, = with_steps([{"kind": "ConfigMap", "data": {"rehearsal.yaml": "steps: [{name: a}]"}}])
        self.assertTrue(changed["data"]["rehearsal.yaml"].startswith("steps:\n- name: 'load: "))
