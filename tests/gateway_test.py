#!/usr/bin/env python3
"""A gateway before workers that are processes of their own: they are killed under streams, and no client loses, doubles or mixes
a token, nor sees an error. Each answer is a function of (prompt, seed, position), so that this test knows every letter of it.

usage: gateway_test.py BINARY    PELTON_FULL: 1 000 kills, 500 prompts
"""
import collections
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import BOX, COUNT, KINDS, SCRIPT, Fleet, Foreign, Process, Socket, ask, chat, chat_kind, check_stream, completion_kind, events, figure, said, letters, text_of
from ports import free_port
from tiers import FULL, full


class Gateway(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def fleet(self, *args, **more):
        fleet = Fleet(self.folder, *args, **more)
        self.addCleanup(fleet.close)
        return fleet

    def test_kills_under_streams_lose_nothing(self):
        kills, streams = (1000, 200) if FULL else (6, 60)
        fleet = self.fleet(4)
        faults, over = [], threading.Event()
        undisturbed = {name: run(fleet.gateway.port) for name, run in KINDS.items()}
        done = collections.Counter()

        def client(name):
            draw = random.Random(name)
            while not over.is_set():
                try:
                    check_stream(fleet.gateway.port, draw.randrange(10**9), draw.randrange(20, 250), draw.randrange(2**31))
                    done["streams"] += 1
                except Exception as error:  # whatever a client sees is a fault
                    faults.append(repr(error)[:600])

        def client_of(name):
            while not over.is_set():
                try:
                    answer = KINDS[name](fleet.gateway.port)
                    if answer != undisturbed[name]:
                        faults.append(f"{name}: {answer} is not {undisturbed[name]}"[:900])
                    done[name] += 1
                except Exception as error:
                    faults.append(f"{name}: {error!r}"[:900])
        clients = [threading.Thread(target=client, args=(i,)) for i in range(streams - len(KINDS))]
        clients += [threading.Thread(target=client_of, args=(name,)) for name in KINDS]
        for one in clients:
            one.start()
        draw = random.Random(7)
        for _ in range(kills):
            # Two stay, so that there is always one to go on at.
            victim = draw.randrange(len(fleet.workers))
            fleet.kill(victim)
            fleet.start(victim)
            end = time.monotonic() + 15
            # A request that two workers are lost with while they begin it is refused, as it may be the cause.
            while (fleet.ready() < 3 or fleet.metric("suspects") > 0) and time.monotonic() < end:
                time.sleep(0.01)
        over.set()
        for one in clients:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        self.assertGreater(done["streams"], streams)
        for name in KINDS:
            self.assertGreater(done[name], 0, name)
        self.assertGreater(fleet.metric("migrations_total"), kills)
        self.assertEqual(fleet.metric("streams_interrupted_total"), 0)
        self.assertEqual(fleet.metric("requests_open"), 0)

    def test_every_kind_of_answer_moves(self):
        """FT-11: each is, after a kill amid it, what it is undisturbed."""
        fleet = self.fleet(3)
        undisturbed, moved, faults = {}, {}, []

        def ask_all(answers):
            def run(name):
                try:
                    answers[name] = KINDS[name](fleet.gateway.port)
                except Exception as error:
                    faults.append(f"{name}: {error!r}"[:900])
            threads = [threading.Thread(target=run, args=(name,)) for name in KINDS]
            for one in threads:
                one.start()
            return threads
        for one in ask_all(undisturbed):
            one.join()
        self.assertEqual(faults, [])
        threads = ask_all(moved)
        for victim in (0, 1):
            time.sleep(0.35)
            fleet.kill(victim)
        fleet.start(0)
        for one in threads:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        for name, answer in undisturbed.items():
            self.assertEqual(moved[name], answer, name)
        self.assertGreater(fleet.metric("migrations_total"), 0)

    def test_a_prompt_with_sampled_turns_is_the_same_elsewhere(self):
        """What the first worker knows of past turns goes with the request: letters are sampled one by one, and would be written
        as longer tokens by a worker that has not sampled them."""
        fleet = self.fleet(2)
        first = said("check 81")
        whole = json.loads(ask(fleet.gateway.port, "POST", "/v1/chat/completions", first)[1])["choices"][0]["message"]["content"]
        home = max(fleet.rows(), key=lambda row: row["requests"])["name"]
        other = "w1" if home == "w0" else "w0"
        ask(fleet.admin, "POST", f"/v1/workers/{other}/drain")
        follow = {**first, "messages": first["messages"] + [{"role": "assistant", "content": whole},
                                                            {"role": "user", "content": f"check 82 {COUNT} please"}]}
        undisturbed = chat_kind(follow)(fleet.gateway.port)
        moved = []
        thread = threading.Thread(target=lambda: moved.append(chat_kind(follow)(fleet.gateway.port)))
        thread.start()
        time.sleep(0.3)
        ask(fleet.admin, "POST", f"/v1/workers/{other}/undrain")
        fleet.kill(int(home[1]))
        thread.join()
        self.assertEqual(moved, [undisturbed])
        fresh = chat_kind(follow)(fleet.gateway.port)[1]["prompt_tokens"]
        self.assertLess(fresh, undisturbed[1]["prompt_tokens"], "the test is to see a difference")

    def stream(self, fleet, number, count):
        """A stream in a thread, which gives what it raised."""
        raised = []

        def run():
            try:
                check_stream(fleet.gateway.port, number, count, number)
            except Exception as error:
                raised.append(repr(error)[:900])
        thread = threading.Thread(target=run)
        thread.start()
        return thread, raised

    def test_a_worker_that_stands_still_is_left_and_not_heard_again(self):
        """FT-12, FT-20: stopped, not dead; what it says when it goes on is nobody's."""
        fleet = self.fleet(2)
        streams = [self.stream(fleet, number, 200) for number in range(100, 120)]
        time.sleep(0.3)
        fleet.workers[0].process.send_signal(signal.SIGSTOP)
        try:
            fleet.wait_for(1)
            for thread, raised in streams:
                thread.join()
                self.assertEqual(raised, [])
        finally:
            fleet.workers[0].process.send_signal(signal.SIGCONT)
        fleet.wait_for(2)
        more = [self.stream(fleet, number, 50) for number in range(200, 210)]
        for thread, raised in more:
            thread.join()
            self.assertEqual(raised, [])

    def test_a_keys_file_that_it_cannot_keep_is_refused(self):
        for text, said in (("", "holds no key"), ("secret tenant rpm=none\n", "rpm")):
            with tempfile.TemporaryDirectory() as folder:
                keys = pathlib.Path(folder) / "keys"
                keys.write_text(text)
                config = pathlib.Path(folder) / "gateway.toml"
                config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nkeys_file = "{keys}"\n'
                                  '[[pool]]\nname = "a"\nmodel = "m"\n')
                done = subprocess.run([gateway_fixture.BINARY, "gateway", "--config", str(config), "--allow-empty", "--check"],
                                      capture_output=True, text=True, timeout=30, check=False)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn(said, done.stderr)

    @full
    def test_a_worker_that_is_stopped_leaves_its_streams_to_others(self):
        """FT-22: SIGTERM; what is running goes on elsewhere at once, and nothing new comes."""
        fleet = self.fleet(2)
        streams = [self.stream(fleet, number, 1500) for number in range(100, 120)]
        while fleet.begun() < len(streams):
            time.sleep(0.01)
        time.sleep(0.3)
        worker, fleet.workers[0] = fleet.workers[0], None
        worker.end(signal.SIGTERM)
        self.assertTrue(all(thread.is_alive() for thread, _ in streams), "the worker waits for none of them")
        self.assertEqual(worker.process.returncode, 0, list(worker.log)[-5:])
        self.assertGreater(fleet.metric("drain_moves_total"), 3)
        streams += [self.stream(fleet, number, 50) for number in range(200, 205)]
        for thread, raised in streams:
            thread.join()
            self.assertEqual(raised, [], list(fleet.gateway.log)[-20:])
        self.assertEqual(fleet.metric("migrations_total", kind="cold") + fleet.metric("streams_interrupted_total"), 0, "left, not lost")

    def test_a_worker_that_is_stopped_is_left_warm(self):
        """The next one computes prompt and answer while this one goes on; then it finds them, and computes some tokens."""
        fleet = self.fleet(2, script={**SCRIPT, "us_per_prefill_token": 300, "step_ms": 8})
        long = "A wheel turns by the river and the miller counts his sacks. " * 40
        count, answers, faults = 700, {}, []

        def client(number):
            body = {"model": "pelton-box", "seed": 3, "stream": True, "stream_options": {"include_usage": True},
                    "messages": [{"role": "user", "content": f"Story {number}. {long} check {number} {count} please"}]}
            try:
                data = events(fleet.gateway.port, "/v1/chat/completions", body)
                chunks = [json.loads(one) for one in data[:-1]]
                answers[number] = (text_of(chunks), chunks[-1]["usage"])
            except Exception as error:
                faults.append(repr(error)[:600])
        clients = [threading.Thread(target=client, args=(number,)) for number in range(6)]
        for one in clients:
            one.start()
        while sum(row["running"] for row in fleet.rows()) < 6:
            time.sleep(0.02)
        time.sleep(0.5)
        victim = max(fleet.rows(), key=lambda row: row["running"])["name"]
        worker, fleet.workers[int(victim[1])] = fleet.workers[int(victim[1])], None
        worker.end(signal.SIGTERM)
        for one in clients:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        for number, (said, _) in answers.items():
            self.assertEqual(said, (letters(3, number, count), ["stop"]), number)
        moved = fleet.metric("warm_moves_total")
        self.assertGreater(moved, 0, list(fleet.gateway.log)[-30:])
        self.assertEqual((fleet.metric("drain_moves_total"), fleet.metric("migrations_total", kind="warm", result="continued")), (moved, moved))
        self.assertEqual(fleet.metric("migrations_total"), moved)
        self.assertGreater(fleet.metric("stream_gap_seconds_count"), 0)
        self.assertGreater(fleet.metric("warm_tokens_total"), moved, "it went on talking meanwhile")
        computed = figure(next(one for one in fleet.workers if one is not None).port, "vllm:iteration_tokens_total_sum")
        self.assertLess(computed, sum(usage["total_tokens"] for _, usage in answers.values()) + 200 * moved, "found there, and not computed again")

    def test_the_last_worker_of_a_pool_ends_its_streams_itself(self):
        """FT-22: nobody is there to go on; they have --drain-seconds."""
        fleet = self.fleet(1)
        streams = [self.stream(fleet, number, 200) for number in range(100, 110)]
        while fleet.begun() < len(streams):
            time.sleep(0.01)
        time.sleep(0.2)
        worker, fleet.workers[0] = fleet.workers[0], None
        worker.end(signal.SIGTERM)
        for thread, raised in streams:
            thread.join()
            self.assertEqual(raised, [], list(fleet.gateway.log)[-20:])
        self.assertEqual(fleet.metric("drain_moves_total"), 0)

    @full
    def test_every_kind_of_answer_leaves_a_worker_that_is_stopped(self):
        """FT-22, FT-11: rolling restarts under each kind of answer; none is another one for it."""
        fleet = self.fleet(2)
        undisturbed = {name: run(fleet.gateway.port) for name, run in KINDS.items()}
        faults, moved = [], {}

        def run(name):
            try:
                moved[name] = KINDS[name](fleet.gateway.port)
            except Exception as error:
                faults.append(f"{name}: {error!r}"[:900])
        threads = [threading.Thread(target=run, args=(name,)) for name in KINDS]
        for one in threads:
            one.start()
        time.sleep(0.3)
        worker, fleet.workers[0] = fleet.workers[0], None
        worker.end(signal.SIGTERM)
        for one in threads:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        for name, answer in undisturbed.items():
            self.assertEqual(moved[name], answer, name)
        self.assertGreater(fleet.metric("drain_moves_total"), 0)
        self.assertEqual(fleet.metric("migrations_total", kind="cold"), 0)

    def test_without_a_worker_there_is_one_error_and_it_recovers(self):
        """FT-14."""
        fleet = self.fleet(1, gateway=("resume_budget = 0.5\n",))
        raised = []

        def run():
            raised.extend(events(fleet.gateway.port, "/v1/chat/completions", chat(1, 250, 1, stream=True)))
        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.3)
        fleet.kill(0)
        thread.join()
        self.assertEqual(json.loads(raised[-1])["error"]["code"], "stream_interrupted")
        self.assertNotIn("[DONE]", raised)
        status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions", chat(1, 5, 1))
        self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "no_worker"))
        # FT-08: its client does not wait so long; here, and amid an answer that takes longer.
        for header in ("x-request-timeout-ms", "x-request-deadline-ms"):
            status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions", chat(1, 5, 1), **{header: "50"})
            self.assertEqual((status, json.loads(text)["error"]["code"]), (408, "deadline_exceeded"))
        self.assertEqual(ask(fleet.gateway.port, "GET", "/ready")[0], 503)
        fleet.start(0)
        fleet.wait_for(1)
        check_stream(fleet.gateway.port, 7, 20, 7)
        for header in ("x-request-timeout-ms", "x-request-deadline-ms"):
            status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions", chat(1, 900, 1), **{header: "150"})
            self.assertEqual((status, json.loads(text)["error"]["code"]), (408, "deadline_exceeded"))

    def test_a_request_that_ends_workers_ends_two(self):
        """FT-15."""
        fleet = self.fleet(4)
        status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions",
                           {"model": "pelton-box", "messages": [{"role": "user", "content": "poison"}]})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (500, "request_quarantined"))
        fleet.wait_for(2)
        # Its client tries again: no further worker ends of it.
        for _ in range(3):
            status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions",
                               {"model": "pelton-box", "messages": [{"role": "user", "content": "poison"}]})
            self.assertEqual((status, json.loads(text)["error"]["code"]), (500, "request_quarantined"))
        self.assertEqual(fleet.ready(), 2)
        check_stream(fleet.gateway.port, 7, 20, 7)

    @full
    def test_a_request_that_ends_workers_among_others_ends_two(self):
        """FT-15: what was begun beside it is not blamed, whoever it was."""
        fleet = self.fleet(4)
        over, faults = threading.Event(), []
        self.addCleanup(over.set)

        def others(number):
            draw = random.Random(number)
            while not over.is_set():
                try:
                    check_stream(fleet.gateway.port, draw.randrange(10**9), draw.randrange(2, 30), draw.randrange(2**31))
                except Exception as error:
                    faults.append(repr(error)[:600])
        clients = [threading.Thread(target=others, args=(i,)) for i in range(24)]
        for one in clients:
            one.start()
        time.sleep(0.3)
        status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions",
                           {"model": "pelton-box", "messages": [{"role": "user", "content": "poison"}]})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (500, "request_quarantined"), list(fleet.gateway.log)[-60:])
        time.sleep(0.3)
        over.set()
        for one in clients:
            one.join()
        self.assertEqual(faults, [], list(fleet.gateway.log)[-20:])
        alive = sum(worker.process.poll() is None for worker in fleet.workers)
        self.assertEqual(alive, 2, list(fleet.gateway.log)[-60:])
        fleet.wait_for(2)
        self.assertEqual(fleet.metric("quarantined_total"), 1)

    def test_a_response_over_a_websocket_moves(self):
        """FT-11: its workers die amid it; the next one knows what was said before, wherever it is made."""
        fleet = self.fleet(3, gateway=("resume_budget = 1\n",))
        link = Socket(fleet.gateway.port)
        self.addCleanup(link.close)
        self.assertEqual(link.status, 101)
        heard = []
        thread = threading.Thread(target=lambda: heard.extend(link.response(input="check 91 600 please", seed=5)))
        thread.start()
        for victim in (0, 1):
            time.sleep(0.4)
            fleet.kill(victim)
        thread.join()
        self.assertEqual(heard[-1]["type"], "response.completed", heard[-1])
        text = "".join(one["delta"] for one in heard if one["type"] == "response.output_text.delta")
        self.assertEqual(text, letters(5, 91, 600))
        numbers = [one["sequence_number"] for one in heard]
        self.assertTrue(all(a < b for a, b in zip(numbers, numbers[1:])), numbers)
        # The conversation goes on by the last one's name.
        first = heard[-1]["response"]
        more = link.response(input="check 92 20 please", seed=5, previous_response_id=first["id"])
        self.assertEqual(more[-1]["type"], "response.completed", more[-1])
        self.assertEqual(more[-1]["response"]["output"][-1]["content"][0]["text"], letters(5, 92, 20))
        self.assertGreater(more[-1]["response"]["usage"]["input_tokens"], first["usage"]["input_tokens"] + 100)
        # What is wrong is said, and the connection stays; one may be cancelled, and another one made.
        self.assertEqual(link.response(input=7)[-1]["type"], "error")
        link.say({"type": "hello"})
        self.assertEqual(link.hear()["type"], "error")
        link.say({"type": "response.create", "model": "pelton-box", "input": "check 93 1500 please"})
        while link.hear()["type"] != "response.output_text.delta":
            pass
        link.say({"type": "response.cancel"})
        said = link.hear()
        while said["type"] != "error":
            said = link.hear()
        self.assertEqual(said["error"]["code"], "response_cancelled")
        self.assertEqual(link.response(input="check 94 5 please", seed=1)[-1]["type"], "response.completed")
        # Nobody is left to go on: an error, and a close that is none of a complete one's.
        link.say({"type": "response.create", "model": "pelton-box", "input": "check 95 1500 please"})
        while link.hear()["type"] != "response.output_text.delta":
            pass
        fleet.kill(2)
        said = link.hear()
        while not isinstance(said, int):
            last, said = said, link.hear()
        self.assertEqual((last["type"], last["code"], said), ("error", "stream_interrupted", 1011))
        self.assertEqual(Socket(fleet.gateway.port, Origin="http://attacker.example").status, 403)
        self.assertEqual(ask(fleet.gateway.port, "GET", "/v1/responses")[0], 426)

    def test_a_models_text_is_that_of_the_undisturbed_run(self):
        """FT-10, JS-27: the model in the box computes; greedy and drawn, with penalties and a grammar, without guesses and with them."""
        flags = ("--kv-cache-memory", "64MiB", "--threads", "1", "--max-num-seqs", "32")
        guesses = {"method": "suffix+draft_model", "model": str(BOX / "draft"), "num_speculative_tokens": 3}
        guessing = (*flags, "--speculative-config", json.dumps({**guesses, "adaptive": False}))
        prompts = ["Hello", "The wheel turns", "One two three", "A river", "Tell me of", "My name is", "In the morning", "Water"]
        bodies = [{"model": "pelton-box", "prompt": text, "max_tokens": 160, "seed": seed, "ignore_eos": True,
                   **({"temperature": 0} if seed % 3 == 0 else {"temperature": 1, "frequency_penalty": 0.4,
                                                               "repetition_penalty": 1.1, "logprobs": 2})}
                  for seed, text in enumerate(prompts * (63 if FULL else 1))]
        bodies += [{**one, "structured_outputs": {"regex": "[a-z ]{100,150}"}, "ignore_eos": False} for one in bodies[:4]]

        def texts(fleet, between=lambda _: None):
            answers = [None] * len(bodies)

            def run(i):
                try:
                    answers[i] = completion_kind(bodies[i])(fleet.gateway.port)
                except Exception as error:
                    answers[i] = repr(error)[:500]
            threads = [threading.Thread(target=run, args=(i,)) for i in range(len(bodies))]
            for one in threads:
                one.start()
            between(fleet)
            for one in threads:
                one.join()
            return answers

        def kill_two(fleet):
            while fleet.begun() < len(bodies):
                time.sleep(0.01)
            for victim in (0, 1):
                fleet.kill(victim)
                end = time.monotonic() + 15
                while fleet.metric("suspects") > 0 and time.monotonic() < end:
                    time.sleep(0.02)
                time.sleep(0.2)
        undisturbed = texts(self.fleet(1, serve=flags))
        for serve in (flags, guessing) if FULL else (guessing,):
            with self.subTest(serve=serve):
                fleet = self.fleet(3, serve=serve)
                self.assertEqual(texts(fleet, kill_two), undisturbed)
                self.assertGreater(fleet.metric("migrations_total") + fleet.metric("retries_total"), 0)
                fleet.close()

    def test_an_operator_drains_and_ejects(self):
        fleet = self.fleet(2)
        self.assertEqual(ask(fleet.admin, "POST", "/v1/workers/w0/drain")[0], 200)
        self.assertEqual(json.loads(ask(fleet.admin, "GET", "/v1/workers/w0")[1])["state"], "draining")
        for number in range(5):
            check_stream(fleet.gateway.port, number, 5, 1)
        self.assertEqual({row["name"]: row["requests"] for row in fleet.rows()}, {"w0": 0, "w1": 5})
        ask(fleet.admin, "POST", "/v1/workers/w0/undrain")
        ask(fleet.admin, "POST", "/v1/workers/w1/eject")
        check_stream(fleet.gateway.port, 9, 5, 1)
        self.assertEqual({row["name"]: row["requests"] for row in fleet.rows()}, {"w0": 1, "w1": 5})
        self.assertEqual(ask(fleet.admin, "POST", "/v1/workers/w1/restore")[0], 200)
        self.assertEqual(fleet.ready(), 2)
        self.assertEqual(ask(fleet.admin, "POST", "/v1/workers/nobody/drain")[0], 404)
        self.assertEqual(ask(fleet.admin, "GET", "/v1/workers/w1/drain")[0], 405)
        for method, path in (("DELETE", "/v1/workers"), ("POST", "/v1/workers"), ("PUT", "/v1/workers/w1"), ("POST", "/metrics")):
            self.assertEqual(ask(fleet.admin, method, path)[0], 405, (method, path))
        # Ollama's clients ask for these first.
        self.assertEqual([one["name"] for one in json.loads(ask(fleet.gateway.port, "GET", "/api/tags")[1])["models"]], ["pelton-box"])
        self.assertIn("version", json.loads(ask(fleet.gateway.port, "GET", "/api/version")[1]))
        # GW-18: none of it on the clients' listener.
        for path in ("/v1/workers", "/metrics"):
            self.assertEqual(ask(fleet.gateway.port, "GET", path)[0], 404, path)

    def test_D4_pages_of_a_browser_reach_no_listener(self):
        fleet = self.fleet(1)
        drain = "/v1/workers/w0/drain"
        for port, method, path in ((fleet.gateway.port, "GET", "/v1/models"), (fleet.admin, "GET", "/v1/workers"),
                                   (fleet.admin, "POST", drain)):
            status, text = ask(port, method, path, Host="attacker.example")
            self.assertEqual(403, status, (path, text))
        status, text = ask(fleet.admin, "POST", drain, Origin="http://attacker.example")
        self.assertEqual(403, status, text)
        self.assertEqual(1, fleet.ready(), "nobody has drained it")
        self.assertEqual(200, ask(fleet.admin, "POST", drain)[0])

    def test_a_pool_without_workers_takes_nobody_out(self):
        """A probe of `/ready` that failed for one pool would end every pool's answers."""
        fleet = self.fleet(2)
        fleet.configure(fleet.ports[:1], '[[pool]]\nname = "other"\nmodel = "pelton-box"\n[[worker]]\npool = "other"\n'
                        f'url = "http://127.0.0.1:{fleet.ports[1]}"\n'
                        '[[route]]\nmodel = "pelton-box"\nto = [{pool = "box"}, {pool = "other"}]\n')

        def wait(what):
            end = time.monotonic() + 15
            while not what() and time.monotonic() < end:
                time.sleep(0.05)
            self.assertTrue(what(), fleet.rows())

        def ready():
            status, text = ask(fleet.gateway.port, "GET", "/ready")
            return status, json.loads(text).get("without_workers")
        wait(lambda: [row["pool"] for row in fleet.rows() if row["state"] == "ready"].count("other") == 1)
        self.assertEqual(ready(), (200, None))
        fleet.kill(1)
        wait(lambda: ready()[1] == ["other"])
        self.assertEqual(ready()[0], 200)
        fleet.kill(0)
        wait(lambda: ready()[0] == 503)
        self.assertEqual(ready()[1], ["box", "other"])

    def test_a_worker_of_the_wrong_model_gets_nothing(self):
        """GW-05."""
        fleet = self.fleet(1, gateway=("resume_budget = 0.2\n",),
                           serve=("--executor", f"modelled:{self.folder}/script.json", "--served-model-name", "other"))
        status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions", chat(1, 5, 1))
        self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "no_worker"))
        self.assertEqual(fleet.rows()[0]["requests"], 0)
        self.assertEqual(ask(fleet.gateway.port, "GET", "/ready")[0], 503)
        self.assertIn("its pool's model 'pelton-box' is none of its own: other", fleet.rows()[0]["reason"])
        self.assertIn("is none of its own", "".join(fleet.gateway.log))

    def verb(self, fleet, *words):
        done = subprocess.run([gateway_fixture.BINARY, "fleet", *words, "--admin", f"http://127.0.0.1:{fleet.admin}"], capture_output=True, text=True,
                              timeout=30, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_why_a_worker_does_not_join_is_said(self):
        fleet = self.fleet(1)
        nobody = free_port()
        other = self.folder + "/other.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", other], check=True)
        stranger = Process("serve", BOX, "--executor", f"modelled:{fleet.script}", "--port", "0", "--fleet-port", free_port(),
                           "--fleet-name", "stranger", "--fleet-key-file", other)
        self.addCleanup(stranger.end)
        theirs = int(stranger.fleet_line().rsplit(":", 1)[1])
        fleet.configure([*fleet.ports, nobody, theirs, stranger.port])
        fleet.gateway.process.send_signal(signal.SIGHUP)
        wanted = {nobody: "cannot connect to", theirs: "no TLS with", stranger.port: "no TLS with"}

        def reasons():
            return {int(row["address"].rsplit(":", 1)[1]): row["reason"] for row in fleet.rows()}
        end = time.monotonic() + 15
        while not all(text in reasons().get(port, "") for port, text in wanted.items()) and time.monotonic() < end:
            time.sleep(0.05)
        for port, text in wanted.items():
            self.assertIn(text, reasons()[port])
            line = f"worker 127.0.0.1:{port} is joining: {text}"
            while line not in "".join(fleet.gateway.log) and time.monotonic() < end:
                time.sleep(0.05)
            self.assertIn(line, "".join(fleet.gateway.log))
        self.assertEqual(reasons()[fleet.ports[0]], "")
        code, out, _ = self.verb(fleet, "ls")
        self.assertEqual(code, 0)
        self.assertIn("cannot connect to", out)
        code, out, _ = self.verb(fleet, "show", f"127.0.0.1:{nobody}")
        self.assertIn("cannot connect to", json.loads(out)["reason"])
        for words in (("show", "nope"), ("drain", "nope")):
            code, _, err = self.verb(fleet, *words)
            self.assertEqual(code, 2)
            self.assertIn("no worker is named 'nope'; `pelton fleet ls` lists them", err)

    def test_the_file_is_read_anew(self):
        """GW-01, GW-02, FT-24: on SIGHUP and when it has changed; what is wrong changes nothing; no stream minds."""
        fleet = self.fleet(2)
        over = threading.Event()

        def hang_up():
            while not over.is_set():
                fleet.gateway.process.send_signal(signal.SIGHUP)
                time.sleep(0.1)
        reloads = threading.Thread(target=hang_up)
        reloads.start()
        streams = [self.stream(fleet, number, 150) for number in range(300, 320)]
        for thread, raised in streams:
            thread.join()
            self.assertEqual(raised, [])
        over.set()
        reloads.join()
        self.assertGreater(fleet.metric("config_reloads_total"), 3)
        self.assertEqual(fleet.metric("migrations_total") + fleet.metric("retries_total"), 0)

        def wait(what):
            end = time.monotonic() + 15
            while not what() and time.monotonic() < end:
                time.sleep(0.05)
            self.assertTrue(what(), list(fleet.gateway.log)[-5:])
        refused = fleet.metric("config_reloads_refused_total")
        for text, words in ((fleet.head + "oops = 3\n", "has no key 'oops'"), (fleet.head, "there is no [[worker]]")):
            fleet.config.write_text(text)
            refused += 1
            wait(lambda: fleet.metric("config_reloads_refused_total") >= refused)
            wait(lambda: words in "".join(fleet.gateway.log))
        self.assertEqual(fleet.ready(), 2)
        check_stream(fleet.gateway.port, 7, 20, 7)
        # One is taken out while it answers: that answer ends there, and nothing else comes.
        thread, raised = self.stream(fleet, 400, 200)
        wait(lambda: sum(row["requests"] for row in fleet.rows()) > 21)
        fleet.configure(fleet.ports[:1])
        wait(lambda: len(fleet.rows()) == 1)
        thread.join()
        self.assertEqual(raised, [])
        fleet.configure(fleet.ports)
        fleet.wait_for(2)

    def test_workers_are_found_in_a_file_and_by_a_name(self):
        """Sources add up; a file that is wrong and a name that is unknown take nobody out (FT-29)."""
        workers = pathlib.Path(self.folder) / "workers.toml"
        workers.write_text("")
        fleet = self.fleet(2, gateway=(f'workers_file = "{workers}"\n',))

        def entry(port):
            return f'[[worker]]\npool = "box"\nurl = "http://127.0.0.1:{port}"\n'

        def wait(what):
            end = time.monotonic() + 15
            while not what() and time.monotonic() < end:
                time.sleep(0.05)
            self.assertTrue(what(), (fleet.rows(), list(fleet.gateway.log)[-5:]))
        # One stands in the configuration, the other in the file, and the first one there too.
        workers.write_text(entry(fleet.ports[1]) + entry(fleet.ports[0]))
        fleet.configure(fleet.ports[:1])
        wait(lambda: fleet.metric("config_reloads_total") > 0)
        wait(lambda: sorted(row["name"] for row in fleet.rows()) == ["w0", "w1"])
        self.assertEqual(fleet.metric("config_reloads_refused_total"), 0)
        workers.write_text("[[worker]]\n")
        wait(lambda: fleet.metric("config_reloads_refused_total") == 1)
        self.assertIn("workers.toml:1: [[worker]]: 'pool' is missing", "".join(fleet.gateway.log))
        self.assertEqual(fleet.ready(), 2)
        workers.write_text("")
        wait(lambda: [row["name"] for row in fleet.rows()] == ["w0"])
        # By a name: this machine has one.
        fleet.configure(fleet.ports[:1], f'[[pool]]\nname = "named"\nmodel = "other"\ndns = "localhost:{fleet.ports[1]}"\n'
                        '[[pool]]\nname = "unknown"\nmodel = "third"\ndns = "nobody.invalid:1"\n')
        wait(lambda: ("w1", "named") in [(row["name"], row["pool"]) for row in fleet.rows()])
        wait(lambda: "the pool 'unknown': nobody.invalid:" in "".join(fleet.gateway.log))

    def test_workers_that_are_no_peltons(self):
        """Retried until the first byte, never passed on as whole when they are not (GW-03, GW-07, GW-08, GW-09)."""
        foreigners = [Foreign("other"), Foreign("other")]
        for one in foreigners:
            self.addCleanup(one.close)
        port, admin = free_port(), free_port()
        config = pathlib.Path(self.folder) / "foreign.toml"
        config.write_text(
            f'[gateway]\nlisten = "127.0.0.1:{port}"\nadmin = "127.0.0.1:{admin}"\nretries = 2\nresume_budget = 1\n'
            '[[pool]]\nname = "other"\nmodel = "other"\nkind = "openai"\n[[pool]]\nname = "self"\nmodel = "loop"\nkind = "openai"\n'
            + "".join(f'[[worker]]\npool = "other"\nurl = "http://127.0.0.1:{one.server_port}"\n' for one in foreigners)
            + f'[[worker]]\npool = "self"\nurl = "http://127.0.0.1:{port}"\n')
        gateway = Process("gateway", "--config", config)
        self.addCleanup(gateway.end)
        end = time.monotonic() + 15
        while ask(port, "GET", "/ready")[0] != 200:
            self.assertLess(time.monotonic(), end, list(gateway.log)[-10:])
            time.sleep(0.05)
        body = {"model": "other", "messages": [{"role": "user", "content": "hello"}]}
        path = "/v1/chat/completions"

        def streamed():
            return events(port, path, {**body, "stream": True})

        def fails(*modes):
            for one, mode in zip(foreigners, modes):
                one.mode = mode
            for row in json.loads(ask(admin, "GET", "/v1/workers")[1])["workers"]:
                ask(admin, "POST", f"/v1/workers/{row['name']}/restore")
        self.assertEqual(json.loads(ask(port, "POST", path, body)[1]), body, "the request as it came")
        self.assertEqual(streamed()[-1], "[DONE]")
        seen = next(headers for one in foreigners for headers in one.headers_seen)
        self.assertIn("x-pelton-hops", seen)
        self.assertNotIn("Authorization", seen)
        for mode in ("half", "silent", "busy"):
            for broken in ((mode, "good"), ("good", mode)):
                fails(*broken)
                for _ in range(1 if mode == "busy" else 3):  # refusals are retried within a budget
                    status, text = ask(port, "POST", path, body)
                    self.assertEqual((status, json.loads(text)), (200, body), (mode, list(gateway.log)[-5:]))
        fails("busy", "busy")
        self.assertEqual(ask(port, "POST", path, body)[0], 503)
        fails("wrong", "wrong")
        asked = sum(one.asked for one in foreigners)
        self.assertEqual(ask(port, "POST", path, body)[0], 404)
        self.assertEqual(sum(one.asked for one in foreigners), asked + 1, "what is refused for good is asked once")
        fails("silent", "good")
        self.assertEqual(streamed()[-1], "[DONE]")
        fails("chatty", "chatty")
        self.assertEqual(streamed()[-1], "[DONE]")
        fails("cut", "cut")
        data = streamed()
        self.assertEqual(json.loads(data[0])["choices"][0]["delta"]["content"], "0")
        self.assertEqual(json.loads(data[-1])["error"]["code"], "stream_interrupted")
        self.assertEqual(len(data), 2, "one error, and no end")
        status, text = ask(port, "POST", path, {**body, "model": "loop"})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (508, "loop_detected"))

    def test_a_prompt_goes_where_it_is_known(self):
        """What a worker holds of a prompt is expected there, found there, and shown by explain."""
        fleet = self.fleet(3, script={**SCRIPT, "us_per_prefill_token": 50}, pool=f'tokenizer = "{BOX}"\n')
        long = "A wheel turns by the river and the miller counts his sacks. " * 40

        def words(conversation, turn):
            return {"model": "pelton-box", "messages": [{"role": "user", "content": f"Story {conversation}. {long}"}] + [
                {"role": "user", "content": f"Then {i}."} for i in range(turn)]}
        cached = 0
        for turn in range(4):
            for conversation in range(12):
                status, text = ask(fleet.gateway.port, "POST", "/v1/chat/completions", words(conversation, turn))
                self.assertEqual(status, 200, text)
                details = json.loads(text)["usage"].get("prompt_tokens_details") or {}
                cached += details.get("cached_tokens") or 0
        names = ("prompts_named_total", "expected_hit_tokens_total", "real_hit_tokens_total", "hit_mismatch_total",
                 "prompt_mismatch_total")
        named, expected, real, wrong, miscounted = (fleet.metric(name) for name in names)
        self.assertEqual((named, miscounted), (48, 0))
        self.assertEqual(cached, real)
        self.assertGreater(real, 36 * 100)
        # On a busy machine a report may come later than what was sent is expected to be held without one.
        self.assertLessEqual(wrong, 2, "what is expected is what is found")
        self.assertAlmostEqual(expected, real, delta=real * 0.1)
        self.assertGreater(len([row for row in fleet.rows() if row["requests"] > 0]), 1, "not all at one")
        # Explained: the one that holds it is the one it goes to, and the terms make the cost.
        body = pathlib.Path(self.folder) / "body.json"
        body.write_text(json.dumps(words(3, 3)))
        before = {row["name"]: row["requests"] for row in fleet.rows()}
        code, out, err = self.verb(fleet, "explain", body, "--json")
        self.assertEqual(code, 0, err)
        decision = json.loads(out)
        self.assertEqual({one["name"] for one in decision["candidates"]}, {"w0", "w1", "w2"})
        best = min(decision["candidates"], key=lambda one: one["cost_s"])
        self.assertEqual(decision["chosen"], best["name"])
        self.assertGreater(max(one["hit_tokens"] for one in decision["candidates"]), 100)
        for one in decision["candidates"]:
            terms = one["terms"]
            self.assertAlmostEqual(one["bias"] * terms["first_s"] + one["rest_bias"] * terms["rest_s"] + terms["harm_s"] + terms["room_s"] + terms["pushed_out_s"], one["cost_s"], 6)
        self.assertEqual(before, {row["name"]: row["requests"] for row in fleet.rows()}, "nothing is sent")
        ask(fleet.gateway.port, "POST", "/v1/chat/completions", words(3, 3))
        after = {row["name"]: row["requests"] for row in fleet.rows()}
        # Which one may change meanwhile: each worker's own measure of a step enters, and this machine is shared.
        self.assertEqual(sum(after.values()) - sum(before.values()), 1)
        code, _, err = self.verb(fleet, "explain", "--path", "/nope", body)
        self.assertNotEqual(code, 0, "no worker has that")
        self.assertIn("/nope", err)
        code, out, _ = self.verb(fleet, "explain", body)
        self.assertEqual(1, len(re.findall(r"(?m)^\* w[0-2] ", out)), out)
        self.assertRegex(out, "HIT +TTFT +BIAS +DECODE +BIAS +INTERFERENCE +KV_PRESSURE +COST")
        # RB-02: one that starts anew holds nothing.
        holder = max(decision["candidates"], key=lambda one: one["hit_tokens"])["name"]
        victim = int(holder[1])
        fleet.kill(victim)
        fleet.start(victim)
        fleet.wait_for(3)
        decision = json.loads(self.verb(fleet, "explain", body, "--json")[1])
        self.assertEqual([one["hit_tokens"] for one in decision["candidates"] if one["name"] == holder], [0])

    def test_a_pause_of_everything_ejects_nobody(self):
        """FT-51."""
        fleet = self.fleet(2)
        streams = [self.stream(fleet, number, 200) for number in range(500, 510)]
        time.sleep(0.3)
        everybody = [fleet.gateway.process, *[worker.process for worker in fleet.workers]]
        for one in everybody:
            one.send_signal(signal.SIGSTOP)
        time.sleep(10 if FULL else 4)
        for one in everybody:
            one.send_signal(signal.SIGCONT)
        for thread, raised in streams:
            thread.join()
            self.assertEqual(raised, [])
        fleet.wait_for(2)
        log = "".join(fleet.gateway.log)
        for word in ("is down", "is ejected", "attempt 1"):
            self.assertNotIn(word, log)

    def test_listening_beyond_this_machine_must_be_meant(self):
        file = pathlib.Path(self.folder) / "open.toml"
        for text, words in (('listen = "0.0.0.0:0"\n', ":2: [gateway]: 'listen' 0.0.0.0 lets anyone"),
                            ('admin = "0.0.0.0:0"\n', ":2: [gateway]: 'admin' 0.0.0.0 lets anyone")):
            file.write_text("[gateway]\n" + text)
            check = [gateway_fixture.BINARY, "gateway", "--config", file, "--allow-empty", "--check"]
            done = subprocess.run(check, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 3)
            self.assertIn(words, done.stderr)
            self.assertEqual(subprocess.run([*check, "--open"], check=False, capture_output=True).returncode, 0)

    def test_a_wrong_file_is_refused_with_its_line(self):
        file = pathlib.Path(self.folder) / "wrong.toml"
        for line, said in (("listn = 3", f"{file}:2: [gateway] has no key 'listn'"),
                           ('listen = ""', f"{file}:2: [gateway]: 'listen' must be ADDRESS:PORT"),
                           ('keys_file = "/nowhere/keys"', "'keys_file': /nowhere/keys"),
                           ('fleet_key_file = "/nowhere/key"', "'fleet_key_file': /nowhere/key")):
            file.write_text(f'[gateway]\n{line}\n[[pool]]\nname = "p"\nmodel = "m"\n[[worker]]\npool = "p"\nurl = "http://127.0.0.1:9"\n')
            done = subprocess.run([gateway_fixture.BINARY, "gateway", "--config", file, "--check"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 3, line)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
