#!/usr/bin/env python3
"""Two regions, each with two gateways and four workers, under load: what new requests get five seconds behind each misfortune, what
those get that are tied to a lost region, and where requests go once it is over.

usage: regions_drill_test.py BINARY    PELTON_FULL: all misfortunes and 200 streams; DRILL_SHORT: one region lost and back,
                                       a bad configuration, 20 streams
                                       DRILL_STEPS: of all of them these, as region_slowed,links_cut
"""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import gateway_fixture
import regions_fixture
from regions_fixture import Clients, Links, Region, stream, wait

FULL = bool(os.environ.get("PELTON_FULL"))
STEPS = [step for step in os.environ.get("DRILL_STEPS", "").split(",") if step] or [
    "gateway_killed", "worker_killed", "etcd_stopped", "region_lost", "region_slowed", "links_cut"]
GOOD = 0.9999
GRACE_S = 5  # behind each fault


class Drill(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        links = Links()
        self.addCleanup(links.close)
        # A patch takes workers out of files, not out of an etcd.
        etcd = FULL and "configuration" not in self._testMethodName and regions_fixture.has_etcd()
        script = {**regions_fixture.SCRIPT, "step_ms": 60 if FULL else 15}
        self.regions = []
        for name in ("eu", "us"):
            self.regions.append(Region(scratch.name, name, (3, 1), script=script, etcd=etcd))
            self.addCleanup(self.regions[-1].close)
        self.eu, self.us = self.regions
        for one, other in (self.regions, self.regions[::-1]):
            one.knows(other, links)
        regions_fixture.together([region.start for region in self.regions])
        self.wait_for_all()
        self.any_to_any()
        self.clients = Clients(self.regions, 200 if FULL else 20)
        self.addCleanup(self.clients.end)

    def wait_for_all(self):
        for one, other in (self.regions, self.regions[::-1]):
            wait(lambda one=one: one.is_whole(), 120,
                 lambda one=one: [one.ended(), *([(row["name"], row["state"], row["reason"]) for row in one.rows(g)] for g in range(2))])
            wait(lambda one=one, other=other: one.sees(other), 120, lambda one=one: [one.regions(g) for g in range(2)])

    def any_to_any(self):
        """Each gateway answers everybody, here and across; each is heard by the others, and one that is lost is not missed."""
        def ask_all(regions, number):
            for region, other in ((region, next(one for one in self.regions if one is not region)) for region in regions):
                for port in (port for g, port in enumerate(region.ports) if region.gateways[g]):
                    stream(port, number, 5, 7, "sk-ann")
                    stream(port, number + 1, 5, 7, "sk-ann", **{"x-pelton-region": other.name})
                    for key in ("sk-eu", "sk-us"):  # wherever it asks, it is answered where it may be
                        stream(port, number + 2, 5, 7, key)
        ask_all(self.regions, 1)
        for region, other in (self.regions, self.regions[::-1]):
            for g in range(2):
                [seen] = region.regions(g)
                self.assertEqual((seen["name"], seen["trouble"], [model["ready"] for model in seen["models"]]), (other.name, None, [4]))
                # Two of the four: that which asked for it, and that of the tenant who is tied to the other region.
                self.assertEqual((seen["requests"], [row["tenant"] for row in seen["tenants"]]), (2, ["ann", f"pin-{other.name}"]))
        self.us.kill_gateway(0)
        ask_all([self.eu], 10)
        time.sleep(2.5)  # by now what the lost one said counts no more
        self.assertTrue(self.eu.sees(self.us), self.eu.regions(0))
        ask_all(self.regions, 20)
        self.us.start_gateway(0)
        self.wait_for_all()

    def judge(self, what, begun, until, lost=None):
        """Of what began then: all good but those tied to the lost region, which get 503 and nothing else."""
        every = self.clients.since(begun, until)
        tied = [one for one in every if lost and one["key"] == f"sk-{lost.name}"]
        free = [one for one in every if one not in tied] if tied else every
        counts = collections.Counter(one["what"] for one in free)
        print(f"{what}: {len(free)} requests {dict(counts)}, tied {dict(collections.Counter(one['what'] for one in tied))}", flush=True)
        self.assertGreater(len(free), 20, what)
        self.assertGreaterEqual(counts["good"], GOOD * len(free), (what, [one for one in free if one["what"] != "good"][:5]))
        if lost:
            self.assertGreater(len(tied), 0, what)
            self.assertEqual({one["what"] for one in tied}, {"503"}, (what, [one for one in tied if one["what"] != "503"][:5]))

    def settle(self, what, begun, seconds, lost=None):
        """A fault has just begun: so long it lasts."""
        time.sleep(max(0, begun + GRACE_S + seconds - time.monotonic()))
        self.judge(what, begun + GRACE_S, time.monotonic(), lost)

    def home_share(self, region, seconds):
        """Of its clients' requests that begin now and may leave, how many its own workers answer; none: too few begin."""
        def sent():
            return sum(row["requests"] for g in range(len(region.gateways)) for row in region.regions(g))
        begun, before = time.monotonic(), sent()
        time.sleep(seconds)
        until, after = time.monotonic(), sent()
        its = [one for one in self.clients.since(begun, until) if one["home"] == region.name and one["key"] == "sk-ann"]
        return (sum(one["port"] in region.ports for one in its) - (after - before)) / len(its) if len(its) >= 5 else None

    def returns(self, region, seconds):
        """Its clients' requests come back to it, and then stay: no step back and forth."""
        shares = [share for share in (self.home_share(region, 1) for _ in range(seconds)) if share is not None]
        print(f"  at home in {region.name} behind it: {[round(share, 2) for share in shares]}", flush=True)
        back = next((i for i, share in enumerate(shares) if share >= 0.9), None)
        self.assertIsNotNone(back, shares)
        self.assertGreaterEqual(min(shares[back:]), 0.9, shares)

    def lose(self, region, seconds):
        begun = time.monotonic()
        region.kill()
        self.settle(f"region {region.name} lost", begun, seconds, lost=region)
        region.start()
        self.wait_for_all()
        begun = time.monotonic()
        self.returns(region, 8 if FULL else 2)
        self.settle(f"region {region.name} back", begun - GRACE_S, 0)

    def end(self):
        self.clients.end()
        wrong = [one for one in self.clients.since(0) if one["what"] in ("wrong", "nobody") or one["what"].startswith("status")]
        self.assertEqual(wrong, [])

    @unittest.skipIf(FULL, "a part of all of it")
    def test_a_region_lost_and_back(self):
        self.lose(self.us, 2)
        self.end()

    @unittest.skipUnless(FULL, "minutes: PELTON_FULL=1")
    def test_all_of_it(self):
        time.sleep(3)
        for step in STEPS:
            getattr(self, step)()
        self.end()

    def region_lost(self):
        self.lose(self.us, 15)

    def gateway_killed(self):
        begun = time.monotonic()
        self.eu.kill_gateway(1)
        self.settle("gateway killed", begun, 8)
        # Only what that one had under way was broken.
        broken = {one["port"] for one in self.clients.since(begun - 60) if one["what"] != "good"}
        self.assertLessEqual(broken, {self.eu.ports[1]})
        self.eu.start_gateway(1)
        self.wait_for_all()

    def worker_killed(self):
        begun = time.monotonic()
        self.eu.kill_workers(1)
        self.settle("worker killed", begun, 8)
        self.assertEqual([one for one in self.clients.since(begun - 3) if one["what"] != "good"], [])  # its answers went on at others
        self.eu.start_workers(1)
        self.wait_for_all()

    def etcd_stopped(self):
        if self.eu.etcd is None:
            return
        begun = time.monotonic()
        self.eu.etcd.end()
        self.settle("etcd stopped", begun, 20)
        self.assertEqual([one for one in self.clients.since(begun) if one["what"] != "good"], [])
        self.eu.etcd.start()
        self.wait_for_all()

    def region_slowed(self):
        begun = time.monotonic()
        self.us.fault(slow=10)
        time.sleep(10)
        share = self.home_share(self.us, 12)
        print(f"  at home in us, ten times as slow: {share:.3f}", flush=True)
        self.settle("region slowed", begun, 15)
        self.us.fault()
        self.assertLessEqual(share, 0.1)
        self.returns(self.us, 30)

    def test_a_bad_configuration_staged(self):
        """Staged in eu, whose gateways then know no worker, it is taken back, and us never sees it."""
        before = [[region.file(g).read_text() for g in range(2)] for region in self.regions]
        gone = {f"http://127.0.0.1:{port}": None for places in self.eu.places for port in places["fleet"]}
        patch = {"worker": gone | {f"http://127.0.0.1:{regions_fixture.free_port()}": {"pool": "box"}}}
        to = [word for region in self.regions for port in region.admins for word in ("--to", f"{region.name}=http://127.0.0.1:{port}")]
        begun = time.monotonic()
        done = subprocess.run([gateway_fixture.BINARY, "fleet", "stage", "-", *to, "--watch", "30", "--grace", "2"], input=json.dumps(patch),
                              capture_output=True, text=True, timeout=120, check=False)
        over = time.monotonic()
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("All is as it was before", done.stderr)
        self.assertIn("eu (http", done.stderr)
        self.assertEqual([[region.file(g).read_text() for g in range(2)] for region in self.regions], before)
        for port in self.us.admins:
            [first] = json.loads(regions_fixture.ask(port, "GET", "/v1/config/history")[1])["entries"]
            self.assertEqual(first["who"], "start")
        print(f"  taken back after {over - begun:.1f} s", flush=True)
        self.settle("bad configuration staged and taken back", over, 8)
        us = [one for one in self.clients.since(begun) if one["home"] == "us"]
        self.assertGreater(len(us), 20)
        self.assertEqual([one for one in us if one["what"] != "good"], [])
        self.wait_for_all()
        self.returns(self.eu, 8 if FULL else 3)
        self.end()

    def links_cut(self):
        begun = time.monotonic()
        for region in self.regions:
            for link in region.links:
                link.cut(True)
        self.settle("links cut", begun, 60)
        for region in self.regions:
            for link in region.links:
                link.cut(False)
        self.wait_for_all()
        self.returns(self.us, 8)


if __name__ == "__main__":
    if not FULL and not os.environ.get("DRILL_SHORT"):
        print("PELTON_FULL=1 opens this")
        sys.exit(77)
    gateway_fixture.BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
