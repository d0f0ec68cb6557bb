#!/usr/bin/env python3
"""Replicas that are somebody else's to start, and autoscalers of which one leads: pods of a Deployment (an API server of this test's own,
whose pods are processes), and two autoscalers over a real etcd. Whatever is killed costs no answer.
Batch jobs of a real Slurm: tests/slurm/autoscale_test.py.

usage: autoscale_launchers_test.py BINARY
"""
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
from autoscale_test import SCRIPT, alive
from gateway_discovery_test import Etcd
from gateway_fixture import BOX, Process, ask, check_stream
from ports import free_port
from kubernetes_workload import WorkloadApi
from tiers import full


class Scaler:
    """An autoscaler that may stand by, so that nothing is waited for. Like a supervisor, revive() starts one anew that has ended by itself:
    on a machine that is busy a lease may be over although nobody has done anything."""

    def __init__(self, config, *flags):
        self.words = [gateway_fixture.BINARY, "autoscale", "--config", config, *flags]
        self.log = []
        self.is_supervised = True
        self.start()

    def start(self):
        self.process = process = subprocess.Popen(self.words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=lambda: self.log.extend(iter(process.stderr.readline, "")), daemon=True)
        self.reader.start()

    def revive(self):
        if not self.is_supervised or self.process.poll() is None:
            return
        self.reader.join()
        self.process.stderr.close()
        self.start()

    def said(self, words):
        return [line for line in list(self.log) if words in line]

    def end(self, how):
        self.is_supervised = False
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(30)
        self.reader.join()
        self.process.stderr.close()
        return self.process.returncode


class Launchers(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.script = self.folder / "script.json"
        self.script.write_text(json.dumps(SCRIPT))
        self.scalers = []
        self.addCleanup(lambda: [one.end(signal.SIGKILL) for one in self.scalers])

    def configure(self, autoscaler="", scale="", launch="", more="", head="", pool=""):
        self.admin = free_port()
        self.config = self.folder / "gateway.toml"
        self.config.write_text(f"""[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:{self.admin}"
{head}
[autoscaler]
gateways = ["http://127.0.0.1:{self.admin}"]
{autoscaler}
{more}
[[pool]]
name = "box"
model = "pelton-box"
{pool}
[pool.scale]
window = 6
idle_to_zero = 1
scale_down_delay = 1
{scale}
""" + ("" if launch is None else f"""[pool.launch]
start_seconds = 1
{launch}
"""))
        self.gateway = Process("gateway", "--config", self.config)
        self.addCleanup(self.gateway.end)

    def scaler(self, *flags):
        self.scalers.append(Scaler(self.config, *flags))
        return self.scalers[-1]

    def wait(self, is_so, seconds=90):
        end = time.monotonic() + seconds
        while not is_so():
            for one in self.scalers:
                one.revive()
            assert time.monotonic() < end, ([one.log[-15:] for one in self.scalers], list(self.gateway.log)[-15:])
            time.sleep(0.01)

    def state(self):
        return json.loads(ask(self.gateway.port, "GET", "/v1/models/pelton-box")[1])["state"]

    def at_once(self, numbers, length=40):
        faults = []

        def client(number):
            try:
                check_stream(self.gateway.port, number, length, number)
            except Exception as error:  # whatever a client sees is a fault
                faults.append(f"{number}: {error!r}"[:600])
        threads = [threading.Thread(target=client, args=(number,)) for number in numbers]
        for one in threads:
            one.start()

        def ended():
            for one in threads:
                one.join()
            return faults
        return ended

    def test_pods_of_a_deployment_from_nothing_to_some_and_back(self):
        port = free_port()
        token = self.folder / "token"
        token.write_text("first")

        def start(address):
            return subprocess.Popen([gateway_fixture.BINARY, "serve", BOX, "--executor", f"modelled:{self.script}", "--port", "0",
                                     "--fleet-port", str(port), "--fleet-host", address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        api = WorkloadApi("first", start)
        self.addCleanup(api.close)
        self.configure(scale="max = 2", launch=f'kind = "kubernetes"\nworkload = "ml/deployment/box"\nport = {port}',
                       more=f'[kubernetes]\napi = "http://127.0.0.1:{api.server_port}"\ntoken_file = "{token}"')
        scaler = self.scaler()
        self.assertEqual(self.state(), "cold")
        # Killed amid a start: the next one finds the order in the cluster. The token has rotated meanwhile.
        ended = self.at_once(range(1, 31))
        self.wait(lambda: api.created > 0)
        scaler.end(signal.SIGKILL)
        api.token = "second"
        token.write_text("second\n")
        scaler = self.scaler()
        self.assertEqual(ended(), [])
        self.assertTrue(scaler.said("is found again"))
        self.assertLessEqual(api.created, 2, "what the last one has started serves")
        self.assertEqual(self.state(), "ready")
        # A pod that dies under a stream: it goes on at the next one.
        ended = self.at_once([77], 900)
        time.sleep(0.3)
        os.kill(next(iter(api.pods.values()))["process"].pid, signal.SIGKILL)
        self.assertEqual(ended(), [])
        self.wait(lambda: self.state() == "cold" and not api.pods)
        scales = [body for method, path, body in api.writes if path.endswith("/scale")]
        for body in scales:
            self.assertIn("resourceVersion", body["metadata"], "never over what another one has written")
        ours = {(method, path, kind) for (method, path, _), kind in zip(api.writes, api.types) if path.endswith("/scale")}
        self.assertEqual(ours, {("PATCH", "/apis/apps/v1/namespaces/ml/deployments/box/scale", "application/merge-patch+json")})
        kinds = {(method, path.split("/namespaces/")[1].split("/", 1)[1].split("/")[0]) for method, path, body in api.writes}
        self.assertLessEqual(kinds, {("PATCH", "deployments"), ("POST", "leases"), ("PATCH", "leases"), ("PATCH", "pods")}, "no more rights")

    @full
    def test_pods_of_another_kind_from_nothing_to_some_and_back(self):
        """Servers that know nothing of fleets: they are known by their port, and by their own metrics."""
        port = free_port()

        def start(address):
            return subprocess.Popen([gateway_fixture.BINARY, "serve", BOX, "--executor", f"modelled:{self.script}", "--host", address, "--port",
                                     str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        api = WorkloadApi(None, start)
        self.addCleanup(api.close)
        self.configure(scale="max = 2\nconcurrency_target = 4", pool='kind = "vllm"',
                       launch=f'kind = "kubernetes"\nworkload = "ml/deployment/box"\nport = {port}',
                       more=f'[kubernetes]\napi = "http://127.0.0.1:{api.server_port}"\ntoken_file = ""')
        self.scaler()
        self.assertEqual(self.state(), "cold")
        self.assertEqual(self.at_once(range(1, 21))(), [])
        self.assertIn(api.created, (1, 2))
        self.wait(lambda: self.state() == "cold" and not api.pods)

    def test_a_pool_that_nobody_launches_is_advised_on(self):
        self.configure(scale='max = 3\nmode = "advise"\nconcurrency_target = 1', pool='kind = "vllm"', launch=None)
        scaler = self.scaler()
        held = threading.Thread(target=lambda: ask(self.gateway.port, "POST", "/v1/chat/completions", {
            "model": "pelton-box", "messages": [{"role": "user", "content": "hi"}]}, **{"x-request-timeout-ms": "3000"}))
        held.start()
        self.wait(lambda: scaler.said("pool 'box' (advice): 1 replica"), 20)
        held.join()

    def test_advice_writes_nothing_to_the_cluster(self):
        """Where an HPA or KEDA acts: three pods are wanted by somebody else, and stay."""
        api = WorkloadApi(None, lambda address: subprocess.Popen(["sleep", "60"]))
        self.addCleanup(api.close)
        api.replicas = 3
        for mode, flags in (("act", ["--advise"]), ("advise", [])):
            with self.subTest(mode):
                self.configure(scale=f'max = 2\nmode = "{mode}"', launch='kind = "kubernetes"\nworkload = "ml/deployment/box"\nport = 1',
                               more=f'[kubernetes]\napi = "http://127.0.0.1:{api.server_port}"')
                scaler = self.scaler(*flags)
                self.wait(lambda: scaler.said("pool 'box'"))
                time.sleep(0.5)
                self.assertEqual((api.writes, api.replicas), ([], 3))
                scaler.end(signal.SIGTERM)
                self.gateway.end()

    @unittest.skipIf(shutil.which("curl") is None, "curl is not installed")
    def test_keda_asks_over_grpc(self):
        """An external push scaler: inactive while nobody asks, active as soon as a request is held, and the number that is desired."""
        api = WorkloadApi(None, lambda address: subprocess.Popen(["sleep", "60"]))
        self.addCleanup(api.close)
        port = free_port()
        self.configure(autoscaler=f'keda_listen = "127.0.0.1:{port}"', scale='max = 2\nmode = "advise"',
                       launch='kind = "kubernetes"\nworkload = "ml/deployment/box"\nport = 1',
                       more=f'[kubernetes]\napi = "http://127.0.0.1:{api.server_port}"\ntoken_file = ""')
        scaler = self.scaler()
        self.wait(lambda: scaler.said("KEDA's scaler listens on"))

        def call(method, message):
            frame = b"\0" + len(message).to_bytes(4, "big") + message
            done = subprocess.run(["curl", "--silent", "--http2-prior-knowledge", "--max-time", "10", "--data-binary", "@-",
                                   "--header", "Content-Type: application/grpc", "--header", "TE: trailers",
                                   f"http://127.0.0.1:{port}/externalscaler.ExternalScaler/{method}"], input=frame, capture_output=True, check=True)
            return done.stdout[5:]
        entry = b"\x0a\x04pool\x12\x03box"
        box = b"\x1a" + bytes([len(entry)]) + entry
        self.assertEqual(call("IsActive", box), b"", "a message whose only field is false")
        held = threading.Thread(target=lambda: ask(self.gateway.port, "POST", "/v1/chat/completions", {
            "model": "pelton-box", "messages": [{"role": "user", "content": "hi"}]}, **{"x-request-timeout-ms": "20000"}))
        held.start()
        self.wait(lambda: call("IsActive", box) == b"\x08\x01", 20)
        metrics = call("GetMetrics", b"\x0a" + bytes([len(box)]) + box + b"\x12\x01m")
        self.assertIn(b"\x0a\x01m\x10\x01", metrics, "metric 'm' is 1")
        held.join()
        self.assertEqual(api.writes, [], "KEDA writes, and nobody else")
        self.assertEqual(scaler.end(signal.SIGTERM), 0)

    @unittest.skipIf(shutil.which("kubectl") is None, "kubectl is not installed")
    def test_kubectl_scales_as_we_do(self):
        """The double takes what the real kubectl sends, which is what ours is compared with above."""
        api = WorkloadApi(None, lambda address: subprocess.Popen(["sleep", "60"]))
        self.addCleanup(api.close)
        subprocess.run(["kubectl", "--server", f"http://127.0.0.1:{api.server_port}", "--namespace", "ml", "scale", "deployment/box",
                        "--replicas=2"], capture_output=True, text=True, timeout=60, check=True, env={**os.environ, "HOME": str(self.folder)})
        self.assertEqual(api.writes, [("PATCH", "/apis/apps/v1/namespaces/ml/deployments/box/scale", {"spec": {"replicas": 2}})])
        self.assertEqual(api.types, ["application/merge-patch+json"])
        self.assertEqual(api.replicas, 2)

    @unittest.skipIf(shutil.which("etcd") is None, "etcd is not installed")
    def test_of_two_autoscalers_one_leads_and_the_other_takes_over(self):
        etcd = Etcd(str(self.folder / "etcd"))
        self.addCleanup(lambda: etcd.process.poll() is None and etcd.end())
        self.check_lead('lead = "etcd"', f'[etcd]\nendpoints = ["{etcd.endpoint}"]')

    @full
    def test_a_lease_of_kubernetes_says_who_leads(self):
        api = WorkloadApi("secret", lambda address: None)
        self.addCleanup(api.close)
        token = self.folder / "token"
        token.write_text("secret")
        self.check_lead('lead = "kubernetes"\nlease = "ml/box-autoscaler"',
                        f'[kubernetes]\napi = "http://127.0.0.1:{api.server_port}"\ntoken_file = "{token}"')
        self.assertEqual(list(api.leases), ["box-autoscaler"])
        self.assertEqual([one["data"]["pool"] for one in api.maps.values()], ["box"])
        kinds = {(method, path.split("/namespaces/ml/")[1].split("/")[0]) for method, path, body in api.writes}
        self.assertEqual(kinds, {("POST", "leases"), ("PATCH", "leases"), ("POST", "configmaps"), ("PATCH", "configmaps")}, "no more rights")

    @full
    def test_a_leader_that_is_stopped_for_good_loses_its_folder(self):
        """SIGSTOP, and nobody wakes it: it still has the folder and the port; the next one ends it, takes its replica over, and answers."""
        api = WorkloadApi("secret", lambda address: None)
        self.addCleanup(api.close)
        token = self.folder / "token"
        token.write_text("secret")
        port = free_port()
        self.configure(autoscaler=f'state_dir = "{self.folder / "replicas"}"\nlead = "kubernetes"\nlease = "ml/box-autoscaler"\n'
                                  f'lease_seconds = 3\nlisten = "127.0.0.1:{port}"', scale="min = 1",
                       launch=f'serve = {json.dumps([str(BOX), "--executor", f"modelled:{self.script}"])}',
                       more=f'[kubernetes]\napi = "http://127.0.0.1:{api.server_port}"\ntoken_file = "{token}"')
        first = self.scaler()
        self.wait(lambda: first.said("is started, process"))
        pid = int(first.said("is started, process")[0].split("process ")[1].split(",")[0])
        # Its autoscalers first, or they replace it.
        self.addCleanup(lambda: ([one.end(signal.SIGKILL) for one in self.scalers], alive(pid) and os.kill(pid, signal.SIGKILL)))
        self.wait(lambda: self.state() == "ready")
        second = self.scaler()
        self.wait(lambda: second.said("stands by"))
        first.is_supervised = False
        first.process.send_signal(signal.SIGSTOP)
        self.wait(lambda: second.said("is found again"), 20)
        self.assertEqual(first.process.wait(10), -signal.SIGKILL)
        self.assertEqual(len(second.said("which led with epoch")), 1, second.log)

        def answers():
            try:
                return ask(port, "GET", "/v1/autoscaler")[0] == 200
            except ConnectionError:  # between the two
                return False
        self.wait(answers, 20)
        self.assertTrue(alive(pid))
        self.assertEqual(self.at_once(range(1, 5))(), [])
        self.assertEqual(second.said("is started, process"), [], "its replica goes on")

    def test_one_that_stands_by_answers_probes_and_nothing_else(self):
        """As pods do: each listens at an address of its own."""
        api = WorkloadApi("secret", lambda address: None)
        self.addCleanup(api.close)
        token = self.folder / "token"
        token.write_text("secret")
        ports = [free_port(), free_port()]
        self.configure(autoscaler=f'state_dir = "{self.folder / "replicas"}"\nlead = "kubernetes"\nlease = "ml/box-autoscaler"\nlease_seconds = 3\n'
                                  f'listen = "127.0.0.1:{ports[0]}"',
                       launch=f'serve = {json.dumps([str(BOX), "--executor", f"modelled:{self.script}"])}',
                       more=f'[kubernetes]\napi = "http://127.0.0.1:{api.server_port}"\ntoken_file = "{token}"')
        first = self.scaler()
        self.wait(lambda: first.said("leads, epoch"))
        other = self.folder / "other.toml"
        other.write_text(self.config.read_text().replace(str(ports[0]), str(ports[1])))
        self.config = other
        second = self.scaler()
        self.wait(lambda: second.said("stands by"))

        def answers(port, path):
            try:
                return ask(port, "GET", path)[0]
            except OSError:
                return None
        self.wait(lambda: answers(ports[1], "/health") == 200)
        self.assertEqual((answers(ports[1], "/v1/autoscaler"), answers(ports[1], "/metrics")), (503, 503))
        self.wait(lambda: answers(ports[0], "/v1/autoscaler") == 200)
        first.end(signal.SIGKILL)
        self.wait(lambda: answers(ports[1], "/v1/autoscaler") == 200)
        self.assertEqual(answers(ports[1], "/health"), 200)

    def check_lead(self, lead, store):
        """FT-36: of several autoscalers one decides; it is killed, stopped beyond its lease, ended in order: the next goes on from what it knew."""
        state = self.folder / "replicas"
        self.configure(autoscaler=f'state_dir = "{state}"\n{lead}\nlease_seconds = 4', scale="max = 2",
                       launch=f'serve = {json.dumps([str(BOX), "--executor", f"modelled:{self.script}"])}', more=store)
        first = self.scaler()
        self.wait(lambda: first.said("leads, epoch"))
        record = self.folder / "facts.jsonl"
        second = self.scaler("--record-facts", record)
        self.wait(lambda: second.said("stands by"))
        pids = []
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in pids if alive(pid)])
        ended = self.at_once(range(1, 21), 600)
        self.wait(lambda: first.said("is started, process"))
        self.assertEqual(second.said("is started"), [], "one writer")
        time.sleep(1)  # what it knows is handed over in the turn behind that
        first.end(signal.SIGKILL)
        pids += [int(line.split("process ")[1].split(",")[0]) for line in first.said("is started, process")]
        self.assertEqual(ended(), [], "FT-36: 0 lost")
        self.wait(lambda: second.said("leads, epoch"))
        self.wait(lambda: second.said("is decided on with what was remembered"))
        epochs = [int(one.said("leads, epoch")[0].rsplit(" ", 1)[1]) for one in (first, second)]
        self.assertLess(*epochs)
        self.assertEqual(self.at_once(range(21, 31))(), [])
        # Stopped beyond its lease and let go on: it gives no order any more.
        third = self.scaler()
        self.wait(lambda: third.said("stands by"))
        second.is_supervised = False
        second.process.send_signal(signal.SIGSTOP)
        time.sleep(4.5)
        second.process.send_signal(signal.SIGCONT)
        self.assertEqual(second.end(signal.SIGCONT), 1)
        self.assertTrue(second.said("the lead is lost"), second.log[-5:])

        # One that led while the folder was still the stopped one's has ended: its supervisor starts it anew.
        self.wait(lambda: third.said("is decided on with what was remembered"))
        # With what was handed over as their beginning, its facts give its decisions.
        replayed = subprocess.run([gateway_fixture.BINARY, "autoscale", "--replay", record], capture_output=True, text=True, timeout=60,
                                  check=False)
        self.assertEqual(replayed.returncode, 0, replayed.stderr)
        self.assertRegex(replayed.stderr, "[1-9][0-9]* decisions, each as it was recorded")
        self.assertEqual(self.at_once(range(31, 41))(), [])
        # Ended in order it gives the lead up (at once: lead_test.cc).
        fourth = self.scaler()
        self.wait(lambda: fourth.said("stands by"))
        self.assertEqual(third.end(signal.SIGTERM), 0)
        self.wait(lambda: fourth.said("leads, epoch"))
        for one in (second, third, fourth):
            pids += [int(line.split("process ")[1].split(",")[0]) for line in one.said("is started, process")]
        self.wait(lambda: self.state() == "cold" and not any(alive(pid) for pid in pids))

    def refused(self, text, words, *command):
        config = self.folder / "refused.toml"
        config.write_text(text)
        done = subprocess.run([gateway_fixture.BINARY, command[0], "--config", config, *command[1:]], capture_output=True, text=True, timeout=30,
                              check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(words, done.stderr)

    def test_a_lead_without_etcd_is_refused(self):
        text = ('[autoscaler]\nlead = "etcd"\ngateways = ["http://127.0.0.1:1"]\n[[pool]]\nname = "a"\nmodel = "m"\n[pool.scale]\n'
                '[pool.launch]\nserve = ["m"]\n')
        self.refused(text, "needs [etcd]", "autoscale", "--check")
        self.refused(text, "'lead' is for pelton autoscale", "gateway", "--with-autoscaler")

    def test_pools_that_nobody_starts_are_refused(self):
        text = '[autoscaler]\ngateways = ["http://127.0.0.1:1"]\n[[pool]]\nname = "a"\nmodel = "m"\n'
        self.refused(text, "no [[pool]] has [pool.scale] and [pool.launch]", "autoscale", "--check")
        self.refused(text + "[pool.scale]\n", "refused.toml:6: [[pool]]: pool 'a' has no [pool.launch]", "autoscale", "--check")
        self.refused(text + '[pool.scale]\n[pool.launch]\nserve = ["m", "--max-num-seq=8"]\n', "did you mean '--max-num-seqs'?", "autoscale",
                     "--check")

    def test_batch_jobs_without_a_key_are_refused(self):
        self.refused('[autoscaler]\ngateways = ["http://127.0.0.1:1"]\n[[pool]]\nname = "a"\nmodel = "m"\n[pool.scale]\n'
                     '[pool.launch]\nkind = "slurm"\nserve = ["m"]\n', "fleet_key_file", "autoscale", "--check")


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
