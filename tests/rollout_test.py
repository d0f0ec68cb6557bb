#!/usr/bin/env python3
"""Roll-outs by real processes: a version that fails, one that is slow and one that talks too much are taken back, each by its reason, and
a good one gets all; an operator's words; a new start; two gateways with one etcd.

usage: rollout_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_discovery_test import Etcd
from gateway_fixture import BOX, Process, ask
from ports import free_port
from tiers import FULL, full

CHAT = "/v1/chat/completions"
STEP_MS = 25


def script(words=8, **more):
    return {"step_ms": 3, "context": 2048, "slots": 128, "rules": [
        {"when": "", "then": ["<|channel|>final<|message|>", {"text": "word ", "times": words}]}], **more}


class Worker:
    """One, with its fleet port and its own admin listener for faults."""

    def __init__(self, folder, key, name, behaviour):
        file = folder / f"{name}.json"
        file.write_text(json.dumps(behaviour))
        self.port, self.admin = free_port(), free_port()
        self.process = Process("serve", BOX, "--executor", f"modelled:{file}", "--port", "0", "--admin-port", self.admin,
                               "--fleet-port", self.port, "--fleet-name", name, "--fleet-key-file", key)

    def fault(self, **faults):
        status, text = ask(self.admin, "POST", "/admin/faults", {"hang": False, **faults})
        assert status == 200, text


class Load:
    """Clients that each begin one conversation after the other, until it is closed."""

    def __init__(self, ports, clients=12):
        self.ports, self.over, self.statuses, self.lock, self.count = ports, threading.Event(), {}, threading.Lock(), 0
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(clients)]
        for one in self.threads:
            one.start()

    def run(self, client):
        links = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for port in self.ports]
        while not self.over.is_set():
            with self.lock:
                self.count += 1
                number = self.count
            link = links[number % len(links)]
            body = json.dumps({"model": "pelton-box", "messages": [{"role": "user", "content": f"conversation {number} of {client}"}]})
            link.request("POST", CHAT, body, {"Content-Type": "application/json"})
            answer = link.getresponse()
            answer.read()
            with self.lock:
                self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
        for link in links:
            link.close()

    def close(self):
        self.over.set()
        for one in self.threads:
            one.join()


class RolloutTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.key = self.folder / "fleet.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", self.key], check=True)

    def worker(self, name, behaviour):
        one = Worker(self.folder, self.key, name, behaviour)
        self.addCleanup(one.process.end)
        return one

    def text(self, old, new, rollout, admin, state="rollouts.json", more=""):
        return (f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{admin}"\nfleet_key_file = "{self.key}"\n'
                f'rollouts_file = "{self.folder / state}"\nretry_budget = 1\n{more}'
                f'[[pool]]\nname = "old"\nmodel = "pelton-box"\n[[pool]]\nname = "new"\nmodel = "pelton-box"\n'
                f'[[worker]]\npool = "old"\nurl = "http://127.0.0.1:{old.port}"\n[[worker]]\npool = "new"\nurl = "http://127.0.0.1:{new.port}"\n'
                f'[[route]]\nmodel = "pelton-box"\nto = [{{pool = "old"}}, {{pool = "new"}}]\nfallback = ["old"]\n[route.rollout]\narm = "new"\n{rollout}')

    def gateway(self, old, new, rollout, state="rollouts.json", more=""):
        self.admin = free_port()
        self.config = self.folder / f"gateway{self.admin}.toml"
        self.config.write_text(self.text(old, new, rollout, self.admin, state, more))
        one = Process("gateway", "--config", self.config)
        self.addCleanup(lambda: one.process.poll() is None and one.end())
        self.wait(lambda: self.rollout()["has_workers"], one.log)
        return one

    def rollout(self, admin=None):
        status, text = ask(admin or self.admin, "GET", "/v1/rollouts")
        self.assertEqual(status, 200, text)
        return json.loads(text)["rollouts"][0]

    def wait(self, what, said=(), seconds=40):
        end = time.monotonic() + seconds
        while not what() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertTrue(what(), f"{self.rollout()} {list(said)[-5:]}")

    def verb(self, *words):
        done = subprocess.run([gateway_fixture.BINARY, "fleet", *words, "--admin", f"http://127.0.0.1:{self.admin}"],
                              capture_output=True, text=True, timeout=30, check=False)
        return done.returncode, done.stdout + done.stderr

    def metric(self, name, **labels):
        return gateway_fixture.figure(self.admin, name, **labels)

    def given(self, arm):
        return self.metric("pelton_gateway_arm_requests_total", arm=arm, traffic="clients")

    def judged(self, new, reason, rollout, **faults):
        """The version `new` beside a good one: taken back for that reason; gives back the roll-out."""
        old, bad = self.worker("old", new.pop("old", script())), self.worker("new", new.pop("new"))
        if faults:
            bad.fault(**faults)
        gateway = self.gateway(old, bad, rollout)
        load = Load([gateway.port])
        try:
            self.wait(lambda: self.rollout()["phase"] != "running", gateway.log)
        finally:
            load.close()
        verdict = self.rollout()
        self.assertEqual((verdict["phase"], verdict["reason"], verdict["share"]), ("taken_back", reason, 0), verdict)
        # It has had its share and no more: of all that have come, and none since.
        share = verdict["steps"][0]["share"]
        has = self.given("new")
        self.assertLess(has, share * load.count + 4 * (share * load.count) ** 0.5 + 12)
        for i in range(20):
            self.assertEqual(ask(gateway.port, "POST", CHAT, {"model": "pelton-box", "messages": [
                {"role": "user", "content": f"after {i}"}]})[0], 200)
        self.assertEqual(self.given("new"), has)
        self.assertEqual(self.metric("pelton_rollout_phase", phase="taken_back"), 1)
        self.assertGreaterEqual(self.metric("pelton_rollout_evidence", test=reason), 1)
        self.assertTrue(any("is taken back" in line and reason in line for line in gateway.log), list(gateway.log))
        return gateway, verdict, load

    def test_errors_take_a_version_back_and_it_stays_so_over_a_new_start(self):
        gates = 'name = "v2"\nsteps = [50, 100]\nmin_requests = 100000\nmin_seconds = 0\n'
        gateway, verdict, load = self.judged({"new": script()}, "errors", gates, errors=0.05)
        self.assertIn("requests failed", verdict["why"])
        failed = verdict["errors"]["candidate"]
        self.assertGreater(failed["failed"], 3)
        self.assertLess(failed["low"], 0.05)
        self.assertGreater(failed["high"], 0.02)
        self.assertEqual(set(load.statuses), {200}, "clients have seen none of it: the other pool answered")
        code, text = self.verb("rollouts")
        self.assertEqual(code, 0, text)
        self.assertIn("v2: new of pelton-box: taken_back, 0 %", text)
        self.assertIn("errors: at 50 %:", text)
        for word in ("resume", "promote", "pause", "rollback"):
            code, text = self.verb("rollout", "v2", word)
            self.assertNotEqual(code, 0)
            self.assertIn("has been taken back", text)
        self.assertEqual(self.verb("rollout", "v3")[0], 2)
        gateway.end(signal.SIGKILL)
        again = Process("gateway", "--config", self.config)
        self.addCleanup(again.end)
        self.wait(lambda: self.rollout()["has_workers"], again.log)
        self.assertEqual({**self.rollout(), "gateways": 0}, {**verdict, "gateways": 0}, "all that was known of it is")
        # Another version begins anew, by the running gateway's own route.
        text = self.config.read_text().replace('"v2"', '"v3"')
        link = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        link.request("PUT", "/v1/config", text)
        self.assertIn(b'"changes"', link.getresponse().read())
        link.close()
        now = self.rollout()
        self.assertEqual((now["name"], now["phase"], now["errors"]["candidate"]["requests"]), ("v3", "running", 0))

    @full
    def test_a_slow_version_is_taken_back_by_its_ttft(self):
        slow = script(2, step_ms=STEP_MS, clock_scale=1.3)
        verdict = self.judged({"old": script(2, step_ms=STEP_MS), "new": slow}, "ttft",
                              "steps = [50, 100]\nmin_requests = 100000\nmin_seconds = 0\n")[1]
        self.assertGreater(verdict["ttft"]["high"], 1.2)
        self.assertGreater(verdict["ttft"]["ratio"], 1.05)

    @full
    def test_a_version_that_talks_too_much_is_taken_back(self):
        verdict = self.judged({"new": script(16)}, "longer", "steps = [20, 100]\nmin_requests = 100000\nmin_seconds = 0\n")[1]
        self.assertLess(verdict["length"]["low"], 2.1)
        self.assertGreater(verdict["length"]["high"], 1.5)

    def test_a_good_version_gets_all_by_its_steps(self):
        old, new = self.worker("old", script()), self.worker("new", script())
        gateway = self.gateway(old, new, "steps = [10, 50, 100]\nmin_requests = [10, 30]\nmin_seconds = [0.5, 1]\n")
        began, load, seen = time.monotonic(), Load([gateway.port]), []
        try:
            while not seen or seen[-1] < 1 and time.monotonic() < began + 40:
                seen.append(self.rollout()["share"])
                time.sleep(0.05)
        finally:
            load.close()
        self.assertEqual(sorted(set(seen)), [0.1, 0.5, 1], "each step, and none back")
        self.assertEqual(seen, sorted(seen))
        self.assertGreaterEqual(time.monotonic() - began, 1.4)
        verdict = self.rollout()
        self.assertEqual((verdict["phase"], verdict["reason"]), ("promoted", "gates"), verdict)
        self.assertEqual(set(load.statuses), {200})
        before = self.given("old"), self.given("new")
        for i in range(20):
            ask(gateway.port, "POST", CHAT, {"model": "pelton-box", "messages": [{"role": "user", "content": f"after {i}"}]})
        self.assertEqual((self.given("old"), self.given("new")), (before[0], before[1] + 20))

    def test_an_operator_has_the_last_word(self):
        old, new = self.worker("old", script()), self.worker("new", script())
        gateway = self.gateway(old, new, 'steps = [50, 60, 100]\nmin_requests = 1000000\nmin_seconds = 3600\n')
        self.assertEqual(self.rollout()["share"], 0.5)
        code, text = self.verb("rollout", "new", "pause")
        self.assertEqual(code, 0, text)
        self.assertIn("paused, 50 % of the conversations", text)
        self.assertEqual(self.verb("rollout", "new", "resume")[0], 0)
        code, text = self.verb("rollout", "new", "promote")
        self.assertIn("running, 60 % of the conversations", text)
        self.assertIn("[60 %]", text)
        # A conversation stays where it is, and a page in a browser commands nothing here.
        status, text = ask(self.admin, "POST", "/v1/rollouts/new/rollback", None, Origin="http://127.0.0.1")
        self.assertEqual(status, 403, text)
        self.assertEqual(ask(self.admin, "POST", "/v1/rollouts/old/rollback")[0], 404)
        self.assertEqual(ask(self.admin, "POST", "/v1/rollouts/new/begin")[0], 404)
        self.assertEqual(ask(self.admin, "GET", "/v1/rollouts/new/rollback")[0], 405)
        self.assertEqual(self.verb("rollout", "new", "rollback")[0], 0)
        self.assertEqual((self.rollout()["phase"], self.rollout()["reason"]), ("taken_back", "operator"))
        self.assertEqual(ask(self.admin, "POST", "/v1/rollouts/new/promote")[0], 409)
        self.assertTrue(any("rollback, by an operator" in line for line in gateway.log), list(gateway.log))
        # A file that is wrong says so by its line, and changes nothing.
        bad = self.folder / "bad.toml"
        bad.write_text(self.config.read_text().replace("steps = [50, 60, 100]", "steps = [50, 40, 100]"))
        done = subprocess.run([gateway_fixture.BINARY, "gateway", "--config", bad, "--check"], capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 3)
        line = 1 + bad.read_text().split("\n").index("steps = [50, 40, 100]")
        self.assertIn(f"bad.toml:{line}: ", done.stderr)

    @unittest.skipUnless(shutil.which("etcd"), "etcd-server is not installed")
    def test_two_gateways_decide_on_what_both_have_seen(self):
        etcd = Etcd(self.folder / "etcd")
        self.addCleanup(lambda: etcd.end())
        old, new = self.worker("old", script()), self.worker("new", script())
        more = f'allowed_cidrs = ["127.0.0.0/8"]\n[etcd]\nendpoints = ["127.0.0.1:{etcd.client}"]\n'
        gates = "steps = [50, 100]\nmin_requests = 1000000\nmin_seconds = 0\n"
        one = self.gateway(old, new, gates, "one.json", more)
        admin_one = self.admin
        two = self.gateway(old, new, gates, "two.json", more)
        self.wait(lambda: self.rollout(admin_one)["gateways"] == self.rollout()["gateways"] == 2, two.log)
        load = Load([one.port, two.port])
        time.sleep(1)
        load.close()
        def seen(admin=None):
            errors = self.rollout(admin)["errors"]
            return errors["candidate"]["requests"] + errors["others"]["requests"]

        def own(file):
            return sum(json.loads((self.folder / file).read_text())["rollouts"][0]["errors"]["requests"])
        self.wait(lambda: own("one.json") + own("two.json") == seen() == seen(admin_one) == sum(load.statuses.values()), two.log)
        self.assertGreater(min(own("one.json"), own("two.json")), 20)
        # A new start counts nothing twice: what it reads in etcd is what it has said itself.
        two.end(signal.SIGKILL)
        again = Process("gateway", "--config", self.config)
        self.addCleanup(again.end)
        self.wait(lambda: self.rollout()["has_workers"], again.log)
        for _ in range(50):
            self.assertLessEqual(seen(), sum(load.statuses.values()))
            if not FULL and seen() == sum(load.statuses.values()):
                break
            time.sleep(0.1)
        self.assertEqual(seen(), sum(load.statuses.values()))
        # What one takes back is taken back at both.
        status, text = ask(admin_one, "POST", "/v1/rollouts/new/rollback")
        self.assertEqual(status, 200, text)
        self.wait(lambda: self.rollout()["phase"] == "taken_back", two.log)
        self.assertEqual(self.rollout()["reason"], "operator")


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
