#!/usr/bin/env python3
"""The batch files that are shipped, run by a real Slurm: a server, and a fleet over two nodes; what is cancelled or requeued ends as it
should, and comes back.

usage: batch_test.py BINARY

Exit code 77 (skipped) without PELTON_FULL=1, or where Slurm is not installed; the latter an error under PELTON_FULL=1.
"""
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import gateway_fixture
import rig
from autoscale_test import alive
from gateway_fixture import BOX, SCRIPT, ask, check_stream
from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BATCH = ROOT / "deploy" / "slurm"


class Batch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        (cls.folder / "script.json").write_text(json.dumps({**SCRIPT, "step_ms": 2}))
        cls.rig = rig.Rig(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.rig.end()
        cls.scratch.cleanup()

    def submit(self, file, *words, **env):
        self.output = self.folder / f"{file}.out"
        self.output.unlink(missing_ok=True)
        job = self.rig.submit("--cpus-per-task=1", f"--output={self.output}", "--export=ALL", *words, BATCH / file, **{
            "MODEL": str(BOX), "PELTON": gateway_fixture.BINARY, "PELTON_ARGS": f"--executor modelled:{self.folder / 'script.json'}", **env})
        self.addCleanup(self.gone, job)
        return job

    def gone(self, job):
        self.rig.run("scancel", str(job), check=False)
        self.rig.wait(lambda: self.rig.state(job) not in ("RUNNING", "COMPLETING", "PENDING"), 120)

    def said(self):
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def listening(self, times=1):
        """The port, once it has been said so often."""
        # A job that was requeued is held for two minutes (Slurm's BeginTime).
        self.rig.wait(lambda: len(re.findall(r"^listening on ", self.said(), re.MULTILINE)) >= times, 120 * times + 60)
        return int(re.findall(r"^listening on http://[^/\s]+:(\d+)", self.said(), re.MULTILINE)[-1])

    def test_a_server_answers_is_requeued_and_ends_when_it_is_cancelled(self):
        job = self.submit("server.sbatch", PORT="0")
        port = self.listening()
        check_stream(port, 1, 20, 1)
        self.rig.run("scontrol", "requeue", str(job))
        port = self.listening(times=2)
        check_stream(port, 2, 20, 2)
        # As before its time limit: the script alone gets the signal, and the server ends in its own way.
        self.rig.run("scancel", "--batch", "--signal=TERM", str(job))
        self.rig.wait(lambda: self.rig.state(job) == "COMPLETED", 120)
        self.assertIn("stopping: ", self.said())

    def test_a_fleet_serves_over_two_nodes_and_a_lost_worker_comes_back(self):
        ports = [free_port() for _ in range(3)]
        job = self.submit("fleet.sbatch", "--nodes=2", "--ntasks-per-node=1", PORT=str(ports[0]), ADMIN_PORT=str(ports[1]),
                          FLEET_PORT=str(ports[2]), NAME="pelton-box")
        port = self.listening()

        def workers(state):
            found = json.loads(ask(ports[1], "GET", "/v1/workers")[1])["workers"]
            return [one for one in found if one["state"] == state]
        self.rig.wait(lambda: len(workers("ready")) == 2, 120)
        for number in range(1, 9):
            check_stream(port, number, 20, number)
        work = next(self.folder.glob("pelton-*"))
        pids = self.rig.run("pgrep", "-f", f"fleet-key-file {work}/fleet.key --fleet-name worker-1").stdout.split()
        os.kill(int(pids[-1]), 9)
        check_stream(port, 9, 20, 9)
        self.rig.wait(lambda: len(workers("ready")) == 2, 120)
        self.rig.run("scancel", "--batch", "--signal=TERM", str(job))
        self.rig.wait(lambda: self.rig.state(job) == "COMPLETED", 120)

    def test_a_group_computes_one_model_and_a_lost_rank_starts_all_anew(self):
        job = self.submit("group.sbatch", "--nodes=2", PORT=str(free_port()), MASTER_PORT=str(free_port()), PELTON_ARGS="--max-num-seqs 4")
        port = self.listening()

        def expect_an_answer():
            status, text = ask(port, "POST", "/v1/chat/completions", {"model": "pelton-box", "messages": [{"role": "user", "content": "What is 2 + 3?"}], "max_tokens": 64})
            self.assertEqual(status, 200, text)
            self.assertRegex(str(ask(port, "GET", "/metrics")[1]), r'pelton_rank_exchanges_total{[^}]*rank="1"')
        expect_an_answer()
        work = self.folder / f"pelton-{job}"
        self.assertEqual(oct((work / "ranks.secret").stat().st_mode & 0o777), "0o600")
        pids = self.rig.run("pgrep", "-f", f"serve .*rank-token-file {work}/ranks.secret").stdout.split()
        os.kill(int(pids[-1]), 9)
        port = self.listening(times=2)
        self.assertIn("a rank was lost", self.said())
        expect_an_answer()
        self.rig.run("scancel", "--batch", "--signal=TERM", str(job))
        self.rig.wait(lambda: self.rig.state(job) == "COMPLETED", 120)


class RigEnds(unittest.TestCase):
    def test_a_test_that_fails_leaves_no_process(self):
        """As where a test raises: a job runs that ignores SIGTERM, and nobody cancels it."""
        with tempfile.TemporaryDirectory() as folder:
            one = rig.Rig(folder)
            try:
                job = one.submit("--wrap", "trap '' TERM; sleep 600 & wait; sleep 600", "--output=/dev/null")
                one.wait(lambda: one.state(job) == "RUNNING")
                one.wait(lambda: len(one.strays()) > 0)
            finally:
                strays = one.strays()
                one.end()
            self.assertTrue(strays)
            self.assertEqual([pid for pid in strays if alive(pid)], [])


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    if os.environ.get("PELTON_FULL") != "1":
        sys.exit(77)
    if rig.missing():
        print("not installed: " + ", ".join(rig.missing()) + " (tools/install_packages --full)", file=sys.stderr)
        sys.exit(1)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
