#!/usr/bin/env python3
"""Batch jobs of a real Slurm as replicas: from nothing to one and back, requeued under a stream, a killed autoscaler,
a job that cannot be submitted. Under PELTON_FULL=1, as root.

usage: autoscale_test.py BINARY
"""
import json
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import gateway_fixture  # noqa: E402
import rig  # noqa: E402
from autoscale_test import SCRIPT  # noqa: E402
from gateway_fixture import BOX, Process, ask, check_stream  # noqa: E402
from ports import free_port  # noqa: E402


class BatchReplicas(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "rig").mkdir()
        self.rig = rig.Rig(self.folder / "rig")
        self.addCleanup(self.rig.end)
        self.addCleanup(lambda: self.rig.run("scancel", "--user=root", check=False))
        os.environ.update({"PATH": self.rig.env["PATH"], "SLURM_CONF": self.rig.env["SLURM_CONF"]})
        script = self.folder / "script.json"
        script.write_text(json.dumps(SCRIPT))
        self.rig.run(gateway_fixture.BINARY, "gateway", "--new-key", self.folder / "fleet.key")
        self.serve = [str(BOX), "--executor", f"modelled:{script}"]

    def fleet(self, sbatch=()):
        admin, scaler = free_port(), free_port()
        config = self.folder / "gateway.toml"
        config.write_text(f"""[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:{admin}"
fleet_key_file = "{self.folder}/fleet.key"
[autoscaler]
state_dir = "{self.folder}/replicas"
gateways = ["http://127.0.0.1:{admin}"]
listen = "127.0.0.1:{scaler}"
[[pool]]
name = "box"
model = "pelton-box"
[pool.scale]
max = 1
window = 6
idle_to_zero = 2
scale_down_delay = 1
[pool.launch]
kind = "slurm"
serve = {json.dumps(self.serve)}
sbatch = {json.dumps(list(sbatch))}
start_seconds = 2
""")
        self.config = config
        self.gateway = Process("gateway", "--config", config)
        self.addCleanup(self.gateway.end)
        self.start_scaler()

    def start_scaler(self):
        scaler = self.scaler = Process("autoscale", "--config", self.config)
        self.addCleanup(lambda: scaler.process.poll() is None and scaler.end())

    def jobs(self):
        """States of all, by id."""
        lines = self.rig.run("squeue", "-h", "-t", "all", "-o", "%i %T").stdout.split("\n")
        return {int(line.split()[0]): line.split()[1] for line in lines if line}

    def running(self):
        return [job for job, state in self.jobs().items() if state == "RUNNING"]

    def wait(self, is_so, seconds=90):
        end = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < end, (list(self.scaler.log)[-20:], list(self.gateway.log)[-20:], self.rig.logs()[-3000:])
            time.sleep(0.1)

    def state(self):
        return json.loads(ask(self.gateway.port, "GET", "/v1/models/pelton-box")[1])["state"]

    def stream(self, number, length):
        faults = []

        def client():
            try:
                check_stream(self.gateway.port, number, length, number)
            except Exception as error:  # whatever a client sees is a fault
                faults.append(f"{number}: {error!r}"[:600])
        thread = threading.Thread(target=client)
        thread.start()

        def ended():
            thread.join()
            return faults
        return ended

    def test_from_nothing_to_one_and_back(self):
        self.fleet()
        check_stream(self.gateway.port, 1, 40, 1)
        self.assertEqual(len(self.jobs()), 1)
        self.wait(lambda: self.state() == "cold" and not self.running())
        self.assertEqual(list(self.jobs().values()), ["COMPLETED"])
        # Killed: the next one finds the job.
        check_stream(self.gateway.port, 2, 40, 2)
        self.scaler.end(signal.SIGKILL)
        self.start_scaler()
        self.wait(lambda: any("is found again" in line for line in list(self.scaler.log)))
        check_stream(self.gateway.port, 3, 40, 3)
        self.assertEqual(len(self.jobs()), 2)
        # Requeued under a stream: the same job starts again, and the answer goes on.
        ended = self.stream(4, 900)
        time.sleep(0.3)
        self.rig.run("scontrol", "requeue", str(self.running()[0]))
        self.assertEqual(ended(), [], list(self.gateway.log)[-20:])
        # Slurm starts it anew after two minutes, though nobody asks any more: then it is stopped.
        self.wait(lambda: self.state() == "cold" and set(self.jobs().values()) <= {"COMPLETED", "CANCELLED"}, 300)

    def test_what_cannot_be_submitted_says_so(self):
        self.fleet(sbatch=["--partition=nowhere"])
        status, text = 0, ""

        def is_refused():
            nonlocal status, text
            status, text = ask(self.gateway.port, "POST", "/v1/chat/completions", gateway_fixture.chat(1, 20, 1))
            return status == 503 and json.loads(text)["error"]["code"] == "model_start_failed"
        self.wait(is_refused)
        self.assertIn("partition", text)
        self.assertEqual(self.jobs(), {})


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    if not os.environ.get("PELTON_FULL") or rig.missing() or os.geteuid() != 0:
        print("only with PELTON_FULL=1, as root, where Slurm is installed; missing:", rig.missing())
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
