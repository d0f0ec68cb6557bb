#!/usr/bin/env python3
"""A gateway and workers beside a real etcd in trouble: keys that are nobody's, compacted revisions, a full one, members that are stopped.

usage: gateway_etcd_test.py BINARY    PELTON_FULL: with three members
"""
import base64
import json
import os
import shutil
import signal
import sys
import threading
import time
import unittest

import gateway_discovery_test
import gateway_fixture
from gateway_discovery_test import Etcd
from gateway_fixture import ask
from ports import free_port
from tiers import full

PREFIX = "/pelton/v1/main"


def coded(text):
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


@unittest.skipUnless(shutil.which("etcd"), "etcd-server is not installed")
class Trouble(unittest.TestCase):
    # Not inherited: its tests would run here too.
    setUp, worker, gateway, rows, states, wait, streams_until = (
        getattr(gateway_discovery_test.Discovery, name) for name in ("setUp", "worker", "gateway", "rows", "states", "wait", "streams_until"))

    def etcd(self, *more):
        one = Etcd(self.folder / f"etcd{free_port()}", more=more)
        self.addCleanup(lambda: one.end())
        end = time.monotonic() + 20
        while not self.call(one, "maintenance/status") and time.monotonic() < end:
            time.sleep(0.05)
        return one

    def call(self, etcd, what, **body):
        """etcd's own JSON; none: it says no, or does not answer yet."""
        try:
            status, text = ask(etcd.client, "POST", f"/v3/{what}", body or {"none": None})
        except OSError:
            return None
        return json.loads(text) if status == 200 else None

    def put(self, etcd, key, value):
        return self.call(etcd, "kv/put", key=coded(key), value=coded(value))

    def begin(self, endpoints):
        self.flags = ("--fleet-port", "0", "--fleet-pool", "box", *[word for one in endpoints for word in ("--fleet-etcd", one)])
        workers = [self.worker(name, *self.flags) for name in ("one", "two")]
        listed = ", ".join(f'"{one}"' for one in endpoints)
        gateway = self.gateway(f'allowed_cidrs = ["127.0.0.0/8"]\n[etcd]\nendpoints = [{listed}]\n')
        self.wait(lambda: self.states() == {"one": "ready", "two": "ready"}, gateway.log)
        self.over, self.faults = threading.Event(), []
        self.addCleanup(self.over.set)
        self.clients = [threading.Thread(target=self.streams_until, args=(gateway, self.over, self.faults)) for _ in range(4)]
        for one in self.clients:
            one.start()
        return workers, gateway

    def end(self, gateway):
        self.over.set()
        for one in self.clients:
            one.join()
        self.assertEqual(self.faults, [], list(gateway.log)[-20:])

    def test_ET_02_keys_that_are_nobodys(self):
        """Records under other keys than their worker's, outside of the prefix, with /../: none is a worker, and the log names them."""
        etcd = self.etcd()
        _, gateway = self.begin([etcd.endpoint])
        port = free_port()
        evil = json.dumps({"schema": 1, "name": "evil", "incarnation": "i", "address": f"127.0.0.1:{port}", "pool": "box"})
        for key in (f"{PREFIX}/workers/../evil", f"{PREFIX}/workers/../workers/evil", f"{PREFIX}/workers/", f"{PREFIX}/workers/one/evil",
                    f"{PREFIX}2/workers/evil", "/pelton/v1/workers/evil", "evil"):
            self.assertIsNotNone(self.put(etcd, key, evil), key)
        self.wait(lambda: "".join(gateway.log).count("another one's key than 'evil'") >= 4, gateway.log)
        self.assertEqual(set(self.states()), {"one", "two"})
        self.assertIsNotNone(self.put(etcd, f"{PREFIX}/workers/evil", evil))
        self.wait(lambda: len(self.rows()) == 3, gateway.log)  # its own key: so the others were no accident
        self.end(gateway)

    def test_ET_08_compacted_revisions(self):
        """Much is written and compacted away while nobody listens (the gateway's link stands still): all is read anew."""
        etcd = self.etcd()
        _, gateway = self.begin([etcd.endpoint])
        for turn in range(3):
            gateway.process.send_signal(signal.SIGSTOP)
            for number in range(60):
                self.put(etcd, f"{PREFIX}/workers/none{number}", f"no record, of turn {turn}")
            revision = self.call(etcd, "kv/range", key=coded("none"))["header"]["revision"]
            self.assertIsNotNone(self.call(etcd, "kv/compaction", revision=revision, physical=True))
            etcd.process.send_signal(signal.SIGSTOP)
            gateway.process.send_signal(signal.SIGCONT)
            time.sleep(0.5)
            etcd.process.send_signal(signal.SIGCONT)
            name = f"late{turn}"
            self.worker(name, *self.flags)
            self.wait(lambda name=name: self.states().get(name) == "ready", gateway.log)
        self.assertEqual(set(self.states().values()), {"ready"})
        self.end(gateway)

    @full
    def test_ET_13_etcd_is_full(self):
        """NOSPACE: nobody registers and leases are not put down anew, but what is there serves on; with room again who waited is found."""
        etcd = self.etcd("--quota-backend-bytes", str(4 << 20))
        _, gateway = self.begin([etcd.endpoint])
        number = 0
        while self.put(etcd, f"filler{number}", "x" * (1 << 20)) and number < 20:
            number += 1
        self.assertLess(number, 20, "it is full")
        late = self.worker("late", *self.flags)
        time.sleep(30)
        self.assertEqual(self.states(), {"one": "ready", "two": "ready"})
        self.assertIsNone(late.process.poll(), "it serves whom it can")
        self.assertIn("etcd", "".join(late.log))
        for one in range(number):
            self.call(etcd, "kv/deleterange", key=coded(f"filler{one}"))
        revision = self.call(etcd, "kv/range", key=coded("none"))["header"]["revision"]
        self.call(etcd, "kv/compaction", revision=revision, physical=True)
        self.call(etcd, "maintenance/defragment")
        alarm = self.call(etcd, "maintenance/alarm", action="GET")["alarms"][0]
        self.call(etcd, "maintenance/alarm", action="DEACTIVATE", **alarm)
        self.wait(lambda: self.states().get("late") == "ready", [*gateway.log, *late.log])
        self.end(gateway)

    @full
    def test_three_members_one_two_all_stopped(self):
        """FT-45, ET-09: no request fails, nobody who answers is taken out; with a majority who comes is found, without one nobody is."""
        peers = [free_port() for _ in range(3)]
        cluster = ",".join(f"m{i}=http://127.0.0.1:{peer}" for i, peer in enumerate(peers))

        class Member(Etcd):
            def __init__(self, folder, peer, name):
                self.folder, self.client, self.peer, self.tls = folder, free_port(), peer, None
                self.more = ("--name", name, "--initial-cluster", cluster)
                self.start()
        members = [Member(self.folder / f"m{i}", peer, f"m{i}") for i, peer in enumerate(peers)]
        for one in members:
            self.addCleanup(one.end)
        _, gateway = self.begin([one.endpoint for one in members])
        outage = float(os.environ.get("PELTON_OUTAGE_S", "60"))
        members[0].process.send_signal(signal.SIGSTOP)
        self.worker("three", *self.flags)
        self.wait(lambda: self.states().get("three") == "ready", gateway.log)
        time.sleep(outage / 4)
        members[1].process.send_signal(signal.SIGSTOP)
        time.sleep(outage / 4)
        self.assertEqual(set(self.states().values()), {"ready"}, "without a majority")
        members[2].process.send_signal(signal.SIGSTOP)
        self.worker("four", *self.flags)
        time.sleep(outage)
        self.assertEqual(self.states(), {name: "ready" for name in ("one", "two", "three")})
        for one in reversed(members):
            one.process.send_signal(signal.SIGCONT)
        self.wait(lambda: self.states() == {name: "ready" for name in ("one", "two", "three", "four")}, gateway.log)
        # Each alone, in turn, killed and started again.
        for turn, one in enumerate(members):
            one.end()
            self.worker(f"turn{turn}", *self.flags)
            self.wait(lambda turn=turn: self.states().get(f"turn{turn}") == "ready", gateway.log)
            one.start()
            time.sleep(5)
        self.assertEqual(set(self.states().values()), {"ready"})
        self.end(gateway)


if __name__ == "__main__":
    gateway_fixture.BINARY = gateway_discovery_test.gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *[word for word in sys.argv[2:] if word != "--full"]], verbosity=2)
