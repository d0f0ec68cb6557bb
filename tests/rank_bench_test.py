#!/usr/bin/env python3
"""pelton bench latency over ranks that a launcher has started: they find each other by what it says in their environment, rank 0
measures and prints, the others compute; a rank that is lost ends all within seconds, with one line that names it. Under
PELTON_FULL=1 also by srun under a real Slurm (by mpirun: mpi_test.py).

usage: rank_bench_test.py BINARY
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import ranks_test
from ports import free_port
from rank_hosts_test import Process
from ranks_test import BOX, EXIT_LOST
from tiers import full

SHAPE = ["--threads", 1, "--input-len", 24, "--output-len", 6]
ENDLESS = ["--threads", 1, "--input-len", 64, "--output-len", 64, "--runs", 1000]


def said(process):
    """Lines about what went wrong."""
    return [line for line in process.log if "on processors" not in line and "another measurement is running" not in line]


def shared_memory():
    """Ours that is left: other programs have theirs."""
    return sorted(name for name in os.listdir("/dev/shm") if "pelton" in name)


class Launched(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pelton_rank_bench_"))
        self.port = free_port()
        self.shared = shared_memory()

    def rank(self, rank, ranks, *words):
        env = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks),
               "MASTER_PORT": str(self.port), "PELTON_CACHE": str(self.folder)}
        started = Process([ranks_test.BINARY, "bench", "latency", BOX, *words], env)
        self.addCleanup(started.end)
        return started

    def test_rank_0_measures_and_the_others_compute(self):
        for more in ([], ["--enable-expert-parallel", "--tensor-parallel-size", 2]):
            ranks = [self.rank(rank, 2, *SHAPE, "--runs", 2, "--json", "-", *more) for rank in range(2)]
            for rank in ranks:
                self.assertEqual(rank.wait(120), 0, rank.text())
            self.assertEqual(ranks[1].lines, [])
            report = json.loads("".join(ranks[0].lines))
            self.assertEqual((report["ranks"], report["transport"], report["threads"], report["one_process_threads"]), (2, "tcp", 1, 2))
            self.assertEqual(report["expert_parallel"], bool(more))
            self.assertEqual(report["runs"], 2)
        key = self.folder / "rank_key"
        self.assertEqual((key.stat().st_mode & 0o777, key.stat().st_size), (0o600, 32))

    def test_a_lost_rank_ends_all_with_one_line(self):
        for meant, named in ((signal.SIGKILL, "has ended"), (signal.SIGSTOP, "has been silent for")):
            leader, follower = (self.rank(rank, 2, *ENDLESS) for rank in range(2))
            self.assertTrue(ranks_test.wait_for(lambda: ranks_test.ticks(follower.process.pid) > 50, 60))  # it computes
            follower.process.send_signal(meant)
            begun = time.monotonic()
            self.assertEqual(leader.wait(20), 1)
            self.assertLess(time.monotonic() - begun, 5)
            self.assertEqual(len(said(leader)), 1, leader.log)
            self.assertIn("rank 1 (at 127.0.0.1) " + named, said(leader)[0])
            follower.process.send_signal(signal.SIGCONT)
            follower.wait(20)
            self.assertEqual(shared_memory(), self.shared)

    def test_a_lost_leader_ends_all_with_one_line(self):
        leader, follower = (self.rank(rank, 2, *ENDLESS) for rank in range(2))
        self.assertTrue(ranks_test.wait_for(lambda: ranks_test.ticks(follower.process.pid) > 50, 60))
        leader.process.kill()
        begun = time.monotonic()
        self.assertEqual(follower.wait(20), EXIT_LOST)
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual(len(said(follower)), 1, follower.log)

    def test_a_follower_of_its_own_that_is_lost(self):
        for meant, named in ((signal.SIGKILL, "was killed by signal 9"), (signal.SIGSTOP, "has been silent for")):
            leader = Process([ranks_test.BINARY, "bench", "latency", BOX, "--tensor-parallel-size", 2, *ENDLESS])
            self.addCleanup(leader.end)
            self.assertTrue(ranks_test.wait_for(lambda: len(ranks_test.children(leader.process.pid)) == 1, 60))
            [follower] = ranks_test.children(leader.process.pid)
            self.assertTrue(ranks_test.wait_for(lambda: ranks_test.ticks(follower) > 50, 60))
            os.kill(follower, meant)
            begun = time.monotonic()
            self.assertEqual(leader.wait(20), 1)
            self.assertLess(time.monotonic() - begun, 5)
            self.assertEqual(len(said(leader)), 1, leader.log)
            self.assertIn(f"rank 1 (process {follower}) {named}", said(leader)[0])
            self.assertFalse(ranks_test.running(follower))
            self.assertEqual(shared_memory(), self.shared)

    def test_what_does_not_go_together_is_refused_by_name(self):
        for words, named in ((["--tensor-parallel-size", 3], "--rank-launcher env: 2 ranks, --tensor-parallel-size 3"),
                             (["--depth", 64], "--depth: not over several ranks"),
                             (["--speculative-config", '{"method":"suffix"}'], "--speculative-config: not over several ranks"),
                             (["--tensor-parallel-size", 2, "--rank-transport", "shm"], "--rank-transport shm"),
                             (["--tensor-parallel-size", 2, "--rank-transport", "mpi"], "--rank-launcher mpi")):
            leader = self.rank(0, 2, *SHAPE, *words)
            self.assertNotEqual(leader.wait(20), 0)
            self.assertIn(named, leader.text())
        (self.folder / "rank_key").write_bytes(b"x" * 32)
        os.chmod(self.folder / "rank_key", 0o644)
        leader = self.rank(0, 2, *SHAPE)
        self.assertNotEqual(leader.wait(20), 0)
        self.assertIn("only this user may read", leader.text())
        for launcher in ({"RANK": "0", "WORLD_SIZE": "2"}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"}):
            done = subprocess.run([ranks_test.BINARY, "bench", "exchange", "--transport", "tcp"], env={**os.environ, **launcher},
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("bench exchange --transport tcp is one process", done.stderr)

    @full
    def test_srun(self):
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "slurm"))
        import rig
        self.assertEqual(rig.missing(), [], "tools/install_packages --full")
        (self.folder / "slurm").mkdir()
        slurm = rig.Rig(self.folder / "slurm")
        self.addCleanup(slurm.end)
        started = Process(["srun", "-n", "2", "--cpus-per-task=1", ranks_test.BINARY, "bench", "latency", BOX, *SHAPE, "--runs", 2],
                          {**slurm.env, "PELTON_CACHE": str(self.folder)})
        self.addCleanup(started.end)
        self.assertEqual(started.wait(120), 0, started.text())
        self.assertEqual("".join(started.lines).count("the same answers"), 1)
        self.assertIn("2 ranks by tcp, 1 threads", "".join(started.lines))


if __name__ == "__main__":
    ranks_test.BINARY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
