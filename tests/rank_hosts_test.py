#!/usr/bin/env python3
"""Ranks that are started one by one, as on several hosts (serve --nnodes, --rank-launcher): they find their leader, answer as
one process does, bit for bit, and end with one line that names rank and cause. Hosts are addresses of the loopback here.
Under PELTON_FULL=1 also by a real mpirun, and by srun under a real Slurm.

usage: rank_hosts_test.py BINARY
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import ranks_test
from ports import free_port
from ranks_test import AT_ONCE, BOX, EXIT_LOST, FLAGS, LONG, LONG_CONTEXT, draw, running, streaming, wait_for
from tiers import FULL, full

RUNS = 200 if FULL else 16
LEADER = "127.0.0.2"
CACHE = ("--kv-cache-memory", "16MiB")


class Process:
    """A rank, or whatever starts some: its log as it comes."""

    def __init__(self, words, env=None):
        self.process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(env or {})})
        self.log = []
        self.lines = []
        self.readers = [threading.Thread(target=lambda to=to, pipe=pipe: to.extend(pipe), daemon=True)
                        for to, pipe in ((self.log, self.process.stderr), (self.lines, self.process.stdout))]
        for reader in self.readers:
            reader.start()

    def text(self):
        return "".join(self.log)

    def wait(self, seconds=30):
        code = self.process.wait(seconds)
        for reader in self.readers:
            reader.join(seconds)
        return code

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class Proxy:
    """Of TCP; it can cut what goes through it, or swallow it."""

    def __init__(self, place, to):
        self.place = place
        self.to = to
        self.swallows = False
        self.pairs = []
        self.listener = socket.create_server(place)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                far = socket.socket()
                try:
                    far.connect(self.to)
                except OSError:
                    near.close()
                    continue
                self.pairs.append((near, far))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self.pump, args=(one, other), daemon=True).start()

    def pump(self, one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if not self.swallows:
                    other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def swallow(self):
        self.swallows = True

    def cut(self):
        for end in sum(self.pairs, ()):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()
        for end in sum(self.pairs, ()):
            end.close()


class Hosts(unittest.TestCase):
    CACHE = CACHE

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pelton_hosts_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.token = self.folder / "token"
        self.token.write_text("0123456789abcdef" * 4 + "\n")
        self.port = free_port()

    def words(self, rank, ranks, *more, model=BOX, token=None):
        return [ranks_test.BINARY, "serve", model, *FLAGS, *self.CACHE, "--tensor-parallel-size", ranks, "--nnodes", ranks, "--node-rank", rank,
                "--master-addr", LEADER, "--master-port", self.port, "--rank-token-file", token or self.token,
                "--rank-wait-seconds", 60, *more]

    def rank(self, rank, ranks, *more, env=None, **place):
        process = Process(self.words(rank, ranks, *more, **place), env)
        self.addCleanup(process.end)
        return process

    def group(self, ranks, *more):
        """The server and its followers; the first of these is there before it."""
        followers = [self.rank(rank, ranks, *more) for rank in range(1, ranks)]
        served = Served(self.addCleanup, self.words(0, ranks, *more))
        return served, followers


class Served(ranks_test.Served):
    """Of a command that starts a leader, or a whole group."""

    def __init__(self, add_cleanup, words, env=None):  # pylint: disable=super-init-not-called
        self.rank = Process(words, env)
        self.process = self.rank.process
        self.log = self.rank.log
        add_cleanup(self.end)
        wait_for(lambda: self.rank.lines or self.process.poll() is not None, 60)
        if not self.rank.lines or not self.rank.lines[0].startswith("listening on "):
            self.end()
            raise AssertionError(self.rank.text())
        self.url = self.rank.lines[0].split()[-1]

    def end(self):
        with contextlib.suppress(ValueError):
            self.rank.end()


class SameAnswers(Hosts):
    def ask(self, ways, runs):
        seed = int(os.environ.get("PELTON_SEED", random.SystemRandom().randrange(1 << 30)))
        print(f"PELTON_SEED={seed}", file=sys.stderr)
        rng = random.Random(seed)
        asked = [draw(rng) for _ in range(runs)]
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            expected = list(pool.map(lambda one: ways[0].choices(one[1], one[0]), asked))
            for way in ways[1:]:
                for one, want, got in zip(asked, expected, pool.map(lambda one, way=way: way.choices(one[1], one[0]), asked)):
                    self.assertEqual(got, want, f"PELTON_SEED={seed}: {way.process.args}: {one}")

    def test_any_request(self):
        ways = [ranks_test.Served(self.addCleanup, *CACHE)]
        for ranks in (2, 3):
            ways.append(self.group(ranks)[0])
            self.port = free_port()
        self.ask(ways, RUNS)

    def test_ranks_by_their_environment(self):
        env = {"WORLD_SIZE": "2", "MASTER_ADDR": LEADER, "MASTER_PORT": str(self.port)}
        words = [ranks_test.BINARY, "serve", BOX, *FLAGS, *CACHE, "--tensor-parallel-size", 2, "--rank-launcher", "env",
                 "--rank-token-file", self.token]
        follower = Process(words, {**env, "RANK": "1"})
        self.addCleanup(follower.end)
        served = Served(self.addCleanup, words, {**env, "RANK": "0"})
        self.ask([ranks_test.Served(self.addCleanup, *CACHE), served], 4)
        self.assertIn("rank 1 of 2 on processors", follower.text())

    @full
    def test_mpirun(self):
        if shutil.which("mpirun") is None:
            self.fail("mpirun is not installed (tools/install_packages --full)")
        env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "self", "OMPI_MCA_pml": "ob1"}
        words = ["mpirun", "-n", "4", "--oversubscribe", "--bind-to", "none", ranks_test.BINARY, "serve", BOX, *FLAGS, *CACHE,
                 "--tensor-parallel-size", "4", "--rank-launcher", "mpi", "--master-port", self.port, "--rank-token-file", self.token]
        served = Served(self.addCleanup, words, env)
        self.ask([ranks_test.Served(self.addCleanup, *CACHE), served], 10)
        ranks = [pid for pid in ranks_test.children(served.process.pid)]
        self.assertEqual(len(ranks), 4)
        os.kill(ranks[-1], signal.SIGKILL)
        self.assertNotEqual(served.rank.wait(30), 0)
        self.assertFalse(any(running(pid) for pid in ranks))

    @full
    def test_srun(self):
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "slurm"))
        import rig
        self.assertEqual(rig.missing(), [], "tools/install_packages --full")
        (self.folder / "slurm").mkdir()
        slurm = rig.Rig(self.folder / "slurm")
        self.addCleanup(slurm.end)
        words = ["srun", "-n", "2", "--cpus-per-task=1", "--kill-on-bad-exit=1", ranks_test.BINARY, "serve", BOX, *FLAGS, *CACHE,
                 "--tensor-parallel-size", "2", "--rank-launcher", "slurm", "--master-port", self.port, "--rank-token-file", self.token]
        served = Served(self.addCleanup, words, slurm.env)
        self.ask([ranks_test.Served(self.addCleanup, *CACHE), served], 10)
        with streaming(served, [{**LONG, "max_tokens": 200}]) as [answer]:
            step = slurm.run("squeue", "-h", "-s", "-o", "%i").stdout.split()
            slurm.run("scancel", "--signal=TERM", *[name for name in step if name.endswith(".0")])
            self.assertIn("[DONE]", answer.result(60))
        self.assertEqual(served.rank.wait(60), 0, served.rank.text())


class Faults(Hosts):
    CACHE = LONG_CONTEXT

    def streams_while(self, served, happens):
        with streaming(served, [LONG] * AT_ONCE) as streams:
            happens()
            begun = time.monotonic()
            answers = [stream.result(30) for stream in streams]
            self.assertLess(time.monotonic() - begun, ranks_test.LOST_SECONDS)
            return answers

    def check_lost(self, served, *words):
        self.assertEqual(served.rank.wait(20), EXIT_LOST, served.rank.text())
        lines = [line for line in served.log if "the group of ranks is lost" in line]
        self.assertEqual(len(lines), 1, served.log)
        for word in words:
            self.assertIn(word, lines[0])

    def test_a_killed_rank_ends_all(self):
        """FT-19."""
        served, followers = self.group(3)
        for answer in self.streams_while(served, followers[1].process.kill):
            self.assertNotIn("[DONE]", answer)
            self.assertRegex(answer, "rank 2 .*has ended|status 503")
        self.check_lost(served, "rank 2 (at 127.0.0.1)", "has ended, or its connection has")
        self.assertEqual(followers[0].wait(20), EXIT_LOST)
        self.assertIn("rank 1", followers[0].text())
        # The next group finds the port free.
        served, followers = self.group(3)
        self.assertEqual(served.choices({**LONG, "max_tokens": 3})[0]["finish_reason"], "length")

    def test_a_stopped_rank_is_found_out_and_ends_when_it_wakes(self):
        served, followers = self.group(2)
        self.streams_while(served, lambda: followers[0].process.send_signal(signal.SIGSTOP))
        self.check_lost(served, "rank 1 (at 127.0.0.1)", "has been silent for")
        followers[0].process.send_signal(signal.SIGCONT)
        self.assertNotEqual(followers[0].wait(20), 0)
        self.assertIn("rank 1", followers[0].text())

    @full
    def test_a_killed_leader_ends_all(self):
        served, followers = self.group(3)
        self.streams_while(served, served.process.kill)
        for follower in followers:
            self.assertNotEqual(follower.wait(20), 0)
            self.assertRegex(follower.text(), "rank [12].*(the leader has gone|exchange|connection)")

    @full
    def test_a_stopped_leader_is_left(self):
        served, followers = self.group(2)
        served.process.send_signal(signal.SIGSTOP)
        self.assertEqual(followers[0].wait(20), EXIT_LOST)
        self.assertIn("rank 1 ends: the leader has been silent for", followers[0].text())
        served.process.send_signal(signal.SIGCONT)
        self.check_lost(served, "rank 1 (at 127.0.0.1)")

    def test_a_stop_lets_answers_end(self):
        served, followers = self.group(2)
        with streaming(served, [{**LONG, "max_tokens": 200}]) as [answer]:
            for process in (*followers, served):
                process.process.send_signal(signal.SIGTERM)
            self.assertIn("[DONE]", answer.result(60))
        self.assertEqual(served.rank.wait(30), 0, served.rank.text())
        self.assertEqual(followers[0].wait(30), 0, followers[0].text())

    def group_by_proxy(self):
        """What leader and follower say to each other, but for numbers, goes through something that can fail."""
        proxy = Proxy(("127.0.0.3", free_port()), (LEADER, self.port))
        self.addCleanup(proxy.close)
        host, port = proxy.place
        follower = self.rank(1, 2, "--master-addr", host, "--master-port", port)
        return Served(self.addCleanup, self.words(0, 2)), follower, proxy

    def test_a_cut_connection_ends_all(self):
        served, follower, proxy = self.group_by_proxy()
        for answer in self.streams_while(served, proxy.cut):
            self.assertNotIn("[DONE]", answer)
        self.check_lost(served, "rank 1 (at 127.0.0.1)", "has ended, or its connection has")
        self.assertNotEqual(follower.wait(20), 0)

    @full
    def test_a_connection_through_which_nothing_comes_any_more_ends_all(self):
        served, follower, proxy = self.group_by_proxy()
        for answer in self.streams_while(served, proxy.swallow):
            self.assertNotIn("[DONE]", answer)
        self.check_lost(served, "rank 1 (at 127.0.0.1)", "has been silent for")
        self.assertNotEqual(follower.wait(20), 0)
        self.assertIn("rank 1", follower.text())

    @full
    def test_idle_ranks_use_no_processor(self):
        served, followers = self.group(2)
        served.choices({"prompt": "a", "max_tokens": 8, "temperature": 0})
        time.sleep(1)
        everybody = [served.process.pid, followers[0].process.pid]
        before = [ranks_test.ticks(process) for process in everybody]
        time.sleep(2)
        self.assertLessEqual(max(ranks_test.ticks(process) - start for process, start in zip(everybody, before)), 2)  # of 200


class Starts(Hosts):
    def check_ends(self, process, *words):
        self.assertNotEqual(process.wait(), 0)
        lines = [line for line in process.log if "rank" in line and "on processors" not in line]
        self.assertEqual(len(lines), 1, process.log)
        for word in words:
            self.assertIn(word, lines[0])

    def test_a_missing_rank_is_named_to_all(self):
        leader = self.rank(0, 3, "--rank-wait-seconds", 2)
        here = self.rank(1, 3)
        self.check_ends(leader, f"rank 2 not at {LEADER}:{self.port} within 2 s")
        self.check_ends(here, "rank 1: the group does not begin: rank 2 not at")
        self.assertEqual([leader.wait(), here.wait()], [1, 1])  # nobody was lost

    def test_a_leader_that_stops_while_it_waits_for_others_is_left(self):
        leader = self.rank(0, 3)
        here = self.rank(1, 3)
        wait_for(lambda: "on processors" in here.text(), 20)
        time.sleep(1.5)  # until it has come
        leader.process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        self.assertEqual(here.wait(20), EXIT_LOST)
        self.assertLess(time.monotonic() - begun, 5)
        self.check_ends(here, "rank 1 ends: the leader has been silent for")
        leader.process.send_signal(signal.SIGCONT)

    def test_a_leader_that_is_killed_while_it_waits_for_others_is_left(self):
        leader = self.rank(0, 3)
        here = self.rank(1, 3)
        wait_for(lambda: "on processors" in here.text(), 20)
        time.sleep(1.5)  # until it has come
        leader.process.kill()
        begun = time.monotonic()
        self.assertEqual(here.wait(20), EXIT_LOST)
        self.assertLess(time.monotonic() - begun, 5)
        self.check_ends(here, "rank 1 ends: the leader has gone before the group began")

    def test_a_leader_that_is_killed_in_its_start_is_lost(self):
        """At any moment: while they meet, connect, load, compare, or just after."""
        codes = []
        for delay in [random.uniform(0, 0.4) for _ in range(24 if FULL else 6)]:
            leader = self.rank(0, 2, "--rank-wait-seconds", 3)
            here = self.rank(1, 2, "--rank-wait-seconds", 3)
            wait_for(lambda: "on processors" in here.text() and "on processors" in leader.text(), 20)
            time.sleep(delay)
            leader.process.kill()
            begun = time.monotonic()
            codes.append(here.wait(20))
            self.assertLess(time.monotonic() - begun, 5)
            is_met = "not there within 3 s" not in here.text()
            self.assertEqual(codes[-1], EXIT_LOST if is_met else 1, (delay, here.log))
            self.check_ends(here, "rank 1")
        self.assertIn(EXIT_LOST, codes)

    def test_a_leader_that_does_not_come_is_named(self):
        self.check_ends(self.rank(1, 2, "--rank-wait-seconds", 1), f"rank 1: the leader at {LEADER}:{self.port}: not there within 1 s")

    @full
    def test_a_stop_ends_the_wait(self):
        waiting = [self.rank(1, 2), self.rank(0, 3)]
        time.sleep(0.5)
        for process in waiting:
            process.process.terminate()
        for process in waiting:
            self.assertIsNotNone(process.wait(20))

    def test_a_rank_that_is_there_twice_is_refused_and_the_group_begins(self):
        first = self.rank(1, 3)
        leader = self.rank(0, 3)
        time.sleep(1)
        self.check_ends(self.rank(1, 3), "rank 1: the leader at", "rank 1 is there already, from 127.0.0.1")
        # Who ended before the group began has left its place.
        first.process.kill()
        first.wait()
        ranks = [self.rank(1, 3), self.rank(2, 3)]
        self.assertTrue(wait_for(lambda: leader.lines), leader.log)
        self.assertTrue(all(rank.process.poll() is None for rank in ranks))

    def test_another_secret_is_refused(self):
        other = self.folder / "other"
        other.write_text("f" * 64)
        leader = self.rank(0, 2, "--rank-wait-seconds", 4)
        self.check_ends(self.rank(1, 2, token=other), "rank 1: the leader at", "does not know the same secret (--rank-token-file)")
        self.check_ends(leader, "rank 1 not at", "a connection from 127.0.0.1 was refused: another token")

    @full
    def test_another_number_of_ranks_is_refused(self):
        leader = self.rank(0, 2, "--rank-wait-seconds", 4)
        self.check_ends(self.rank(1, 3), "rank 1: the leader at", "a group of 3 ranks, 2 at the leader (--tensor-parallel-size)")
        self.check_ends(leader, "rank 1 not at")

    def copy(self, name, change):
        """Another host's model, which is not quite the same."""
        shutil.copytree(BOX, self.folder / name)
        change(self.folder / name)
        return self.folder / name

    def flip_rows(self, model):
        """One bit of 512 bytes in the last quarter of each down projection: rows that rank 1 computes, and rank 0 does not."""
        path = model / "model.safetensors"
        data = bytearray(path.read_bytes())
        size = struct.unpack("<Q", data[:8])[0]
        found = [entry["data_offsets"] for name, entry in json.loads(data[8:8 + size]).items() if "down_proj" in name]
        self.assertGreater(len(found), 0)
        for begin, end in found:
            at = 8 + size + begin + (end - begin) * 3 // 4
            for i in range(at, at + 512):
                data[i] ^= 1
        path.write_bytes(data)

    def change_epsilon(self, model):
        path = model / "config.json"
        text = path.read_text()
        config = {**json.loads(text), "rms_norm_eps": 1e-4}
        self.assertNotEqual(config, json.loads(text))
        path.write_text(json.dumps(config))

    def test_strangers_hold_up_nobody(self):
        """Who connects and says nothing, or something else, is waited for beside the others."""
        leader = self.rank(0, 2, "--rank-wait-seconds", 15)

        def connected():
            with contextlib.suppress(OSError):
                return socket.create_connection((LEADER, self.port))
            return None
        first = []
        self.assertTrue(wait_for(lambda: first.append(connected()) or first[-1]))
        strangers = [first[-1], *(connected() for _ in range(60))]
        for stranger in strangers[::2]:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        self.rank(1, 2)
        self.assertTrue(wait_for(lambda: leader.lines or leader.process.poll() is not None, 40))
        self.assertTrue(leader.lines, leader.log)
        for stranger in strangers:
            stranger.close()

    def test_other_flags_files_and_kernels_are_refused(self):
        subprocess.run([ranks_test.BINARY, "synth", "--like", BOX / "config.json", self.folder / "other"], check=True, capture_output=True,
                       timeout=60)
        for model, more, named in ((BOX, ("--block-size", "32"), "--block-size: 16 at the leader, 32 here"),
                                   (BOX, ("--kv-cache-dtype", "int8"), "--kv-cache-dtype: auto at the leader, int8 here"),
                                   (BOX, ("--kernels", "avx2"), "--kernels: auto at the leader, avx2 here"),
                                   (BOX, ("--enable-expert-parallel",), "--enable-expert-parallel: nothing at the leader, true here"),
                                   (self.folder / "other", (), "config.json: "),
                                   (self.copy("down", self.flip_rows), (), "weights, file 1 of 1: "),
                                   (self.copy("config", self.change_epsilon), (), "config.json: ")):
            follower = self.rank(1, 2, *more, model=model)
            leader = self.rank(0, 2)
            self.check_ends(leader, "rank 1: " + named)
            self.check_ends(follower, "rank 1: " + named)

    def test_what_does_not_go_together_is_refused_by_name(self):
        base = [ranks_test.BINARY, "serve", BOX, *FLAGS, *CACHE, "--rank-token-file", self.token]
        for words, named in ((["--nnodes", 2, "--node-rank", 0], "--tensor-parallel-size 1"),
                             (["--nnodes", 2, "--tensor-parallel-size", 2], "--node-rank"),
                             (["--nnodes", 2, "--node-rank", 2, "--tensor-parallel-size", 2], "--node-rank 2"),
                             (["--nnodes", 2, "--node-rank", 0, "--tensor-parallel-size", 2, "--weights", "int8"], "pelton pack"),
                             (["--nnodes", 2, "--node-rank", 0, "--tensor-parallel-size", 2, "--rank-transport", "shm"], "--rank-transport"),
                             (["--nnodes", 2, "--node-rank", 0, "--tensor-parallel-size", 2, "--sleep-after", "5m"], "--sleep-after"),
                             (["--nnodes", 2, "--node-rank", 0, "--tensor-parallel-size", 2, BOX], "MODEL"),
                             (["--rank-launcher", "slurm", "--tensor-parallel-size", 2], "SLURM_PROCID"),
                             (["--nnodes", 2, "--node-rank", 0, "--tensor-parallel-size", 2, "--master-addr", "192.0.2.1"], "192.0.2.1")):
            env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
            done = subprocess.run([str(word) for word in [*base, *words]], capture_output=True, text=True, timeout=60, check=False, env=env)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(named, done.stderr, words)
        done = subprocess.run([str(word) for word in self.words(0, 2) if word not in ("--rank-token-file", self.token)], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertIn("--rank-token-file", done.stderr)


if __name__ == "__main__":
    ranks_test.BINARY = sys.argv.pop(1)
    unittest.main()
