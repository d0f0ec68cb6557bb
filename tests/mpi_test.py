#!/usr/bin/env python3
"""Ranks that exchange over MPI (--rank-transport mpi), started by a real mpirun: random exchanges deliver what they should, over
MPI's shared memory and its TCP. Under PELTON_FULL=1 also a model: its answers are one process's, bit for bit, a rank that is
killed or stopped ends the group with a line that names it, and nobody uses a processor while nothing is asked.

usage: mpi_test.py BINARY MPI_ROUNDS PLUGIN   ends with 77 where mpirun or the plugin is missing (with PELTON_FULL=1: fails)
"""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import rank_hosts_test
import ranks_test
from rank_hosts_test import Served
from ranks_test import AT_ONCE, BOX, FLAGS, LONG, running, streaming, wait_for

FULL = os.environ.get("PELTON_FULL") == "1"
ROUNDS = 1_000_000 if FULL else 10_000  # of all settings together
ROUNDS_PROGRAM = None
PLUGIN = None
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SHARED = {"OMPI_MCA_btl": "self,vader", "OMPI_MCA_pml": "ob1"}
TCP = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl_tcp_if_include": "lo"}
# Parts of some kilobytes wait for their receiver, as those of a large model's prompts do.
TCP_LARGE = {**TCP, "OMPI_MCA_btl_tcp_eager_limit": "1024"}


def mpirun(ranks):
    return ["mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none"]


class Exchanges(unittest.TestCase):
    def test_random_exchanges_deliver_what_they_should(self):
        seed = int(os.environ.get("PELTON_SEED", random.SystemRandom().randrange(1 << 30)))
        print(f"PELTON_SEED={seed}", file=sys.stderr)
        ways = [(2, SHARED, 8192), (2, TCP, 8192), (2, TCP_LARGE, 32768), (3, SHARED, 32768), (4, TCP_LARGE, 8192)]
        for ranks, network, part_bytes in ways:
            rounds = ROUNDS // len(ways)
            words = [*mpirun(ranks), ROUNDS_PROGRAM, PLUGIN, rounds, seed, part_bytes]
            done = subprocess.run([str(word) for word in words], env={**os.environ, **AS_ROOT, **network}, capture_output=True, text=True,
                                  timeout=60 + rounds / 50, check=False)
            self.assertEqual(done.returncode, 0, (ranks, network, done.stderr))
            # Of the calls by rows, those without a row exchange nothing.
            self.assertGreater(int(done.stdout.split()[0]), rounds * 0.95)

    def test_ranks_that_mpirun_did_not_start_are_refused(self):
        env = {**os.environ, **AS_ROOT, **SHARED, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
        done = subprocess.run([ROUNDS_PROGRAM, PLUGIN, "10", "1", "8192"], env=env, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("rank 1 of 2 is rank 0 of 1 to MPI", done.stderr)

    def test_a_file_that_is_no_plugin_is_refused(self):
        for path, named in (("/nonexistent.so", "no plugin for MPI"), ("libm.so.6", "is no plugin for MPI")):
            done = subprocess.run([ROUNDS_PROGRAM, path, "10", "1", "8192"], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(named, done.stderr)


class Program(unittest.TestCase):
    def test_bench_exchange_ends_well_on_all_ranks(self):
        words = [*mpirun(2), ranks_test.BINARY, "bench", "exchange", "--transport", "mpi", "--bytes", 4096, "--rounds", 50, "--json", "-"]
        env = {**os.environ, **AS_ROOT, **SHARED, "PELTON_MPI_LIBRARY": str(PLUGIN)}
        done = subprocess.run([str(word) for word in words], env=env, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"transport":"mpi","ranks":2', done.stdout)

    def test_bench_latency_measures_the_group_that_mpirun_has_started(self):
        words = [*mpirun(2), ranks_test.BINARY, "bench", "latency", BOX, "--threads", 1, "--input-len", 24, "--output-len", 6, "--runs", 2]
        with tempfile.TemporaryDirectory() as cache:
            env = {**os.environ, **AS_ROOT, **SHARED, "PELTON_MPI_LIBRARY": str(PLUGIN), "PELTON_CACHE": cache}
            for more, transport in (([], "tcp"), (["--tensor-parallel-size", 2, "--rank-transport", "mpi"], "mpi")):
                done = subprocess.run([str(word) for word in [*words, *more]], env=env, capture_output=True, text=True, timeout=120, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout.count("the same answers"), 1, done.stdout)
                self.assertIn(f"2 ranks by {transport}, 1 threads", done.stdout)

    def test_the_binary_knows_no_mpi(self):
        libraries = subprocess.run(["ldd", ranks_test.BINARY], capture_output=True, text=True, timeout=60, check=True).stdout
        self.assertIn("libssl", libraries)
        self.assertNotIn("mpi", libraries)
        # And no package that has the plugin comes to depend on one.
        self.assertNotIn("mpi.so", subprocess.run(["ldd", PLUGIN], capture_output=True, text=True, timeout=60, check=True).stdout)

    def test_what_is_missing_is_said(self):
        base = [ranks_test.BINARY, "serve", BOX, *FLAGS, "--tensor-parallel-size", "2", "--rank-transport", "mpi"]
        mpi = ["--rank-launcher", "mpi", "--rank-token-file", __file__]
        place = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
        for words, env, named in ((base, {}, "--rank-launcher mpi"),
                                  ([*base, "--rank-launcher", "env", "--rank-token-file", __file__], {"RANK": "0", "WORLD_SIZE": "2"}, "--rank-launcher mpi"),
                                  ([ranks_test.BINARY, "bench", "latency", BOX, "--depth", "64"], place, "--depth: not over several ranks"),
                                  ([ranks_test.BINARY, "bench", "exchange", "--transport", "tcp"], place, "bench exchange --transport tcp is one process"),
                                  ([*base, *mpi, "--rank-restarts", "1"], place, "--rank-restarts"),
                                  ([*base, *mpi], {**place, "PELTON_MPI_LIBRARY": "/nonexistent.so"}, "/nonexistent.so")):
            done = subprocess.run([str(word) for word in words], env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(named, done.stderr, words)


@unittest.skipUnless(FULL, "PELTON_FULL=1 only")
class AModel(rank_hosts_test.SameAnswers):
    """Of two and four ranks. What the group itself sees goes before what mpirun does about it."""

    def group(self, ranks=2, *more, network=None, cache=rank_hosts_test.CACHE):  # pylint: disable=arguments-differ, keyword-arg-before-vararg
        words = [*mpirun(ranks), ranks_test.BINARY, "serve", BOX, *FLAGS, *cache, "--tensor-parallel-size", ranks, "--rank-launcher", "mpi",
                 "--rank-transport", "mpi", "--master-port", self.port, "--rank-token-file", self.token, *more]
        env = {**AS_ROOT, **(network or SHARED), "PELTON_MPI_LIBRARY": str(PLUGIN)}
        served = Served(self.addCleanup, words, env)
        return served, self.by_rank(served)

    @staticmethod
    def by_rank(served):
        def rank(process):
            variables = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            return int(next(one for one in variables if one.startswith(b"OMPI_COMM_WORLD_RANK=")).split(b"=")[1])
        return sorted(ranks_test.children(served.process.pid), key=rank)

    # Its own tests are rank_hosts_test's.
    test_any_request = test_ranks_by_their_environment = test_mpirun = test_srun = None

    def test_the_answers_are_one_processs(self):
        alone = ranks_test.Served(self.addCleanup, *rank_hosts_test.CACHE)
        for ranks, network, more in ((2, SHARED, ()), (2, TCP_LARGE, ("--enable-expert-parallel",)), (4, SHARED, ())):
            served, _ = self.group(ranks, *more, network=network)
            self.ask([alone, served], 40)
            served.end()
            self.port = rank_hosts_test.free_port()

    def test_a_stop_lets_answers_end_and_mpirun_has_nothing_to_say(self):
        served, ranks = self.group()
        with streaming(served, [{**LONG, "max_tokens": 200}]) as [answer]:
            os.kill(ranks[0], signal.SIGTERM)
            self.assertIn("[DONE]", answer.result(60))
        self.assertEqual(served.rank.wait(60), 0, served.rank.text())

    def lose(self, ranks, victim, how, named):
        served, processes = self.group(ranks, cache=ranks_test.LONG_CONTEXT)
        with streaming(served, [LONG] * AT_ONCE) as streams:
            os.kill(processes[victim], how)
            begun = time.monotonic()
            answers = [stream.result(30) for stream in streams]
            self.assertLess(time.monotonic() - begun, ranks_test.LOST_SECONDS)
        for answer in answers:
            self.assertNotIn("[DONE]", answer)
        self.assertNotEqual(served.rank.wait(30), 0)
        self.assertTrue(wait_for(lambda: not any(running(process) for process in processes)))
        self.assertRegex(served.rank.text(), named)

    def test_a_killed_rank_ends_all(self):
        self.lose(2, 1, signal.SIGKILL, r"rank 1 \(at .*: the group of ranks is lost")
        self.lose(4, 2, signal.SIGKILL, r"rank 2 \(at .*: the group of ranks is lost")

    def test_a_stopped_rank_ends_all(self):
        self.lose(2, 1, signal.SIGSTOP, r"rank 1 \(at .*has been silent for .*: the group of ranks is lost")

    def test_a_killed_leader_ends_all(self):
        self.lose(2, 0, signal.SIGKILL, "rank 1 .*(the leader has gone|exchange)")

    def test_idle_ranks_use_no_processor(self):
        served, processes = self.group()
        served.choices({"prompt": "a", "max_tokens": 8, "temperature": 0})
        time.sleep(1)
        before = [ranks_test.ticks(process) for process in processes]
        time.sleep(2)
        self.assertLessEqual(max(ranks_test.ticks(process) - start for process, start in zip(processes, before)), 2)  # of 200


if __name__ == "__main__":
    ranks_test.BINARY, ROUNDS_PROGRAM, PLUGIN = sys.argv[1:4]
    missing = [name for name in ("mpirun",) if shutil.which(name) is None] + [path for path in (PLUGIN,) if not os.path.exists(path)]
    if missing:
        print(f"mpi_test: {', '.join(missing)} missing: tools/install_packages --full, then cmake --preset release")
        sys.exit(1 if FULL else 77)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
