#!/usr/bin/env python3
"""A group that has lost a rank is started anew by a process that stays (serve --rank-restarts), with a bound; and what each
rank exchanged is in /metrics.

usage: rank_restarts_test.py BINARY
"""
import concurrent.futures
import contextlib
import json
import os
import re
import signal
import sys
import time
import unittest
import urllib.request

import ranks_test
from ports import free_port
from rank_hosts_test import Hosts, Process, Served
from ranks_test import AT_ONCE, BOX, EXIT_LOST, LONG, LONG_CONTEXT, children, running, streaming, wait_for
from tiers import full

ASK = {"prompt": "The wheel of a Pelton turbine", "max_tokens": 12, "temperature": 0, "ignore_eos": True}


@contextlib.contextmanager
def asked(served, body):
    """A stream that may not have begun yet."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        stream = pool.submit(served.stream, body)
        time.sleep(0.05)
        yield [stream]


class Restarts(Hosts):
    def serve(self, *words):
        return Served(self.addCleanup, [ranks_test.BINARY, "serve", BOX, *LONG_CONTEXT,
                                        "--port", self.port, "--tensor-parallel-size", 2, *words])

    def setUp(self):
        super().setUp()
        self.port = free_port()

    def leader(self, served):
        return children(served.process.pid)[0]

    def listening(self, served, times):
        return wait_for(lambda: sum(line.startswith("listening on ") for line in served.rank.lines) >= times, 30)

    def lose_a_rank(self, served):
        leader = self.leader(served)
        follower = children(leader)[0]
        os.kill(follower, signal.SIGKILL)
        self.assertTrue(wait_for(lambda: not running(leader) and not running(follower)))

    def test_a_lost_group_is_started_anew_until_the_bound(self):
        admin = free_port()
        served = self.serve("--rank-restarts", 2, "--admin-port", admin)
        first = served.choices(ASK)
        with streaming(served, [LONG] * AT_ONCE) as streams:
            self.lose_a_rank(served)
            for stream in streams:
                self.assertNotIn("[DONE]", stream.result(30))
        self.assertTrue(self.listening(served, 2), served.log)
        self.assertEqual(served.choices(ASK), first)

        def clean():
            with urllib.request.urlopen(f"http://127.0.0.1:{admin}/debug/ledger", timeout=20) as answer:
                return json.load(answer)["clean"]
        self.assertTrue(wait_for(clean))
        # The leader itself, too.
        os.kill(self.leader(served), signal.SIGKILL)
        self.assertTrue(self.listening(served, 3), served.log)
        self.assertEqual(served.choices(ASK), first)
        self.lose_a_rank(served)
        self.assertEqual(served.rank.wait(20), EXIT_LOST)
        self.assertEqual(sum("it is started anew" in line for line in served.log), 2, served.log)
        self.assertIn("2 times within an hour", served.rank.text())

    def test_FT_19_nothing_that_a_lost_group_has_written_is_used_again(self):
        """What ranks have written of a prompt when one of them is lost is no hit for the group that follows."""
        served = self.serve("--rank-restarts", 2, "--max-num-batched-tokens", 64)
        prompt = {**ASK, "prompt": "The wheel of a Pelton turbine turns. " * 60}

        def ask():
            status, text = served.post(prompt)
            self.assertEqual(status, 200, text)
            answer = json.loads(text)
            return answer["choices"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        alone, cached = ask()
        self.assertEqual(cached, 0)
        self.assertGreater(ask()[1], 0, "the prefix cache is on")
        for begun in (2, 3):  # among its prompt's steps, or before; and behind them
            body = {**prompt, "prompt": f"{begun}. " + prompt["prompt"], "max_tokens": 7000}
            with asked(served, body) if begun == 2 else streaming(served, [body]) as [stream]:
                self.lose_a_rank(served)
                self.assertNotIn("[DONE]", stream.result(30))
            self.assertTrue(self.listening(served, begun), served.log)
            self.assertEqual(ask(), (alone, 0))

    def test_a_stopped_leader_is_started_anew(self):
        served = self.serve("--rank-restarts", 3)
        first = served.choices(ASK)
        leader = self.leader(served)
        follower = children(leader)[0]
        with streaming(served, [LONG] * 2) as streams:
            os.kill(leader, signal.SIGSTOP)
            for stream in streams:
                self.assertNotIn("[DONE]", stream.result(30))
        self.assertTrue(self.listening(served, 2), served.log)
        self.assertEqual(served.choices(ASK), first)
        self.assertTrue(wait_for(lambda: not running(leader) and not running(follower)))

    @full
    def test_a_stopped_leader_of_several_hosts_is_started_anew(self):
        """Its followers cannot end it: the process that stays beside it does."""
        self.port = free_port()
        self.rank(1, 2, "--rank-restarts", 3)
        served = Served(self.addCleanup, self.words(0, 2, "--rank-restarts", 3))
        leader = self.leader(served)
        os.kill(leader, signal.SIGSTOP)
        self.assertTrue(self.listening(served, 2), served.log)
        self.assertFalse(running(leader))
        self.assertIn("has been stopped for", served.rank.text())
        served.url = served.rank.lines[-1].split()[-1]
        self.assertEqual(served.choices(ASK)[0]["finish_reason"], "length")

    @full
    def test_one_that_is_stopped_and_goes_on_serves(self):
        served = self.serve("--rank-restarts", 3)
        leader = self.leader(served)
        everybody = [leader, *children(leader), served.process.pid]
        for how in (signal.SIGSTOP, signal.SIGCONT):
            for process in everybody:
                os.kill(process, how)
            time.sleep(4)
        self.assertEqual(self.leader(served), leader)
        self.assertEqual(served.choices(ASK)[0]["finish_reason"], "length")

    def test_a_stop_is_a_stop(self):
        served = self.serve("--rank-restarts", 5)
        leader = self.leader(served)
        with streaming(served, [{**ASK, "max_tokens": 200}]) as [answer]:
            served.process.send_signal(signal.SIGTERM)
            self.assertIn("[DONE]", answer.result(60))
        self.assertEqual(served.rank.wait(30), 0, served.rank.text())
        self.assertFalse(running(leader))

    def test_nobody_stays_when_the_process_that_stays_is_killed(self):
        served = self.serve("--rank-restarts", 5)
        leader = self.leader(served)
        everybody = [leader, *children(leader)]
        served.process.kill()
        for process in everybody:
            self.assertTrue(wait_for(lambda process=process: not running(process)), process)

    def test_hosts_start_anew_each_for_itself(self):
        self.port = free_port()
        follower = self.rank(1, 2, "--rank-restarts", 3)
        served = Served(self.addCleanup, self.words(0, 2, "--rank-restarts", 3))
        os.kill(children(follower.process.pid)[0], signal.SIGKILL)
        self.assertTrue(self.listening(served, 2), served.log + follower.log)
        served.url = served.rank.lines[-1].split()[-1]
        self.assertEqual(served.choices(ASK)[0]["finish_reason"], "length")

    def test_what_does_not_fail_by_a_loss_is_not_started_anew(self):
        process = Process([ranks_test.BINARY, "serve", self.folder, "--port", self.port, "--tensor-parallel-size", 2,
                           "--rank-restarts", 3])
        self.addCleanup(process.end)
        self.assertEqual(process.wait(), 4)
        self.assertNotIn("anew", process.text())


class Figures(Hosts):
    def test_each_rank_is_in_the_metrics(self):
        served = ranks_test.Served(self.addCleanup, "--kv-cache-memory", "16MiB", "--tensor-parallel-size", 2)
        served.choices({**ASK, "max_tokens": 8})

        def values(name):
            with urllib.request.urlopen(served.url + "/metrics", timeout=20) as answer:
                text = answer.read().decode()
            return {rank: float(value) for rank, value in re.findall(rf'^{name}{{[^}}]*rank="(\d)"[^}}]*}} (\S+)$', text, re.MULTILINE)}
        # As in tests/ranks_test.py: 4 a layer of 8 steps and of the first one, and the head's of 8.
        want = {"0": 9 * 16 + 8, "1": 9 * 16 + 8}
        self.assertTrue(wait_for(lambda: values("pelton_rank_exchanges_total") == want), values("pelton_rank_exchanges_total"))
        for name in ("pelton_rank_received_bytes_total", "pelton_rank_waiting_seconds_total", "pelton_rank_copying_seconds_total"):
            found = values(name)
            self.assertEqual(set(found), {"0", "1"}, name)
            self.assertTrue(all(value > 0 for value in found.values()), (name, found))
        alone = ranks_test.Served(self.addCleanup, "--kv-cache-memory", "16MiB")
        with urllib.request.urlopen(alone.url + "/metrics", timeout=20) as answer:
            self.assertNotIn("pelton_rank_", answer.read().decode())


if __name__ == "__main__":
    ranks_test.BINARY = sys.argv.pop(1)
    unittest.main()
