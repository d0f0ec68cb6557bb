#!/usr/bin/env python3
"""An autoscaler that is a process of its own beside what an operator does meanwhile: another one that only advises, a file that has another pool
or none, a reload amid replicas that run, signals. Replicas are processes with scripted answers.

usage: autoscale_apart_test.py BINARY
"""
import json
import os
import signal
import sys
import tempfile
import threading
import time
import unittest

import autoscale_test
import gateway_fixture
from autoscale_test import Scaled, alive
from gateway_fixture import Process, ask, chat, check_stream
from ports import free_port


class Apart(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def scaled(self, apart=True, **more):
        fleet = Scaled(self.folder, apart=apart, **more)
        self.addCleanup(fleet.close)
        return fleet

    def beside(self, fleet, *flags, **changes):
        """Another autoscaler of the same gateway, with a folder and a port of its own; and where it listens."""
        port = free_port()
        text = fleet.config.read_text().replace(str(fleet.state), str(fleet.folder / "other")).replace(str(fleet.scaler_port), str(port))
        for key, value in changes.items():
            text = text.replace("[pool.scale]", f'[pool.scale]\n{key} = "{value}"')
        config = fleet.folder / "beside.toml"
        config.write_text(text)
        scaler = Process("autoscale", "--config", config, *flags)
        self.addCleanup(lambda: scaler.process.poll() is None and scaler.end(signal.SIGTERM))
        return scaler, port

    def test_who_advises_takes_nothing_from_the_one_that_acts(self):
        fleet = self.scaled(scale="min = 1\nhold_seconds = 3")
        fleet.wait_for("ready")
        for flags, changes in ((["--advise"], {}), ([], {"mode": "advise"})):
            with self.subTest(flags):
                adviser, port = self.beside(fleet, *flags, **changes)
                # It hears what the other one hears.
                fleet.wait(lambda: check_stream(fleet.port, 1, 20, 1) is None
                           and json.loads(ask(port, "GET", "/v1/autoscaler")[1])["pools"][0]["terms"]["rate"] > 0)
                rows = json.loads(ask(fleet.admin, "GET", "/v1/workers")[1])["workers"]
                self.assertEqual([row["state"] for row in rows], ["ready"])
                self.assertIsNone(fleet.scaler.process.poll(), list(fleet.scaler.log)[-5:])
                adviser.end(signal.SIGTERM)
                self.assertEqual(adviser.process.returncode, 0, list(adviser.log)[-5:])
                self.assertFalse([line for line in adviser.log if "is started" in line])
        self.assertEqual(len(fleet.starts()), 1)

    def test_what_one_that_advises_has_seen_reaches_the_one_that_acts(self):
        """Exchanges by hand. A request that does not wait stands in one report: the adviser's must not be the only one."""
        fleet = self.scaled(scale="hold_seconds = 1")
        fleet.scaler.end(signal.SIGKILL)

        def exchange(epoch, **more):
            pool = {"pool": "box", "state": "cold", "retirement": 0}
            status, text = ask(fleet.admin, "POST", "/v1/autoscaler/exchange",
                               {"epoch": epoch, "launched": [], "draining": [], "pools": [pool], **more})
            self.assertEqual(status, 200, text)
            return json.loads(text)["pools"][0]["report"]["held"]
        newest = int(time.time() * 1000) + 1000
        self.assertEqual(exchange(newest), 0)
        status, text = ask(fleet.port, "POST", "/v1/chat/completions", chat(1, 20, 1), **{"x-pelton-cold-start": "fail"})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "model_starting"), text)
        away = {"pool": "box", "host": "127.0.0.1", "port": 4}
        self.assertEqual(exchange(1, advises=True, launched=[away]), 1, "an older one, and it is answered")
        self.assertEqual(json.loads(ask(fleet.admin, "GET", "/v1/workers")[1])["workers"], [], "it orders nothing")
        self.assertEqual([exchange(newest), exchange(newest)], [1, 0])

    def test_the_first_request_at_zero_waits_for_no_tick(self):
        """A decision is due every two seconds. A request that is held is one by itself."""
        fleet = self.scaled()
        took = []
        for cycle in range(2):
            fleet.wait_for("cold")
            fleet.wait(lambda before=cycle: sum(alive(pid) for pid in fleet.starts()) == 0 and len(fleet.starts()) == before)
            asked = threading.Thread(target=check_stream, args=(fleet.port, cycle, 20, cycle))
            begin = time.monotonic()
            asked.start()
            fleet.wait(lambda before=cycle: len(fleet.starts()) > before)
            took.append(time.monotonic() - begin)
            asked.join()
        self.assertLess(min(took), 1, took)

    def test_a_standby_gateway_that_is_killed_amid_a_start_costs_no_answer(self):
        """Two gateways of one autoscaler; nobody asks the second one, which is gone when the first one's replica comes."""
        fleet = self.scaled()
        fleet.scaler.end(signal.SIGTERM)
        text, admin = fleet.config.read_text(), free_port()
        config = fleet.folder / "standby.toml"
        config.write_text(text.replace(f'admin = "127.0.0.1:{fleet.admin}"', f'admin = "127.0.0.1:{admin}"'))
        standby = Process("gateway", "--config", config)
        self.addCleanup(lambda: standby.process.poll() is None and standby.end())
        both = fleet.folder / "both.toml"
        both.write_text(text.replace("gateways = [", f'gateways = ["http://127.0.0.1:{admin}", '))
        fleet.scaler = Process("autoscale", "--config", both)
        fleet.wait(lambda: json.loads(ask(fleet.scaler_port, "GET", "/v1/autoscaler")[1])["pools"][0]["reason"] == "demand")
        threads, faults = autoscale_test.Autoscale.at_once(self, fleet, range(1, 21))
        fleet.wait(lambda: len(fleet.starts()) == 1)
        standby.end(signal.SIGKILL)
        for one in threads:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        self.assertEqual(len(fleet.starts()), 1)

    def test_a_hang_up_ends_no_autoscaler(self):
        fleet = self.scaled()
        for _ in range(2):
            before = len(fleet.log("SIGHUP is ignored: what has changed in the file takes a new start"))
            fleet.scaler.process.send_signal(signal.SIGHUP)
            fleet.wait(lambda count=before: fleet.scaler.process.poll() is not None or len(fleet.log("SIGHUP is ignored")) > count)
            self.assertIsNone(fleet.scaler.process.poll(), list(fleet.scaler.log)[-5:])
        check_stream(fleet.port, 1, 20, 1)

    def test_a_pool_that_the_gateways_file_lacks_stops_no_other(self):
        """The autoscaler's file has one more, with a replica that runs: the other pool is scaled from nothing all the same."""
        fleet = self.scaled(scale="hold_seconds = 20")
        fleet.scaler.end(signal.SIGTERM)
        text = fleet.config.read_text()
        pool = text[text.index("[[pool]]"):].replace('"box"', '"other"').replace('"pelton-box"', '"other"').replace("max = 1", "min = 1\nmax = 1")
        config = fleet.folder / "more.toml"
        config.write_text(text + pool)
        fleet.scaler = Process("autoscale", "--config", config)
        fleet.wait(lambda: fleet.log("replica other-0 is started"))
        replica = fleet.state / "other.0.out"
        fleet.wait(lambda: replica.exists() and "fleet on" in replica.read_text())
        time.sleep(0.5)  # its address is in the orders now
        check_stream(fleet.port, 1, 20, 1)
        self.assertEqual(len(fleet.starts()), 2)
        self.assertEqual(len(fleet.log("its file has no [pool.scale] of 'other'")), 1)
        workers = json.loads(ask(fleet.admin, "GET", "/v1/workers")[1])["workers"]
        self.assertEqual([one["pool"] for one in workers], ["box"], "nothing is sent to the replicas of the other one")

    def test_a_reload_that_names_other_scaled_pools_is_refused_and_its_replicas_serve(self):
        fleet = self.scaled(apart=False, scale="min = 1\nhold_seconds = 5")
        fleet.wait_for("ready")
        right = fleet.config.read_text()
        pool = right[right.index("[[pool]]"):]
        added = right + pool.replace('"box"', '"second"').replace('"pelton-box"', '"second"')
        for text, words in ((right.replace('name = "box"', 'name = "bix"'), "pool 'box' is scaled, and the file has none of this name any more"),
                            (right.replace('"pelton-box"', '"other"'), "are called 'pelton-box', and its 'model' is 'other' now"),
                            (added, "pool 'second' is new, and has [pool.scale]")):
            with self.subTest(words):
                fleet.config.write_text(text)
                fleet.gateway.process.send_signal(signal.SIGHUP)
                fleet.wait(lambda said=words: fleet.log(said))
                self.assertIn(words, json.loads(ask(fleet.admin, "GET", "/v1/config/state")[1])["error"])
                check_stream(fleet.port, 1, 20, 1)
                self.assertEqual(fleet.card()["state"], "ready")
        self.assertFalse(fleet.log("is read anew"))
        # What it holds of such a pool it may change, for the next start.
        fleet.config.write_text(right.replace("max = 1", "max = 2"))
        fleet.gateway.process.send_signal(signal.SIGHUP)
        fleet.wait(lambda: fleet.log("[pool.scale]: changed in the file, which takes a new start"))
        check_stream(fleet.port, 2, 20, 2)
        self.assertEqual(len(fleet.starts()), 1)
        # Of another pool it begins with the next start.
        before = len(fleet.log("[pool.scale]: changed in the file"))
        fleet.config.write_text(right + '[[pool]]\nname = "plain"\nmodel = "plain"\n')
        fleet.gateway.process.send_signal(signal.SIGHUP)
        fleet.wait(lambda: "plain" in ask(fleet.admin, "GET", "/v1/config?form=effective")[1])
        fleet.config.write_text(right + '[[pool]]\nname = "plain"\nmodel = "plain"\n[pool.scale]\nmax = 3\n')
        fleet.gateway.process.send_signal(signal.SIGHUP)
        fleet.wait(lambda: len(fleet.log("[pool.scale]: changed in the file")) > before)
        self.assertEqual(ask(fleet.admin, "GET", "/v1/config?form=effective")[1].count("[pool.scale]"), 1)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
