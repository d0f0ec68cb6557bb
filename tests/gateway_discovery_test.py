#!/usr/bin/env python3
"""Workers that a gateway finds: in etcd (a real one, on the loopback), and as endpoints of a Kubernetes service (an API server of this
test's own). What finds them may stop, lose its memory or come back as it was an hour ago: no request minds.

usage: gateway_discovery_test.py BINARY
"""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import BOX, SCRIPT, Process, ask, chat, check_stream
from ports import free_port
from kubernetes_api import ApiServer
from tiers import FULL



class Etcd:
    def __init__(self, folder, tls=None, more=()):
        self.folder, self.client, self.peer, self.tls, self.more = folder, free_port(), free_port(), tls, more
        self.start()

    def start(self):
        client, peer = f"http{'s' if self.tls else ''}://127.0.0.1:{self.client}", f"http://127.0.0.1:{self.peer}"
        secure = ["--cert-file", self.tls[0], "--key-file", self.tls[1]] if self.tls else []
        quick = ["--unsafe-no-fsync"] if self.has_no_fsync() else []
        members = [] if "--initial-cluster" in self.more else ["--initial-cluster", f"default={peer}"]
        self.process = subprocess.Popen(
            ["etcd", "--data-dir", self.folder, "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
             "--initial-advertise-peer-urls", peer, *members, *quick, *secure, *self.more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @staticmethod
    def has_no_fsync():
        return "unsafe-no-fsync" in subprocess.run(["etcd", "--help"], capture_output=True, text=True, check=False).stdout

    def end(self):
        self.process.kill()
        self.process.wait()

    @property
    def endpoint(self):
        return f"127.0.0.1:{self.client}"


class NameServer(threading.Thread):
    """Over UDP: the ports of one service, whose host is this machine."""
    SRV, A = 33, 1

    def __init__(self, service, host, ports):
        super().__init__(daemon=True)
        self.service, self.host, self.ports, self.knows = service, host, ports, True
        self.link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.link.bind(("127.0.0.1", 0))
        self.port = self.link.getsockname()[1]
        self.start()

    @staticmethod
    def name(text):
        return b"".join(bytes([len(label)]) + label.encode() for label in text.split(".")) + b"\0"

    def run(self):
        while True:
            try:
                asked, client = self.link.recvfrom(4096)
            except OSError:
                return
            end = asked.index(b"\0", 12) + 5
            name, kind = asked[12:end - 4], int.from_bytes(asked[end - 4:end - 2], "big")
            records = []
            if name == self.name(self.service) and kind == self.SRV:
                records = [struct.pack(">3H", 1, 10, port) + self.name(self.host) for port in self.ports]
            if name == self.name(self.host) and kind == self.A:
                records = [bytes([127, 0, 0, 1])]
            status = 0x8180 if self.knows else 0x8183  # no such name
            records = records if self.knows else []
            self.link.sendto(asked[:2] + struct.pack(">5H", status, 1, len(records), 0, 0) + asked[12:end] + b"".join(
                struct.pack(">3HIH", 0xC00C, kind, 1, 5, len(one)) + one for one in records), client)

    def close(self):
        self.link.close()


def endpoint(address="127.0.0.1", **conditions):
    return {"addresses": [address], "conditions": {"ready": True, **conditions}, "zone": "a", "nodeName": "n"}


class Discovery(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "script.json").write_text(json.dumps(SCRIPT))
        self.key = self.folder / "fleet.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", self.key], check=True)

    def worker(self, name, *flags):
        one = Process("serve", BOX, "--executor", f"modelled:{self.folder}/script.json", "--port", "0", "--fleet-name", name,
                      "--fleet-key-file", self.key, *flags)
        self.addCleanup(lambda: one.process.poll() is None and one.end())
        return one

    def gateway(self, text, pool=""):
        self.admin = free_port()
        config = self.folder / f"gateway{self.admin}.toml"
        config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{self.admin}"\nfleet_key_file = "{self.key}"\n{text}\n'
                          f'[[pool]]\nname = "box"\nmodel = "pelton-box"\n{pool}')
        one = Process("gateway", "--config", config)
        self.addCleanup(one.end)
        return one

    def rows(self):
        return json.loads(ask(self.admin, "GET", "/v1/workers")[1])["workers"]

    def states(self):
        return {row["name"]: row["state"] for row in self.rows()}

    def wait(self, what, log=()):
        end = time.monotonic() + 30
        while not what() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertTrue(what(), (self.states(), [line[:300] for line in list(log)[-10:]]))

    def streams_until(self, gateway, over, faults):
        number = 0
        while not over.is_set():
            number += 1
            try:
                check_stream(gateway.port, number, 60, number)
            except Exception as error:
                faults.append(repr(error)[:600])

    @unittest.skipUnless(shutil.which("etcd"), "etcd-server is not installed")
    def test_workers_register_in_etcd(self):
        """FT-45, FT-46, FT-59: etcd stops for ten seconds, is lost and comes back empty; nothing that answers is taken out."""
        etcd = Etcd(self.folder / "etcd")
        self.addCleanup(lambda: etcd.end())
        flags = ("--fleet-port", "0", "--fleet-etcd", etcd.endpoint, "--fleet-pool", "box")
        workers = [self.worker(name, *flags) for name in ("one", "two")]
        gateway = self.gateway(f'allowed_cidrs = ["127.0.0.0/8"]\n[etcd]\nendpoints = ["{etcd.endpoint}"]\n')
        self.wait(lambda: self.states() == {"one": "ready", "two": "ready"}, gateway.log)
        over, faults = threading.Event(), []
        self.addCleanup(over.set)
        clients = [threading.Thread(target=self.streams_until, args=(gateway, over, faults)) for _ in range(4)]
        for one in clients:
            one.start()
        etcd.process.send_signal(signal.SIGSTOP)
        third = self.worker("three", *flags)
        time.sleep(10 if FULL else 4)
        self.assertEqual(self.states(), {"one": "ready", "two": "ready"}, "nobody is taken out")
        etcd.process.send_signal(signal.SIGCONT)
        self.wait(lambda: self.states().get("three") == "ready", gateway.log)
        # Lost with its data: what answers stays, and registers anew.
        etcd.end()
        shutil.rmtree(etcd.folder)
        etcd.start()
        fourth = self.worker("four", *flags)
        self.wait(lambda: self.states().get("four") == "ready", gateway.log)
        self.assertEqual(set(self.states().values()), {"ready"})
        self.assertEqual(len(self.states()), 4)
        # One that ends is forgotten, and so is one that is killed, when its lease is over.
        workers[0].end(signal.SIGTERM)
        fourth.end(signal.SIGKILL)
        self.wait(lambda: set(self.states()) == {"two", "three"}, gateway.log)
        over.set()
        for one in clients:
            one.join()
        self.assertEqual(faults, [], list(gateway.log)[-20:])
        # A name is one process's: the second one ends by itself.
        twin = self.worker("two", *flags)
        self.assertEqual(twin.process.wait(40), 1, list(twin.log))
        self.assertIn("another worker is called 'two'", "".join(twin.log))
        self.assertEqual(self.states()["two"], "ready")
        self.assertIsNone(third.process.poll())

    @unittest.skipUnless(shutil.which("etcd"), "etcd-server is not installed")
    def test_gateways_share_a_keys_limits(self):
        """What three let in is what one would; who is asked for more has more of it; without etcd it stays so."""
        etcd = Etcd(self.folder / "etcd")
        self.addCleanup(lambda: etcd.end())
        keys = self.folder / "keys"
        keys.write_text("key acme rpm=60\n")
        flags = ("--fleet-port", "0", "--fleet-etcd", etcd.endpoint, "--fleet-pool", "box")
        self.worker("one", *flags)
        more = f'keys_file = "{keys}"\nallowed_cidrs = ["127.0.0.0/8"]\n[etcd]\nendpoints = ["{etcd.endpoint}"]\n'
        first = self.gateway(more)
        first_admin = self.admin
        second = self.gateway(more)
        second_admin = self.admin
        third = self.gateway(more)
        admins = (first_admin, second_admin, self.admin)

        def post(gateway):
            return ask(gateway.port, "POST", "/v1/chat/completions", chat(1, 2, 1), Authorization="Bearer key")[0]

        def metric(admin, name):
            text = ask(admin, "GET", "/metrics")[1]
            return float(next(line for line in text.splitlines() if line.startswith(f"pelton_gateway_{name} ")).split()[1])
        for gateway in (first, second, third):
            self.wait(lambda gateway=gateway: ask(gateway.port, "GET", "/ready")[0] == 200, gateway.log)
        self.wait(lambda: all(metric(admin, "limit_gateways") == 3 for admin in admins), first.log)
        began, served = time.monotonic(), 0
        while time.monotonic() - began < (60 if FULL else 4):
            served += sum(post(gateway) == 200 for gateway in (first, second, third))
        minutes = (time.monotonic() - began) / 60
        self.assertLessEqual(served, 60 * 1.05 + 60 * minutes + 2, "together no more than one gateway would let in")
        self.assertGreaterEqual(served, 40)
        # Only the first one is asked now: the other one's part is its own, but for a little.
        self.wait(lambda: (post(first), self.limit_of(first))[1] >= 55, first.log)
        etcd.process.send_signal(signal.SIGSTOP)
        time.sleep(5 if FULL else 2)
        self.assertGreaterEqual(self.limit_of(first), 55, "as it was")
        etcd.process.send_signal(signal.SIGCONT)
        # Those that are gone give their parts back, when their leases are over.
        second.end(signal.SIGKILL)
        third.end(signal.SIGKILL)
        self.admin = first_admin
        self.wait(lambda: metric(first_admin, "limit_gateways") == 1, first.log)
        self.wait(lambda: self.limit_of(first) == 60, first.log)

    def limit_of(self, gateway):
        link = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
        link.request("POST", "/v1/chat/completions", json.dumps(chat(1, 2, 1)), {"Content-Type": "application/json", "Authorization": "Bearer key"})
        answer = link.getresponse()
        answer.read()
        link.close()
        return int(answer.getheader("x-ratelimit-limit-requests"))

    def certificate(self, cert, key, names):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert,
                        "-days", "2", "-subj", "/CN=localhost", "-addext", f"subjectAltName={names}"], check=True, capture_output=True)

    @unittest.skipUnless(shutil.which("etcd"), "etcd-server is not installed")
    def test_etcd_by_password_and_over_tls(self):
        cert, key = self.folder / "cert.pem", self.folder / "key.pem"
        self.certificate(cert, key, "IP:127.0.0.1,DNS:localhost")
        genuine = cert.read_text()
        (self.folder / "genuine.pem").write_text(genuine)
        etcd = Etcd(self.folder / "etcd", tls=(cert, key))
        self.addCleanup(lambda: etcd.end())

        def call(what, **body):
            """etcd's own JSON over HTTPS; none: it does not answer yet."""
            try:
                link = http.client.HTTPSConnection("127.0.0.1", etcd.client, timeout=30, context=ssl.create_default_context(cafile=str(cert)))
                link.request("POST", f"/v3/{what}", json.dumps(body))
                return link.getresponse().status
            except OSError:
                return None
        end = time.monotonic() + 30
        while call("maintenance/status") != 200 and time.monotonic() < end:
            time.sleep(0.1)
        for what, body in (("auth/user/add", {"name": "root", "password": "secret"}), ("auth/role/add", {"name": "root"}),
                           ("auth/user/grant", {"user": "root", "role": "root"}), ("auth/enable", {})):
            self.assertEqual(call(what, **body), 200, what)
        password, wrong = self.folder / "password", self.folder / "wrong"
        password.write_text("secret\n")
        wrong.write_text("other\n")
        flags = ("--fleet-port", "0", "--fleet-etcd", etcd.endpoint, "--fleet-pool", "box", "--fleet-etcd-tls", "--fleet-etcd-ca", cert,
                 "--fleet-etcd-user", "root", "--fleet-etcd-password-file")
        self.worker("one", *flags, password)
        denied = self.worker("two", *flags, wrong)
        gateway = self.gateway(f'allowed_cidrs = ["127.0.0.0/8"]\n[etcd]\nendpoints = ["{etcd.endpoint}"]\ntls = true\nca_file = "{cert}"\n'
                               f'user = "root"\npassword_file = "{password}"\n')
        self.wait(lambda: self.states() == {"one": "ready"}, gateway.log)
        self.wait(lambda: "not registered" in "".join(denied.log))
        self.assertNotIn("secret", "".join(gateway.log) + "".join(denied.log))
        # ET-12, FT-29: who answers there now has a certificate of another authority, and then one of another host: nothing is written to it,
        # what was found serves on, and with the right one all goes on.
        for subject in ("IP:127.0.0.1", "IP:127.0.0.9"):
            other = [self.folder / f"other{subject[-1]}.{kind}" for kind in ("cert", "key")]
            self.certificate(*other, subject)
            if subject == "IP:127.0.0.9":  # of an authority that is believed
                cert.write_text(genuine + other[0].read_text())
            etcd.end()
            etcd.tls = other
            etcd.start()
            later = self.worker(f"later{subject[-1]}", *flags, password)
            self.wait(lambda: "not registered" in "".join(later.log))
            check_stream(gateway.port, 1, 20, 1)
            self.assertEqual(self.states(), {"one": "ready"})
        etcd.end()
        etcd.tls = (self.folder / "genuine.pem", key)
        etcd.start()
        self.wait(lambda: self.states() == {"one": "ready", "later1": "ready", "later9": "ready"}, gateway.log)

    @unittest.skipUnless(shutil.which("etcd"), "etcd-server is not installed")
    def test_a_worker_that_registers_a_strange_address_is_refused(self):
        """GW-04."""
        etcd = Etcd(self.folder / "etcd")
        self.addCleanup(lambda: etcd.end())
        flags = ("--fleet-etcd", etcd.endpoint, "--fleet-pool", "box")
        strange = ("169.254.169.254:80", "8.8.8.8:9101", "worker.example:9101", "0.0.0.0:9101")
        for i, address in enumerate(strange):
            self.worker(f"w{i}", "--fleet-port", "0", *flags, "--fleet-address", address)
        self.worker("local", "--fleet-port", "0", *flags)  # 127.0.0.1: this machine has not been allowed
        gateway = self.gateway(f'[etcd]\nendpoints = ["{etcd.endpoint}"]\n')
        for host in (*[address.rsplit(":", 1)[0] for address in strange], "127.0.0.1"):
            self.wait(lambda: f"a worker at {host} is refused" in "".join(gateway.log), gateway.log)
        self.assertEqual(self.rows(), [])
        listed = subprocess.run([gateway_fixture.BINARY, "fleet", "ls", "--admin", f"http://127.0.0.1:{self.admin}"], capture_output=True, text=True, check=True)
        self.assertEqual(listed.stdout, "the gateway knows of no worker\n")

    def test_a_names_service_records_are_workers(self):
        """FT-29: each record is a host and a port; while the name is not known, what was found stays."""
        ports = [free_port() for _ in range(3)]
        for i, port in enumerate(ports):
            self.worker(f"w{i}", "--fleet-port", port)
        names = NameServer("_fleet._tcp.workers.test", "here.workers.test", ports[:2])
        self.addCleanup(names.close)
        gateway = self.gateway(f'dns_server = "127.0.0.1:{names.port}"\n', 'dns_srv = "_fleet._tcp.workers.test"\n')
        self.wait(lambda: self.states() == {"w0": "ready", "w1": "ready"}, gateway.log)
        check_stream(gateway.port, 1, 20, 1)
        names.ports = ports[1:]
        gateway.process.send_signal(signal.SIGHUP)
        self.wait(lambda: self.states() == {"w1": "ready", "w2": "ready"}, gateway.log)
        names.knows = False
        gateway.process.send_signal(signal.SIGHUP)
        self.wait(lambda: "what was found before stays" in "".join(gateway.log), gateway.log)
        self.assertEqual(self.states(), {"w1": "ready", "w2": "ready"})
        check_stream(gateway.port, 2, 20, 2)

    def test_endpoints_of_a_service_are_workers(self):
        """Three slices; bookmarks, a version that is gone, a token that rotates, an API server that is away."""
        token = self.folder / "token"
        token.write_text("first\n")
        server = ApiServer("first")
        self.addCleanup(lambda: server.close())
        ports = [free_port() for _ in range(3)]
        workers = [self.worker(f"w{i}", "--fleet-port", port) for i, port in enumerate(ports)]
        server.put("pelton-a", [endpoint()], ports[0])
        server.put("pelton-b", [endpoint(ready=False)], ports[1])
        server.put("pelton-c", [endpoint(f"127.0.0.{i}", ready=False) for i in range(2, 200)], 1)
        gateway = self.gateway(f'[kubernetes]\napi = "http://127.0.0.1:{server.server_port}"\ntoken_file = "{token}"\n',
                               'kubernetes = "ml/pelton:fleet"\n')
        self.wait(lambda: self.states() == {"w0": "ready"}, gateway.log)
        self.assertEqual(server.lists, 3, "pages of one")
        server.put("pelton-b", [endpoint()], ports[1])
        self.wait(lambda: self.states() == {"w0": "ready", "w1": "ready"}, gateway.log)
        # One that ends: its streams go elsewhere, and nothing new comes.
        over, faults = threading.Event(), []
        self.addCleanup(over.set)
        clients = [threading.Thread(target=self.streams_until, args=(gateway, over, faults)) for _ in range(4)]
        for one in clients:
            one.start()
        server.put("pelton-a", [endpoint(ready=False, serving=True, terminating=True)], ports[0])
        self.wait(lambda: next(row["reason"] for row in self.rows() if row["name"] == "w0") != "", gateway.log)
        self.wait(lambda: next(row["running"] for row in self.rows() if row["name"] == "w0") == 0, gateway.log)
        server.delete("pelton-a")
        self.wait(lambda: self.states() == {"w1": "ready"}, gateway.log)
        # The token rotates; the old one is refused from then on. The history is gone: listed anew.
        lists = server.lists
        server.token = "second"
        token.write_text("second\n")
        server.oldest = server.version + 1000
        with server.changed:
            server.watches = -server.watches
        self.wait(lambda: server.lists > lists, gateway.log)
        server.oldest = 0
        server.put("pelton-d", [endpoint()], ports[2])
        self.wait(lambda: self.states() == {"w1": "ready", "w2": "ready"}, gateway.log)
        # The API server is away: what was found stays.
        server.close()
        with server.changed:
            server.watches = -server.watches
        self.wait(lambda: "what was found before stays" in "".join(gateway.log), gateway.log)
        time.sleep(0.5)
        self.assertEqual(self.states(), {"w1": "ready", "w2": "ready"})
        over.set()
        for one in clients:
            one.join()
        self.assertEqual(faults, [], list(gateway.log)[-20:])
        self.assertEqual(workers[0].process.poll(), None)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *[word for word in sys.argv[2:] if word != "--full"]], verbosity=2)
