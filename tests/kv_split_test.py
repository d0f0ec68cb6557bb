#!/usr/bin/env python3
"""Requests split between a worker that computes the prompt and one that goes on: the model in the box says what it says alone, the bytes that
cross are those of the formula, and whoever is killed in between costs no answer.

usage: kv_split_test.py BINARY
"""
import collections
import concurrent.futures
import json
import pathlib
import random
import re
import signal
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
import kv_peers_test as peers
from gateway_fixture import BOX, Process, ask, events
from kv_peers_test import CHAT, COMMON, PEER
from same_times import check_alike
from tiers import FULL, full

SCHEMA = {"type": "object", "properties": {"words": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 12, "maxItems": 12}},
          "required": ["words"], "additionalProperties": False}
WAYS = ({"temperature": 0, "ignore_eos": True}, {"temperature": 1.1, "seed": 7, "top_p": 0.95, "ignore_eos": True},
        {"temperature": 0, "logprobs": True, "top_logprobs": 2, "ignore_eos": True},
        {"temperature": 0.8, "seed": 3, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}})
PROMPTS = 500 if FULL else 16
TOKENS = 96
# Of tests that say the same of both: ./test asks of the one in which the client waits for the hand-over.
HANDOFFS = ("warm", "first") if FULL else ("first",)


def body(number, **more):
    draw = random.Random(number)
    words = " ".join(draw.choice(("apple", "river", "seven", "cloud", "stone", "paper")) for _ in range(200))
    return {"model": "pelton-box", "messages": [{"role": "user", "content": f"Canary {number}. {words}"}], "max_completion_tokens": TOKENS,
            **WAYS[number % len(WAYS)], **more}


def choices(port, asked):
    status, text = ask(port, "POST", CHAT, asked)
    assert status == 200, text
    return json.dumps(json.loads(text)["choices"])


def without_date(flags):
    at = list(flags).index("--current-date")
    return [*flags[:at], *flags[at + 2:]]


class SplitFleet(peers.PeerFleet):
    """Workers of these roles, in their order."""
    roles = ()
    contexts = {}  # of some of them, in tokens
    more = {}  # flags of some of them
    zones = {}  # time zones of some of them, which see the clock's date then

    def start(self, i):
        self.admins = getattr(self, "admins", {})
        self.admins[i] = peers.free_port()
        common = [str(self.contexts.get(i, word)) if word == "768" else word for word in COMMON]
        if i in self.zones:
            common = without_date(common)
        self.workers[i] = Process("serve", BOX, *common, *self.flags, "--port", "0", "--fleet-port", self.ports[i], "--fleet-name", f"w{i}",
                                  "--fleet-key-file", self.key, "--admin-port", self.admins[i], "--fleet-role", self.roles[i],
                                  *self.more.get(i, ()), env={"TZ": self.zones[i]} if i in self.zones else None)

    def splits(self, outcome):
        return self.metric("splits_total", outcome=outcome)


class Split(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        alone = Process("serve", BOX, *COMMON, "--kv-cache-memory", "16MiB", "--port", "0")
        try:
            cls.alone = [choices(alone.port, body(number)) for number in range(PROMPTS)]
            cls.exact = [cls.tokens_asked(alone.port, n) for n in EDGES]
            cls.growing = [cls.tokens_asked(alone.port, n, seed=1) for n in GROWING]
            cls.several = choices(alone.port, body(0, n=2))
            cls.short = choices(alone.port, body(0, max_completion_tokens=1))
            cls.unbounded = choices(alone.port, cls.unbounded_body())
            cls.prompt_tokens = max(json.loads(ask(alone.port, "POST", CHAT, body(number, max_completion_tokens=1))[1])["usage"]["prompt_tokens"]
                                    for number in range(3))
            cls.response = cls.texts_of(ask(alone.port, "POST", "/v1/responses", cls.response_body())[1])
        finally:
            alone.end()

    @staticmethod
    def unbounded_body():
        """Goes on to the end of its worker's context."""
        return {name: value for name, value in body(0).items() if name != "max_completion_tokens"}

    @staticmethod
    def response_body():
        asked = body(1)
        return {"model": "pelton-box", "input": asked["messages"][0]["content"], "max_output_tokens": TOKENS, "temperature": 0, "seed": 3,
                "ignore_eos": True}

    @staticmethod
    def texts_of(text):
        return [[part["text"] for part in item["content"]] for item in json.loads(text)["output"] if item.get("content")]

    @staticmethod
    def tokens_asked(port, count, seed=None):
        """A prompt of exactly so many tokens; of one seed each begins with the shorter ones."""
        draw = random.Random(seed or 1000 + count)
        status, text = ask(port, "POST", "/v1/completions", {"model": "pelton-box", "prompt": [draw.randrange(300, 900) for _ in range(count)],
                                                             "max_tokens": 40, "temperature": 0, "ignore_eos": True})
        assert status == 200, text
        return json.loads(text)["choices"][0]["text"]

    @staticmethod
    def refusals(fleet):
        """Of workers that were full, by request."""
        return collections.Counter(re.findall(r"request (\S+) attempt \d+ at worker \S+ is over: status 429", "".join(fleet.gateway.log)))

    def fleet(self, roles, pool, serve=PEER, contexts=None, more=None, gateway=(), **zones):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        kind = type("Roles", (SplitFleet,), {"roles": roles, "contexts": contexts or {}, "more": more or {}, **zones})
        fleet = kind(scratch.name, len(roles), serve=serve, gateway=gateway, pool=f'tokenizer = "{BOX}"\n{pool}')
        self.addCleanup(fleet.close)
        return fleet

    def wait(self, what, why):
        end = time.monotonic() + 20
        while not what():
            self.assertLess(time.monotonic(), end, why())
            time.sleep(0.02)

    def check_clean(self, fleet, i):
        self.wait(lambda: json.loads(ask(fleet.admins[i], "GET", "/debug/ledger")[1])["clean"],
                  lambda: f"w{i}: {ask(fleet.admins[i], 'GET', '/debug/ledger')[1]}")

    def check_split(self, handoff):
        fleet = self.fleet(("prefill", "decode"), f'split = "always"\nhandoff = "{handoff}"\n')
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            said = list(pool.map(lambda n: choices(fleet.gateway.port, body(n)), range(PROMPTS)))
        for number in range(PROMPTS):
            self.assertEqual(said[number], self.alone[number], (handoff, number))
        log = list(fleet.gateway.log)[-20:]
        self.assertGreater(fleet.splits("handed_over"), PROMPTS // 2, log)
        self.assertEqual(fleet.splits("handed_over") + fleet.splits("ended"), PROMPTS, log)
        self.assertEqual(fleet.metric("migrations_total", kind="split", result="continued"), fleet.splits("handed_over"))
        self.assertGreater(fleet.figure(1, "pelton_kv_peer_blocks_total", kind="fetched"), 4 * PROMPTS)
        for i in range(2):
            self.check_clean(fleet, i)
        return fleet

    def test_what_is_split_is_said_as_by_one_worker(self):
        fleet = self.check_split("warm")
        # Nearly nothing is computed twice; what does not come in time on a machine that does other things as well is.
        found, recomputed = fleet.metric("split_found_tokens_total"), fleet.metric("split_recomputed_tokens_total")
        self.assertGreater(found, 200 * fleet.splits("handed_over") // 2)
        self.assertLess(recomputed, found // 10 if FULL else found, list(fleet.workers[1].log)[-10:])
        # Blocks are fetched while they are computed: one transfer of a prompt, begun before its first token.
        begun, ahead = (fleet.figure(1, "pelton_kv_peer_fetches_total", kind=kind) for kind in ("begun", "ahead"))
        self.assertGreater(ahead, PROMPTS // 2)
        self.assertLess(begun, ahead + PROMPTS // 2)
        # A response is one answer too, and is stored where it ends.
        before = fleet.splits("handed_over")
        status, text = ask(fleet.gateway.port, "POST", "/v1/responses", self.response_body())
        self.assertEqual((status, self.texts_of(text)), (200, self.response))
        self.assertEqual(fleet.splits("handed_over"), before + 1)
        status, text = ask(fleet.gateway.port, "GET", f"/v1/responses/{json.loads(text)['id']}")
        self.assertEqual((status, self.texts_of(text)), (200, self.response))
        # KV-16. Whole on one worker: several answers, one token or none, several prompts.
        before = sum(fleet.splits(outcome) for outcome in ("handed_over", "ended"))
        self.assertEqual(choices(fleet.gateway.port, body(0, n=2)), self.several)
        self.assertEqual(choices(fleet.gateway.port, body(0, max_completion_tokens=1)), self.short)
        none = {"model": "pelton-box", "prompt": "river " * 50, "max_tokens": 0}
        self.assertEqual(ask(fleet.gateway.port, "POST", "/v1/completions", none)[0], 200)
        self.assertEqual(ask(fleet.gateway.port, "POST", "/v1/completions", {"model": "pelton-box", "prompt": ["a b c d", "e f g h"] * 2})[0], 200)
        self.assertEqual(sum(fleet.splits(outcome) for outcome in ("handed_over", "ended")), before)
        # An operator sees it.
        self.assertEqual([row["role"] for row in fleet.rows()], ["prefill", "decode"])
        decision = json.loads(ask(fleet.admin, "POST", "/v1/explain", body(1))[1])
        self.assertEqual((decision["pair"]["prefill"], decision["pair"]["decode"], decision["pair"]["chosen"]), ("w0", "w1", True))

    def test_usage_and_metrics_say_what_was_computed_for_the_request(self):
        """Of a split answer the first worker has computed the prompt: that the second one finds it is no hit of the client's. Each prompt counts
        once at each worker, by where it came from."""
        for handoff in HANDOFFS:
            fleet = self.fleet(("prefill", "decode"), f'split = "always"\nhandoff = "{handoff}"\n')
            block = json.loads(ask(fleet.admin, "GET", "/v1/index?name=w0")[1])["block_tokens"]
            hits = asked = 0
            for number, again in ((0, False), (0, True), (4, False)):
                usage = json.loads(ask(fleet.gateway.port, "POST", CHAT, body(number))[1])["usage"]
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                whole = (usage["prompt_tokens"] - 1) // block * block
                if again:
                    self.assertEqual(cached, whole, (handoff, usage))
                else:  # what all chats begin with
                    self.assertLess(cached, whole // 2, (handoff, number, usage))
                self.assertNotIn("peer", usage["prompt_tokens_details"].get("cached_tokens_details", {}))
                hits += cached
                asked += usage["prompt_tokens"]
            self.assertEqual(fleet.splits("handed_over"), 3)
            for i in range(2):
                self.assertEqual(fleet.figure(i, "vllm:prompt_tokens_total"), asked, (handoff, i))
                self.assertEqual(fleet.figure(i, "pelton_prefix_cache_hits_total"), fleet.figure(i, "vllm:prefix_cache_hits_total"))
            self.assertEqual(fleet.figure(0, "vllm:prefix_cache_hits_total"), hits, handoff)
            totals = {name: sum(float(value) for value in re.findall(r"^%s\{.*\} (\S+)$" % name, ask(fleet.admin, "GET", "/metrics")[1], re.M))
                      for name in ("vllm:prompt_tokens_total", "vllm:prefix_cache_hits_total")}
            self.assertEqual(totals, {"vllm:prompt_tokens_total": asked, "vllm:prefix_cache_hits_total": hits}, handoff)

    def test_what_stops_with_the_first_token(self):
        fleet = self.check_split("first")
        found, recomputed = fleet.metric("split_found_tokens_total"), fleet.metric("split_recomputed_tokens_total")
        self.assertGreater(found + recomputed, 200 * fleet.splits("handed_over"))
        self.assertGreater(found, 0)

    def check_bytes(self, fleet, asked, texts):
        """Of prompts of `asked` (tokens, seed, tokens that the decoder holds already), in this order; `texts`: what one worker alone says."""
        config = json.loads((pathlib.Path(BOX) / "config.json").read_text())
        block = json.loads(ask(fleet.admin, "GET", "/v1/index?name=w0")[1])["block_tokens"]
        windows = [kind == "sliding_attention" for kind in config["layer_types"]]
        each = 2 * config["num_key_value_heads"] * config["head_dim"] * 2  # bytes of a token of a layer, in 16 bits

        def formula(n, held):
            whole = (n - 1) // block * block
            first = max(0, (whole - config["sliding_window"] + 1) // block * block)
            held = (held - 1) // block * block if held else 0
            return each * sum(whole - max(first, held) if window else whole - held for window in windows)
        last = late = exact = 0
        for (n, seed, held), alone in zip(asked, texts):
            self.assertEqual(self.tokens_asked(fleet.gateway.port, n, seed), alone, n)
            # So few may be computed sooner than asked for: then nothing comes.
            is_short = n - held <= 64
            end, now = time.monotonic() + (0.3 if is_short else 3), last
            while now - last != formula(n, held) and time.monotonic() < end:
                now = fleet.figure(1, "pelton_kv_peer_bytes_total", kind="fetched")
            # On a machine that does other things as well a transfer may be given up: then no more than that has come.
            was_late, late = late, fleet.figure(1, "pelton_kv_peer_fetches_total", kind="late")
            if late == was_late and not (is_short and now == last):
                self.assertEqual(now - last, formula(n, held), (n, block, list(fleet.workers[1].log)[-5:], list(fleet.gateway.log)[-5:]))
                exact += 1
            self.assertLessEqual(now - last, formula(n, held), n)
            last = now
        self.assertGreater(exact, len(asked) // 2)

    def test_the_bytes_that_cross_are_those_of_the_formula(self):
        fleet = self.fleet(("prefill", "decode"), 'split = "always"\nhandoff = "first"\n')
        # The last ones with hits on the decoder: what it holds of the one before.
        self.check_bytes(fleet, [(n, None, 0) for n in EDGES] + [(n, 1, before) for n, before in zip(GROWING, (0, *GROWING))],
                         self.exact + self.growing)

    @full
    def test_the_bytes_that_cross_of_prompts_up_to_the_context(self):
        context = 8192  # the model's; 40 tokens of it are the answer
        draw = random.Random(11)
        lengths = LONG + tuple(draw.randrange(1, 8153) for _ in range(100 if FULL else 0))
        words = [str(context) if word == "768" else word for word in COMMON]
        alone = Process("serve", BOX, *words, "--kv-cache-memory", "64MiB", "--port", "0")
        try:
            texts = [self.tokens_asked(alone.port, n) for n in lengths] + [self.tokens_asked(alone.port, n, seed=2) for n in LONG_GROWING]
        finally:
            alone.end()
        serve = ("--kv-cache-memory", "64MiB", "--swap-space", "64MiB", "--kv-port", "0")
        fleet = self.fleet(("prefill", "decode"), 'split = "always"\nhandoff = "first"\n', serve=serve, contexts={0: context, 1: context})
        self.check_bytes(fleet, [(n, None, 0) for n in lengths] + [(n, 2, before) for n, before in zip(LONG_GROWING, (0, *LONG_GROWING))], texts)

    @full
    def test_a_stranger_finds_nothing_of_what_was_split(self):
        """Neither in its usage nor by its time, at either worker."""
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        keys = pathlib.Path(scratch.name) / "keys"
        keys.write_text("key-a a\nkey-b b\n")
        fleet = self.fleet(("prefill", "decode"), 'split = "always"\n', gateway=(f'keys_file = "{keys}"\n',))
        numbers = list(range(200 if FULL else 24))

        def cached(number, key):
            status, text = ask(fleet.gateway.port, "POST", CHAT, body(number, max_completion_tokens=8), Authorization=f"Bearer {key}")
            self.assertEqual(status, 200, text)
            return json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"]
        for number in numbers:
            cached(number, "key-a")
        common = [0] * len(WAYS)  # what all prompts of a way begin with is b's own by now
        for number in range(6 * len(WAYS)):  # in a full cache it is kept once it has been seen to be common
            common[number % len(WAYS)] = max(common[number % len(WAYS)], cached(9_000 + number, "key-b"))
        check_alike(lambda number: self.assertLessEqual(cached(number, "key-b"), common[number % len(WAYS)]), numbers,
                    [number + 4_000 for number in numbers])  # asked in the same ways
        self.assertGreater(fleet.splits("handed_over") + fleet.splits("ended"), len(numbers))
        self.assertGreater(fleet.splits("handed_over"), 0)
        cached(numbers[-1], "key-a")  # others' prompts may have taken its place
        self.assertGreater(cached(numbers[-1], "key-a"), common[numbers[-1] % len(WAYS)])

    def test_whoever_is_killed_costs_no_answer(self):
        """KV-20, FT-30."""
        for handoff in HANDOFFS:
            self.check_killed(self.fleet(("prefill", "decode", "both"), f'split = "always"\nhandoff = "{handoff}"\n'), (0, 1))
        # Nobody else goes on with answers: the one that has computed their prompts does.
        self.check_killed(self.fleet(("prefill", "decode"), 'split = "always"\nhandoff = "first"\n'), (1,))

    def check_killed(self, fleet, victims):
        rounds = 12 if FULL else 1
        for number in range(rounds):
            for killed in victims:
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    answers = [pool.submit(choices, fleet.gateway.port, body(one)) for one in range(8)]
                    time.sleep(0.08 + 0.02 * number)
                    fleet.kill(killed)
                    if len(fleet.workers) == 2:  # what has not begun waits for it
                        fleet.start(killed)
                    self.assertEqual([one.result() for one in answers], self.alone[:8], (number, killed))
                if fleet.workers[killed] is None:
                    fleet.start(killed)
                self.wait(lambda: fleet.ready() == len(fleet.workers), fleet.rows)
        for i in range(len(fleet.workers)):
            self.check_clean(fleet, i)

    def test_full_decoders_leave_the_answer_with_the_first_worker(self):
        """It has said the first token, and nobody takes the rest."""
        for handoff in HANDOFFS:
            fleet = self.fleet(("prefill", "decode"), f'split = "always"\nhandoff = "{handoff}"\n',
                               serve=(*PEER, "--max-num-queued-reqs", "1"))
            stop = threading.Event()
            with concurrent.futures.ThreadPoolExecutor(5) as pool:
                held = [pool.submit(peers.hold, fleet.workers[1].port, stop) for _ in range(5)]
                try:
                    self.wait(lambda: fleet.figure(1, "vllm:num_requests_waiting") > 0, fleet.rows)
                    for number in range(30):  # until one was sent to it while it was full
                        self.assertEqual(choices(fleet.gateway.port, body(number % PROMPTS)), self.alone[number % PROMPTS], (handoff, number))
                        if number >= 3 and (handoff == "warm" or self.refusals(fleet)):
                            break
                    stream = events(fleet.gateway.port, CHAT, body(0, stream=True))
                finally:
                    stop.set()
                for one in held:
                    one.result()
            self.assertEqual(stream[-1], "[DONE]")
            self.assertNotIn("error", json.dumps(stream))
            self.assertTrue(handoff == "warm" or self.refusals(fleet), list(fleet.gateway.log)[-20:])
            # Whoever was refused did not knock until there was room.
            self.assertLessEqual(max(self.refusals(fleet).values(), default=0), 1, self.refusals(fleet))
            for i in range(2):
                self.check_clean(fleet, i)

    def test_auto_splits_where_decoders_are_busy(self):
        """Two rows fill the worker that decodes: a third request's prompt is computed by the other one, which goes on talking until one is free."""
        fleet = self.fleet(("prefill", "decode"), 'split = "auto"\n')
        self.assertEqual(choices(fleet.gateway.port, body(1)), self.alone[1])
        self.assertEqual(fleet.splits("handed_over") + fleet.splits("ended"), 0)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            said = list(pool.map(lambda n: choices(fleet.gateway.port, body(n)), range(8)))
        self.assertEqual(said, self.alone[:8])
        self.assertGreater(fleet.splits("handed_over") + fleet.splits("ended"), 0)
        for i in range(2):
            self.check_clean(fleet, i)

    def test_a_prompt_that_does_not_fit_the_decoder_is_not_split(self):
        """KV-17: a decoder of too small a context, beside one that does everything."""
        fleet = self.fleet(("prefill", "decode", "both"), 'split = "always"\n', contexts={1: 256})
        for number in range(4):
            self.assertEqual(choices(fleet.gateway.port, body(number)), self.alone[number])
        self.assertEqual(fleet.figure(1, "pelton_kv_peer_fetches_total", kind="begun"), 0)
        self.assertGreater(fleet.splits("handed_over"), 0)
        self.assertGreater(fleet.figure(2, "pelton_kv_peer_fetches_total", kind="begun"), 0)

    @full
    def test_an_answer_that_does_not_fit_the_decoder_is_not_split(self):
        """KV-17: the prompt does, and not what may be said; where that has no bound, not what the first worker would say."""
        for handoff in ("warm", "first"):
            for context, asked in ((self.prompt_tokens + 20, [(body(number), self.alone[number]) for number in range(3)]),
                                   (760, [(self.unbounded_body(), self.unbounded)])):
                fleet = self.fleet(("prefill", "decode", "both"), f'split = "always"\nhandoff = "{handoff}"\n', contexts={1: context})
                for one, alone in asked:
                    self.assertEqual(choices(fleet.gateway.port, one), alone, (handoff, context))
                self.assertEqual(fleet.figure(1, "pelton_kv_peer_fetches_total", kind="begun"), 0, (handoff, context))
                self.assertGreater(fleet.splits("handed_over"), 0, (handoff, context))

    @full
    def test_prompts_that_the_host_has_no_room_for_are_counted(self):
        """Half of --swap-space holds less than what the second worker lacks: it computes that, says so once, and the answer is the same."""
        lengths = (1200, 1300, 1400)
        words = ["2048" if word == "768" else word for word in COMMON]
        alone = Process("serve", BOX, *words, "--kv-cache-memory", "16MiB", "--port", "0")
        try:
            texts = [self.tokens_asked(alone.port, n) for n in lengths]
        finally:
            alone.end()
        for handoff in ("warm", "first"):
            fleet = self.fleet(("prefill", "decode"), f'split = "always"\nhandoff = "{handoff}"\n', contexts={0: 2048, 1: 2048},
                               serve=("--kv-cache-memory", "16MiB", "--swap-space", "1MiB", "--kv-port", "0"))
            self.assertEqual([self.tokens_asked(fleet.gateway.port, n) for n in lengths], texts, handoff)
            self.assertEqual(fleet.figure(1, "pelton_kv_peer_fetches_total", kind="begun"), 0, handoff)
            self.assertGreaterEqual(fleet.figure(1, "pelton_kv_peer_fetches_total", kind="no_room"), len(lengths), handoff)
            self.assertEqual(sum("kind no_room" in line for line in fleet.workers[1].log), 1, list(fleet.workers[1].log)[-10:])
            for i in range(2):
                self.check_clean(fleet, i)

    @full
    def test_a_prompt_has_one_date_in_all_zones(self):
        """The gateway says it: 26 hours lie between the first worker and the others, so it never is the same day there."""
        near, far = "BBB12", "AAA-14"
        alone = Process("serve", BOX, *without_date(COMMON), "--kv-cache-memory", "16MiB", "--port", "0", env={"TZ": near})
        self.addCleanup(alone.end)
        for handoff in ("warm", "first"):
            fleet = self.fleet(("prefill", "decode"), f'split = "always"\nhandoff = "{handoff}"\n', zones={0: far, 1: near},
                               gateway_env={"TZ": near})
            for number in range(4):
                before = choices(alone.port, body(number))
                said = choices(fleet.gateway.port, body(number))
                if before != choices(alone.port, body(number)):
                    continue  # a day has begun there
                self.assertEqual(said, before, (handoff, number))
            self.assertGreater(fleet.splits("handed_over"), 0)
            self.assertGreater(fleet.metric("split_found_tokens_total"), 0)
            self.assertEqual(fleet.figure(1, "pelton_kv_peer_fetches_total", kind="refused"), 0)

    @full
    def test_workers_that_word_it_otherwise_are_never_a_pair(self):
        """Another --current-date or --reasoning-field is another fingerprint."""
        fleet = self.fleet(("both", "both", "both"), 'split = "always"\n')
        fleet.zones = {1: "UTC0"}  # without the others' date
        for flags in (("--current-date", "2026-11-29"), ("--current-date", "2026-11-28", "--reasoning-field", "reasoning")):
            fleet.kill(1)
            fleet.more = {1: flags}
            fleet.start(1)
            self.wait(lambda: [row["state"] for row in fleet.rows()] == ["ready", "unverified", "ready"], fleet.rows)
            self.assertEqual([choices(fleet.gateway.port, body(number)) for number in range(4)], self.alone[:4])

    @full
    def test_whole_requests_go_where_there_is_room(self):
        """Neither what `auto` keeps whole nor what never is split is sent to a worker whose context is too small for it, and no prompt is
        computed where its answer would be refused."""
        asked = [(body(number), self.alone[number]) for number in range(8)]
        asked += [(body(0, n=2), self.several), (body(0, max_completion_tokens=1), self.short)] * 4
        for roles, pool, contexts in ((("prefill", "decode", "both"), 'split = "auto"\n', {1: 256}),
                                      (("prefill", "decode"), 'split = "auto"\n', {1: 256}),  # nobody else has the room
                                      (("prefill", "prefill", "decode"), 'split = "always"\n', {0: 256}),
                                      (("both", "both"), "", {1: 256})):
            fleet = self.fleet(roles, pool, contexts=contexts)
            with concurrent.futures.ThreadPoolExecutor(4) as threads:
                said = list(threads.map(lambda one: choices(fleet.gateway.port, one[0]), asked))
            self.assertEqual(said, [alone for _, alone in asked], (roles, contexts))
            # What nobody has room for is refused by the largest.
            for _ in range(4):
                status, text = ask(fleet.gateway.port, "POST", "/v1/completions", {"model": "pelton-box", "prompt": [400] * 800, "max_tokens": 8})
                self.assertEqual(status, 400, text)
                self.assertIn("maximum context length is 768", text)

    @unittest.skipUnless("avx512" in pathlib.Path("/proc/cpuinfo").read_text(), "this machine has kernels of one kind")
    def test_workers_of_other_kernels_are_never_a_pair(self):
        """What one computes is of no use to the other: they are not asked, and an operator sees why."""
        fleet = self.fleet(("both", "prefill", "decode"), 'split = "always"\n', more={0: ("--kernels", "avx2"), 2: ("--kernels", "avx2")})
        rows = {row["name"]: row for row in fleet.rows()}
        self.assertIn("its blocks are of no use to any worker that goes on", rows["w1"]["reason"])
        alone = [choices(fleet.workers[2].port, body(number)) for number in range(4)]
        self.assertEqual([choices(fleet.gateway.port, body(number)) for number in range(4)], alone)
        self.assertGreater(fleet.splits("handed_over"), 0, fleet.rows())
        for i in range(3):
            self.assertEqual(fleet.figure(i, "pelton_kv_peer_fetches_total", kind="refused"), 0)
        self.assertEqual(fleet.figure(1, "vllm:prompt_tokens_total"), 0)

    def test_a_decoder_that_is_stopped_leaves_the_first_worker_talking(self):
        fleet = self.fleet(("prefill", "decode"), 'split = "always"\n')
        fleet.workers[1].process.send_signal(signal.SIGSTOP)
        try:
            said = [choices(fleet.gateway.port, body(number)) for number in range(2)]
        finally:
            fleet.workers[1].process.send_signal(signal.SIGCONT)
        self.assertEqual(said, self.alone[:2])
        self.assertEqual(fleet.splits("handed_over"), 0)
        self.assertEqual(sum(fleet.splits(outcome) for outcome in ("ended", "no_decoder", "failed")), 2)
        for i in range(2):
            self.check_clean(fleet, i)

    def test_roles(self):
        fleet = self.fleet(("prefill", "prefill"), 'split = "always"\n')
        self.assertEqual(ask(fleet.gateway.port, "GET", "/health")[0], 503)
        for row in fleet.rows():
            self.assertIn("no worker of its pool goes on with answers", row["reason"])
        run = gateway_fixture.subprocess.run([gateway_fixture.BINARY, "fleet", "role", "w1", "decode", "--admin", f"http://127.0.0.1:{fleet.admin}"],
                                             capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.wait(lambda: fleet.rows()[1]["role"] == "decode", fleet.rows)
        self.assertEqual(ask(fleet.gateway.port, "GET", "/health")[0], 200)
        self.assertEqual(choices(fleet.gateway.port, body(0)), self.alone[0])
        self.assertEqual(fleet.splits("handed_over") + fleet.splits("ended"), 1)
        # It goes on with streams too. (Under load: kv_faults_test's test_roles_change_under_load.)
        stream = events(fleet.gateway.port, CHAT, body(0, stream=True))
        self.assertEqual(stream[-1], "[DONE]")
        self.assertEqual(ask(fleet.admin, "POST", "/v1/workers/w1/role?role=cook")[0], 400)
        self.assertEqual(ask(fleet.admin, "POST", "/v1/workers/nobody/role?role=both")[0], 404)
        for query in ("role=prefill&role=both", "role=prefill&x=1", "rolle=prefill", ""):
            self.assertEqual(ask(fleet.admin, "POST", f"/v1/workers/w1/role?{query}")[0], 400, query)
        self.assertEqual(fleet.rows()[1]["role"], "decode")

    def test_flags_that_make_no_sense_are_refused(self):
        run = gateway_fixture.subprocess.run([gateway_fixture.BINARY, "serve", BOX, *COMMON, "--port", "0", "--fleet-port", "0", "--fleet-role",
                                              "decode"], capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("--kv-port", run.stderr)


# Prompts whose ends lie at blocks' edges and beside them, shorter and longer than the window.
EDGES = (66, 95, 96, 97, 159, 160, 161, 255, 256, 257, 385)
GROWING = (193, 321, 353)
LONG = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 2049, 4096, 4097, 8127, 8128, 8129, 8152) if FULL else (1, 17, 65, 1024, 1025, 4097)
LONG_GROWING = (1025, 4097, 8152) if FULL else (1025, 8152)


if __name__ == "__main__":
    gateway_fixture.BINARY = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
