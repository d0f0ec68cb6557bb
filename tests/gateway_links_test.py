#!/usr/bin/env python3
"""What lies between a gateway and its workers: networks that part, break or crawl, other gateways beside it, other versions and other keys.
Workers stand behind a proxy that does to bytes what it is asked to; every character of every answer is checked.

usage: gateway_links_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import BOX, Fleet, Process, Replicas, ask, chat, check_stream
from ports import free_port
from tiers import full

CHAT = "/v1/chat/completions"


class Proxy:
    """TCP to one port, until it is asked for less: `to` and `fro` are "pass", "hold" (nothing arrives, nothing breaks) or "crawl" (a byte
    at a time)."""

    def __init__(self, port):
        self.target, self.to, self.fro, self.links, self.still = port, "pass", "pass", [], set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.links += [near, far]
            threading.Thread(target=self.pump, args=(near, far, "to"), daemon=True).start()
            threading.Thread(target=self.pump, args=(far, near, "fro"), daemon=True).start()

    def pump(self, source, sink, way):
        try:
            while True:
                if not select.select([source], [], [], 0.05)[0]:
                    continue
                mode = "hold" if source in self.still else getattr(self, way)
                if mode == "hold":
                    time.sleep(0.02)
                    continue
                data = source.recv(65536)
                if not data:
                    break
                for piece in ([data] if mode == "pass" else [data[i:i + 1] for i in range(len(data))]):
                    sink.sendall(piece)
        except (OSError, ValueError):
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def reset(self):
        """All that there are."""
        links, self.links = self.links, []
        for one in links:
            try:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.close()
            except OSError:
                pass

    def close(self):
        self.listener.close()
        self.reset()


class Links(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def fleet(self, workers, **more):
        fleet = Replicas(self.folder, workers, **more)
        self.addCleanup(fleet.close)
        return fleet

    def proxied(self, workers, **more):
        """A fleet whose gateway reaches its workers through proxies only."""
        fleet = self.fleet(workers, **more)
        self.proxies = [Proxy(port) for port in fleet.ports]
        for one in self.proxies:
            self.addCleanup(one.close)
        fleet.configure([one.port for one in self.proxies])
        self.wait(lambda: {row["address"] for row in fleet.rows()} == {f"127.0.0.1:{one.port}" for one in self.proxies})
        fleet.wait_for(workers)
        return fleet

    def wait(self, what):
        end = time.monotonic() + 20
        while not what() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertTrue(what())

    def streams(self, port, numbers, count):
        """Threads that check a stream each, and what they raised."""
        raised = []

        def one(number):
            try:
                check_stream(port, number, count, number)
            except Exception as error:
                raised.append(repr(error)[:600])
        threads = [threading.Thread(target=one, args=(number,)) for number in numbers]
        for thread in threads:
            thread.start()
        return threads, raised

    def join(self, streams):
        threads, raised = streams
        for thread in threads:
            thread.join()
        self.assertEqual(raised, [])

    def state_of(self, fleet, proxy):
        return next(row["state"] for row in fleet.rows() if row["address"] == f"127.0.0.1:{proxy.port}")

    def check_parted(self, **modes):
        fleet = self.proxied(3)
        streams = self.streams(fleet.gateway.port, range(100, 118), 300)
        self.wait(lambda: all(row["running"] for row in fleet.rows()))
        victim = self.proxies[0]
        for way, mode in modes.items():
            setattr(victim, way, mode)
        self.wait(lambda: self.state_of(fleet, victim) == "down")
        self.join(streams)
        self.assertGreater(fleet.metric("migrations_total"), 0)
        self.join(self.streams(fleet.gateway.port, range(200, 206), 30))
        # Healed: what was said behind the gateway's back is nobody's.
        victim.to = victim.fro = "pass"
        fleet.wait_for(3)
        self.join(self.streams(fleet.gateway.port, range(300, 312), 60))
        self.assertEqual(fleet.metric("streams_interrupted_total"), 0)

    def test_FT_26_a_network_parts_and_heals(self):
        """Nothing arrives, nothing breaks: its answers go on elsewhere, and behind it nothing comes twice."""
        self.check_parted(to="hold", fro="hold")

    @full
    def test_FT_27_a_network_parts_one_way(self):
        """The worker hears the gateway and is not heard."""
        self.check_parted(fro="hold")

    @full
    def test_a_connection_that_stands_still_is_left_while_its_watch_goes_on(self):
        """Nothing comes of its answers and nothing breaks, and its reports say that it is well: they go on elsewhere."""
        fleet = self.proxied(3)
        victim = self.proxies[0]
        streams = self.streams(fleet.gateway.port, range(100, 112), 600)
        whole, raised = [], []

        def unstreamed():
            try:
                status, text = ask(fleet.gateway.port, "POST", CHAT, chat(50, 600, 50))
                whole.append((status, json.loads(text)["choices"][0]["message"]["content"]))
            except Exception as error:
                raised.append(repr(error)[:600])
        waiting = [threading.Thread(target=unstreamed) for _ in range(6)]
        for one in waiting:
            one.start()
        self.wait(lambda: all(row["running"] >= 3 for row in fleet.rows()))
        victim.still = set(victim.links[2:])  # all but the watch, which was opened first
        states = set()
        while any(thread.is_alive() for thread in [*streams[0], *waiting]):
            states.add(self.state_of(fleet, victim))
            time.sleep(0.1)
        self.join(streams)
        self.join((waiting, raised))
        self.assertEqual(whole, [(200, gateway_fixture.letters(50, 50, 600))] * 6)
        self.assertNotIn("down", states, "only its answers stood still")
        self.assertGreater(fleet.metric("migrations_total"), 0)
        self.assertEqual((fleet.metric("streams_interrupted_total"), fleet.metric("quarantined_total")), (0, 0))

    def test_one_worker_by_two_addresses_is_one(self):
        fleet = self.fleet(2)
        proxy = Proxy(fleet.ports[0])
        self.addCleanup(proxy.close)
        fleet.configure([*fleet.ports, proxy.port])
        self.wait(lambda: len(fleet.rows()) == 3 and self.state_of(fleet, proxy) == "unverified")
        twin = next(row for row in fleet.rows() if row["address"] == f"127.0.0.1:{proxy.port}")
        self.assertIn(f"it is the worker w-0 at 127.0.0.1:{fleet.ports[0]}, which is reached by two addresses", twin["reason"])
        for number in range(8):
            check_stream(fleet.gateway.port, number, 20, number)
        self.assertEqual(next(row for row in fleet.rows() if row["address"] == f"127.0.0.1:{proxy.port}")["requests"], 0)
        # It is reached by one of them no more.
        fleet.configure([fleet.ports[1], proxy.port])
        self.wait(lambda: [row["state"] for row in fleet.rows()] == ["ready", "ready"])

    def test_a_gateway_that_is_stopped_says_so(self):
        """What has not ended within drain_seconds ends with an error, and nothing is taken for a whole answer."""
        fleet = self.fleet(2)
        other, said = self.other_gateway(fleet, lambda text: text.replace("[gateway]\n", "[gateway]\ndrain_seconds = 0.5\n")), []

        def stream(path, body):
            link = http.client.HTTPConnection("127.0.0.1", other.port, timeout=30)
            link.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = link.getresponse()
            said.append((answer.status, answer.read().decode()))
            link.close()
        bodies = [(CHAT, {"model": "pelton-box", "stream": streamed, "seed": 1, "messages": [{"role": "user", "content": "check 1 1500 please"}]})
                  for streamed in (True, False)]
        bodies += [("/v1/responses", {"model": "pelton-box", "stream": True, "seed": 1, "input": "check 1 1500 please"})]
        threads = [threading.Thread(target=stream, args=one) for one in bodies]
        for one in threads:
            one.start()
        self.wait(lambda: sum(row["running"] for row in fleet.rows()) == 3)
        other.process.send_signal(signal.SIGTERM)
        self.assertEqual(other.process.wait(10), 0)
        for one in threads:
            one.join()
        said.sort()
        self.assertEqual([status for status, _ in said], [200, 200, 503])
        self.assertEqual(json.loads(said[2][1])["error"]["code"], "gateway_stopped")
        for _, text in said[:2]:
            self.assertIn("stream_interrupted", text)
            self.assertNotIn("[DONE]", text)
        responses = next(text for _, text in said[:2] if "response.created" in text)
        numbers = [json.loads(line[6:])["sequence_number"] for line in responses.splitlines() if line.startswith("data: ")]
        self.assertEqual(numbers, list(range(len(numbers))))
        self.wait(lambda: sum(row["running"] for row in fleet.rows()) == 0)

    def test_an_operator_moves_a_workers_answers(self):
        fleet = self.fleet(2)
        streams = self.streams(fleet.gateway.port, range(8), 900)
        while not all(row["running"] for row in fleet.rows()) or sum(row["running"] for row in fleet.rows()) < 8:
            time.sleep(0.02)
        subprocess.run([gateway_fixture.BINARY, "fleet", "move", "w-0", "--admin", f"http://127.0.0.1:{fleet.admin}"], check=True, timeout=20)
        while fleet.metric("requests_open") == 8 and next(row for row in fleet.rows() if row["name"] == "w-0")["running"] > 0:
            time.sleep(0.02)
        self.assertEqual(fleet.metric("requests_open"), 8, "they go on, at the other one")
        self.join(streams)
        self.assertGreater(fleet.metric("drain_moves_total"), 0)
        row = next(row for row in fleet.rows() if row["name"] == "w-0")
        self.assertEqual((row["state"], row["reason"]), ("draining", "by an operator"))
        ask(fleet.admin, "POST", "/v1/workers/w-0/undrain")
        fleet.wait_for(2)

    @full
    def test_a_pool_that_is_renamed_keeps_its_answers(self):
        fleet = self.fleet(2)
        streams = self.streams(fleet.gateway.port, range(100, 106), 900)
        self.wait(lambda: all(row["running"] for row in fleet.rows()))
        fleet.head = fleet.head.replace('name = "box"', 'name = "other"')
        fresh = self.folder / "fresh.toml"
        fresh.write_text(fleet.head + "".join(f'[[worker]]\npool = "other"\nurl = "http://127.0.0.1:{port}"\n' for port in fleet.ports))
        fresh.rename(fleet.config)
        self.wait(lambda: {row["pool"] for row in fleet.rows()} == {"other"})
        fleet.fault(0, hang=True)
        self.join(streams)
        self.assertGreater(fleet.metric("migrations_total"), 0)
        self.assertEqual(fleet.metric("streams_interrupted_total"), 0)

    @full
    def test_FT_28_a_network_breaks_and_crawls(self):
        fleet = self.proxied(2)
        over = threading.Event()

        def breaks():
            while not over.wait(0.25):
                self.proxies[int(time.monotonic() * 4) % 2].reset()
        breaking = threading.Thread(target=breaks)
        streams = self.streams(fleet.gateway.port, range(400, 416), 200)
        breaking.start()
        self.join(streams)
        over.set()
        breaking.join()
        self.assertGreater(fleet.metric("migrations_total"), 0)
        for row in fleet.rows():  # whose connections broke so often they are out for a while
            ask(fleet.admin, "POST", f"/v1/workers/{row['name']}/restore")
        fleet.wait_for(2)
        for one in self.proxies:
            one.to = one.fro = "crawl"
        self.join(self.streams(fleet.gateway.port, range(500, 504), 20))
        self.assertEqual(fleet.metric("streams_interrupted_total"), 0)

    def other_gateway(self, fleet, change=lambda text: text):
        path = self.folder / f"other{free_port()}.toml"
        path.write_text(change("".join(line for line in fleet.config.read_text().splitlines(True) if not line.startswith("admin"))))
        other = Process("gateway", "--config", path)
        self.addCleanup(lambda: other.process.poll() is None and other.end())
        self.wait(lambda: ask(other.port, "GET", "/ready")[0] == 200)
        return other

    def test_FT_21_a_gateway_is_killed(self):
        """Its streams break at their clients and are no whole ones, its workers do nothing more for them, and another one serves."""
        fleet = self.fleet(2)
        other = self.other_gateway(fleet)
        broken = []

        def stream(number):
            try:
                check_stream(other.port, number, 900, number)
                broken.append("whole")
            except (AssertionError, OSError, http.client.HTTPException):
                broken.append("broken")
        threads = [threading.Thread(target=stream, args=(number,)) for number in range(8)]
        for one in threads:
            one.start()
        self.wait(lambda: sum(row["running"] for row in fleet.rows()) == 8)
        other.end()
        self.join(self.streams(fleet.gateway.port, range(20, 24), 60))
        for one in threads:
            one.join()
        self.assertEqual(broken, ["broken"] * 8)
        self.wait(lambda: sum(row["running"] for row in fleet.rows()) == 0)

    @full
    def test_FT_25_gateways_of_other_minds_answer_alike(self):
        """One knows what workers hold and one does not; which worker computes an answer is nobody's business."""
        fleet = self.fleet(3, pool=f'tokenizer = "{BOX}"\n')
        other = self.other_gateway(fleet, lambda text: text.replace(f'tokenizer = "{BOX}"\n', ""))
        for number in range(12):
            for port in (fleet.gateway.port, other.port):
                check_stream(port, number, 40, number)
        self.assertEqual(fleet.metric("hit_mismatch_total"), 0)

    def test_FT_23_a_worker_of_another_version_gets_nothing(self):
        """Its record says a protocol that this gateway does not speak: it is left out with the reason, and the others serve."""
        from gateway_wire_test import Worker, sound
        old, new = Worker("old", sound), Worker("new", sound)
        new.record["protocol"] = 2
        for one in (old, new):
            self.addCleanup(one.close)
        admin = free_port()
        config = self.folder / "versions.toml"
        config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{admin}"\n[[pool]]\nname = "p"\nmodel = "m"\n' +
                          "".join(f'[[worker]]\npool = "p"\nurl = "http://127.0.0.1:{one.server_port}"\n' for one in (old, new)))
        gateway = Process("gateway", "--config", config)
        self.addCleanup(gateway.end)
        self.wait(lambda: ask(gateway.port, "GET", "/ready")[0] == 200)
        for _ in range(6):
            status, text = ask(gateway.port, "POST", CHAT, {"model": "m", "messages": [{"role": "user", "content": "x"}]})
            self.assertEqual((status, text), (200, '{"answer": "abcd"}'))
        self.assertEqual((len(old.runs), len(new.runs)), (6, 0))
        rows = {row["address"]: row for row in json.loads(ask(admin, "GET", "/v1/workers")[1])["workers"]}
        self.assertIn("protocol", rows[f"127.0.0.1:{new.server_port}"]["reason"])
        # Rolled back.
        new.record["protocol"] = 1
        new.incarnation = "new-2"
        self.wait(lambda: all(row["state"] == "ready" for row in json.loads(ask(admin, "GET", "/v1/workers")[1])["workers"]))

    @full
    def test_the_fleets_key_is_rotated_under_load(self):
        """Workers take both keys first, then gateways make with the new one, then the old one goes; no stream minds."""
        fleet = Fleet(self.folder, 2)
        self.addCleanup(fleet.close)
        old = fleet.key.read_text()
        fresh = self.folder / "fresh.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", fresh], check=True)
        new = fresh.read_text()
        over, raised, gateways = threading.Event(), [], [fleet.gateway.port]

        def load(number):
            while not over.is_set():
                try:
                    check_stream(gateways[-1], number, 60, number)
                except Exception as error:
                    raised.append(repr(error)[:600])
        threads = [threading.Thread(target=load, args=(number,)) for number in range(6)]
        for one in threads:
            one.start()

        def restart(text):
            fleet.key.write_text(text)
            for i in range(2):
                fleet.workers[i].process.send_signal(signal.SIGTERM)
                self.assertEqual(fleet.workers[i].process.wait(30), 0)
                fleet.workers[i].end()
                fleet.start(i)
                self.wait(lambda: ready() == 2)

        def ready():
            states = [row["state"] for row in json.loads(ask(fleet.admin, "GET", "/v1/workers")[1])["workers"]]
            return states.count("ready")
        restart(old + new)
        # A gateway with the new key beside the old one, for new streams; then the old one goes when its own are over.
        fleet.key.write_text(new + old)
        fleet.admin = free_port()
        path = self.folder / "rotated.toml"
        path.write_text("".join(f'admin = "127.0.0.1:{fleet.admin}"\n' if line.startswith("admin") else line
                                for line in fleet.config.read_text().splitlines(True)))
        first, fleet.gateway = fleet.gateway, Process("gateway", "--config", path)
        self.wait(lambda: ready() == 2)
        gateways.append(fleet.gateway.port)
        first.process.send_signal(signal.SIGTERM)
        self.assertEqual(first.process.wait(30), 0)
        first.end()
        restart(new)
        over.set()
        for one in threads:
            one.join()
        self.assertEqual(raised, [])
        self.assertEqual(fleet.metric("streams_interrupted_total"), 0)

    def test_RB_01_what_a_worker_refuses_it_does_not_hold(self):
        """Its prompt was named and expected at a worker, which refused it: soon nobody expects it there."""
        fleet = self.fleet(2, pool=f'tokenizer = "{BOX}"\n')
        body = {**chat(1, 5, 1), "messages": [{"role": "user", "content": "The miller counts his sacks by the river. " * 40}]}
        status, text = ask(fleet.gateway.port, "POST", CHAT, {**body, "response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"type": "nonsense"}}}})
        self.assertEqual(status, 400, text)

        def expected():
            decision = json.loads(ask(fleet.admin, "POST", "/v1/explain", body)[1])
            return max(one["hit_tokens"] for one in decision["candidates"])
        self.wait(lambda: expected() == 0)
        self.assertEqual(ask(fleet.gateway.port, "POST", CHAT, body)[0], 200)
        self.wait(lambda: expected() > 100)
        self.assertEqual(fleet.metric("hit_mismatch_total"), 0)


class Twins(Fleet):
    """Workers that all say the same name of themselves."""

    name = "twin"

    def start(self, i):
        self.workers[i] = Process("serve", BOX, "--executor", f"modelled:{self.script}", "--port", "0", "--fleet-port", self.ports[i],
                                  "--fleet-name", self.name, "--fleet-key-file", self.key)


class Names(unittest.TestCase):
    def test_of_two_workers_of_one_name_each_is_commanded_by_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            fleet = Twins(folder, 2)
            self.addCleanup(fleet.close)
            names = sorted(row["name"] for row in fleet.rows())
            self.assertEqual(len(set(names)), 2, names)
            self.assertIn("twin", names)
            for name in names:
                self.assertEqual(ask(fleet.admin, "POST", f"/v1/workers/{name}/drain")[0], 200)
                states = {row["name"]: row["state"] for row in fleet.rows()}
                self.assertEqual(states[name], "draining")
                self.assertEqual(sum(state == "draining" for state in states.values()), 1, states)
                self.assertEqual(ask(fleet.admin, "POST", f"/v1/workers/{name}/undrain")[0], 200)

    @full
    def test_who_is_down_gives_its_name_to_who_has_it_now(self):
        with tempfile.TemporaryDirectory() as folder:
            fleet = Twins(folder, 1)
            self.addCleanup(fleet.close)
            self.assertEqual([row["name"] for row in fleet.rows()], ["twin"])
            fleet.kill(0)
            fleet.wait_for(0)
            fleet.ports.append(free_port())
            fleet.workers.append(None)
            fleet.start(1)
            fleet.configure(fleet.ports)
            fleet.wait_for(1)
            row = next(row for row in fleet.rows() if row["state"] == "ready")
            self.assertEqual(row["name"], "twin")


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *[word for word in sys.argv[2:] if word != "--full"]], verbosity=2)
