#!/usr/bin/env python3
"""Nothing of a request that is tied to a region ever leaves it: random regions as real processes, random ties and clients, random misfortunes
while they ask. Each tenant's requests hold a word of its own, which is then looked for on the links between regions, in all files of
each region, and in the memory of its processes, those that are killed on the way included; and the ledgers of all gateways are added up.

usage: residency_test.py BINARY    PELTON_SEED: the first case's; PELTON_CASES: how many (2, and 500 with PELTON_FULL=1)
"""
import collections
import concurrent.futures
import dataclasses
import http.client
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
import privacy_test
import process_memory
import regions_fixture
from gateway_fixture import ask, letters
from regions_fixture import Links, together, wait
from tiers import FULL

CASES = int(os.environ.pop("PELTON_CASES", 500 if FULL else 2))
SEED = int(os.environ.get("PELTON_SEED", random.SystemRandom().randrange(1 << 30)))
NAMES = ("eu", "us", "asia")
MARKS = {name: f"{name.upper()}-" for name in NAMES}  # how answers of this region's workers begin
REQUESTS, CLIENTS = 36, 12
MAY_LOOK = os.geteuid() == 0  # servers forbid other users to look into their memory, their own one included
DEADLINE_MS = 6000
CHATS, STORED = "/v1/chat/completions", "/v1/responses"
# Path, and whether it is a stream. What may leave, and what stays where it came.
KINDS = {"chat": (CHATS, False), "chat stream": (CHATS, True), "completion": ("/v1/completions", False),
         "completion stream": ("/v1/completions", True), "message": ("/v1/messages", False), "message stream": ("/v1/messages", True),
         "response": (STORED, False), "response stream": (STORED, True), "batch": ("/v1/files", False)}
STAYS = {"response", "response stream", "batch"}
FAULTS = ("worker", "worker", "workers", "workers", "region", "gateway", "links", "slow", "errors", "poison")
LATE = (408, "deadline_exceeded")  # anywhere, by its own word
# What a tied request may be answered where its region, or where it came in, was hurt (docs/regions.md, docs/gateway.md).
REFUSALS = {(503, "no_worker"), (503, "worker_away"), LATE, (500, "request_quarantined"), (500, "injected_fault"),
            (429, "overloaded")}
NOT_ALLOWED = (403, "region_not_allowed")
# What /v1/messages has no code for, by its type.
OF_MESSAGES = {(403, "permission_error"): "region_not_allowed", (503, "overloaded_error"): "no_worker", (408, "timeout_error"): "deadline_exceeded",
               (429, "rate_limit_error"): "overloaded", (500, "api_error"): "request_quarantined", (502, "api_error"): "worker_failed"}
# Everything that a region's processes write. Keys of audit logs are of their own; here one file does.
SERVE = ("--response-store", "sqlite:{folder}/responses{i}.db", "--batches", "{folder}/batches{i}", "--access-log", "json", "--access-log-file",
         "{folder}/access{i}.log", "--step-log", "{folder}/steps{i}-{start}.jsonl", "--log-level", "debug", "--audit-log",
         "{folder}/audit{i}-{start}.jsonl", "--audit-key-file", "{folder}/secret")
GATEWAY = ("--record-requests", "{folder}/requests{i}-{start}.jsonl", "--log-level", "debug", "--audit-log",
           "{folder}/audit-gateway{i}-{start}.jsonl", "--audit-key-file", "{folder}/secret")


def word(draw):
    return "".join(draw.choice("bcdfghjkmnpqrstvwxz") for _ in range(14))


@dataclasses.dataclass
class Tenant:
    """`by`: key, table, header, or nothing. `entries`: the regions whose gateways its clients ask. Its word is the case's stem and `word`."""
    name: str
    by: str
    region: str
    entries: list
    word: str

    def headers(self, region=None):
        asked = region or (self.region if self.by == "header" else "")
        return {"Authorization": f"Bearer sk-{self.name}", **({"x-pelton-region": asked} if asked else {})}


@dataclasses.dataclass
class Request:
    tenant: Tenant
    kind: str
    entry: str       # a region
    turn: int        # which of its gateways
    number: int
    count: int       # letters of its answer
    header: str = ""  # another region than its own
    poison: bool = False  # whoever begins it dies


class Broken(Exception):
    """An answer that has begun and not ended: its text so far, and why."""

    def __init__(self, text, why):
        super().__init__(why)
        self.text = text


class Refused(Exception):
    def __init__(self, status, code):
        super().__init__(f"{status} {code}")
        self.what = status, code


class Case:
    """All that is drawn."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.seed, self.stem = seed, word(draw)
        self.names = draw.sample(NAMES, draw.choice((2, 3)))
        self.shape = {name: {"workers": draw.randint(1, 3), "gateways": draw.randint(1, 2), "slots": draw.randint(1, 2),
                             "tokenizer": draw.random() < 0.25} for name in self.names}
        # With three regions some gateways may not have heard of another region at all.
        self.unknown = {(one, other) for one in self.names for other in self.names
                        if one != other and len(self.names) == 3 and draw.random() < 0.15}
        self.tenants = [Tenant(f"{by}-{name}", by, name, draw.sample(self.names, draw.randint(1, len(self.names))), word(draw))
                        for name in self.names for by in draw.sample(("key", "table", "header"), draw.randint(1, 3))]
        # A file that ties a tenant to what it does not know is refused.
        self.unknown -= {pair for pair in self.unknown if any(one.by == "table" and one.region == pair[1] for one in self.tenants)}
        self.busy = draw.choice(self.names)  # where more comes than it can take
        self.tenants += [Tenant(f"free-{i}", "", "", [self.busy] * 4 + self.names, word(draw)) for i in range(draw.randint(1, 2))]
        tied, free = [one for one in self.tenants if one.region], [one for one in self.tenants if not one.region]
        self.requests = [self.request(draw, number, draw.choice(tied if draw.random() < 0.55 else free)) for number in range(1, REQUESTS + 1)]
        self.faults = sorted((self.fault(draw) for _ in range(draw.randint(1, 4))), key=lambda one: one["at"])
        for fault in self.faults:
            its = [one for one in self.requests[fault["at"]:] if one.tenant.region == fault["region"]]
            if fault["what"] == "poison" and its:
                its[0].poison, its[0].kind, its[0].header = True, "chat stream", ""

    def request(self, draw, number, tenant):
        kind, header = draw.choice(list(KINDS)), ""
        if tenant.by in ("key", "table") and draw.random() < 0.15:
            header = draw.choice([name for name in (*self.names, "mars") if name != tenant.region])
        return Request(tenant, kind, draw.choice(tenant.entries), draw.randrange(2), number, draw.randint(6, 24), header)

    def fault(self, draw):
        return {"what": draw.choice(FAULTS), "at": draw.randint(4, REQUESTS * 2 // 3), "region": draw.choice([self.busy, *self.names]),
                "i": draw.randrange(6), "lasts": draw.uniform(0.2, 1.2), "back": draw.random() < 0.5}

    def text(self, request):
        """What the request asks: the tenant's word, twice, and what the answer is made of."""
        its = f"{self.stem}7{request.tenant.word}"
        return f"note {its} here {'poison ' if request.poison else ''}and {its} check {request.number} {request.count} please"


class Watched(regions_fixture.Region):
    """Its processes are stopped and looked into before they are killed."""
    look = None  # (region, process), set by whoever looks

    def ends(self, process):
        super().ends(process)
        if self.look is not None and process.process.poll() is None:
            process.process.send_signal(signal.SIGSTOP)
            self.look(self, process)

    def kill(self):
        for process in (*self.gateways, *self.workers):
            if process is not None and process.process.poll() is None:
                process.process.send_signal(signal.SIGSTOP)  # all at once
        super().kill()

    def runs(self, what):
        return [process for process in what if process is not None and process.process.poll() is None]


def body_of(kind, text, seed):
    path, streams = KINDS[kind]
    more = {"stream": True} if streams else {}
    if path == "/v1/completions":
        return {"model": "pelton-box", "prompt": text, "seed": seed, "max_tokens": 60, **more}
    if path == STORED:
        return {"model": "pelton-box", "input": text, "seed": seed, "store": True, **more}
    limit = {"max_tokens": 60} if path == "/v1/messages" else {}
    return {"model": "pelton-box", "seed": seed, "messages": [{"role": "user", "content": text}], **limit, **more}


def whole_text(path, answer):
    if path == "/v1/completions":
        return answer["choices"][0]["text"]
    if path == CHATS:
        return answer["choices"][0]["message"]["content"]
    return answer["output"][0]["content"][0]["text"] if path == STORED else answer["content"][0]["text"]


def piece_of(path, event):
    """Of a stream's event: the text, and whether it is the last one."""
    if path in (CHATS, "/v1/completions"):
        choices = event.get("choices") or [{}]
        return (choices[0].get("delta") or {}).get("content") or choices[0].get("text") or "", False
    kind = event.get("type", "")
    if path == STORED:
        return event["delta"] if kind == "response.output_text.delta" else "", kind == "response.completed"
    return event["delta"].get("text", "") if kind == "content_block_delta" else "", kind == "message_stop"


def send(port, path, body, headers):
    """The connection and its answer's head. OSError: nobody listens there."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=40)
    link.connect()
    try:
        link.request("POST", path, body, {"Content-Type": "application/json", "x-request-timeout-ms": str(DEADLINE_MS), **headers})
        answer = link.getresponse()
        if answer.status != 200:
            raise Refused(answer.status, code_of(answer.status, answer.read()))
        return link, answer
    except (OSError, http.client.HTTPException) as error:
        link.close()
        raise Broken("", repr(error)) from error
    except Refused:
        link.close()
        raise


def code_of(status, text):
    error = json.loads(text)["error"]
    return error.get("code") or OF_MESSAGES.get((status, error["type"]), error["type"])


def answered(port, kind, body, headers):
    """The text of the whole answer. Raises Refused, Broken, OSError."""
    path, streams = KINDS[kind]
    link, answer = send(port, path, body, headers)
    text, is_over = "", False
    try:
        if not streams:
            return whole_text(path, json.loads(answer.read()))
        for line in answer:
            if not line.startswith(b"data: "):
                continue
            if line[6:].strip() == b"[DONE]":
                is_over = True
                continue
            event = json.loads(line[6:])
            if "error" in event and event["error"]:
                raise Broken(text, str(event["error"]))
            piece, is_last = piece_of(path, event)
            text, is_over = text + piece, is_over or is_last
    except (OSError, http.client.HTTPException) as error:
        raise Broken(text, repr(error)) from error
    finally:
        link.close()
    if not is_over:
        raise Broken(text, "no end")
    return text


def batched(port, body, headers):
    """A file of one line, a batch of it, and the text of its answer, or nothing where that takes long."""
    line = json.dumps({"custom_id": "1", "method": "POST", "url": CHATS, "body": body})
    form = ('--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: form-data; name="file"; '
            f'filename="lines.jsonl"\r\n\r\n{line}\r\n--b--\r\n')

    def asked(method, path, body=None, **more):
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=40)
        try:
            link.request(method, path, body, {**headers, "x-request-timeout-ms": str(DEADLINE_MS), **more})
            answer = link.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Broken("", repr(error)) from error
        finally:
            link.close()
        if answer.status != 200:
            raise Refused(answer.status, code_of(answer.status, text))
        return json.loads(text)
    file = asked("POST", "/v1/files", form, **{"Content-Type": "multipart/form-data; boundary=b"})["id"]
    batch = asked("POST", "/v1/batches", json.dumps({"input_file_id": file, "endpoint": CHATS, "completion_window": "24h"}),
                 **{"Content-Type": "application/json"})
    end = time.monotonic() + 3
    while batch["status"] != "completed" and time.monotonic() < end:
        time.sleep(0.1)
        batch = asked("GET", f"/v1/batches/{batch['id']}")
    if batch["status"] != "completed":
        return None
    return whole_text(CHATS, asked("GET", f"/v1/files/{batch['output_file_id']}/content")["response"]["body"])


@dataclasses.dataclass
class Result:
    """`what`: good, refused, broken, nobody. `gateway`: the process that was asked. `maker`: the region whose workers made the text."""
    request: Request
    gateway: object
    what: str
    detail: object = None
    text: str = ""
    maker: str = ""
    hurt: frozenset = frozenset()  # the regions that misfortune had come to when it was over
    size: int = 0                  # of the body
    took: float = 0                # seconds


class Play:
    """A case as processes: begun, asked and hurt at once."""

    def __init__(self, case, folder, links, tokens_of):
        self.case, self.results, self.hurt, self.lock = case, [], set(), threading.Lock()
        self.begun, self.over, self.found = 0, False, collections.defaultdict(set)
        self.tokens = {one.name: tokens_of(f" {case.stem}7{one.word}") for one in case.tenants}
        self.needles = [case.stem.encode(), tokens_of(f" {case.stem}")]
        assert all(one.startswith(self.needles[1]) for one in self.tokens.values()), "the stem has tokens of its own"
        keys = "".join(f"sk-{one.name} {one.name}" + (f" region={one.region}" if one.by == "key" else "") + "\n" for one in case.tenants)
        tables = "".join(f'[[tenant]]\nname = "{one.name}"\nregion = "{one.region}"\n' for one in case.tenants if one.by == "table")
        self.regions = {}
        for name in case.names:
            shape = case.shape[name]
            script = {"abort_on": "poison", "step_ms": 12, "context": 2048, "slots": shape["slots"], "rules": [
                {"when": "", "then": "<|channel|>final<|message|>Ready."},
                {"when": "check ", "then": [f"<|channel|>final<|message|>{MARKS[name]}", {"checked": 1}]}]}
            pool = f'tokenizer = "{gateway_fixture.BOX}"\n' if shape["tokenizer"] else ""
            self.regions[name] = Watched(folder, name, (1,) * shape["workers"], shape["gateways"], script, keys=keys, tables=tables, pool=pool,
                                         serve=SERVE, gateway=GATEWAY, env={name: "{folder}" for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")})
        for name, region in self.regions.items():
            for other in self.others(name):
                region.knows(self.regions[other], links, 0.005)

    def others(self, name):
        return [other for other in self.case.names if other != name and (name, other) not in self.case.unknown]

    def start(self):
        together([region.start for region in self.regions.values()])
        for name, region in self.regions.items():
            wait(region.is_whole, 60, lambda region=region: [region.ended(), *(region.rows(g) for g in range(len(region.gateways)))])
            for other in self.others(name):
                wait(lambda region=region, other=other: region.sees(self.regions[other]), 60,
                     lambda region=region: [region.regions(g) for g in range(len(region.gateways))])
        self.first = {(name, g): gateway for name, region in self.regions.items() for g, gateway in enumerate(region.gateways)}
        for region in self.regions.values():
            region.look = self.look

    def look(self, region, process):
        """Whose words stand in its memory, as text or as tokens."""
        if not MAY_LOOK:
            return
        for _, around in process_memory.contexts(process.process.pid, self.needles, after=256):
            for tenant in self.case.tenants:
                if tenant.word.encode() in around:
                    self.found[process].add((tenant.name, "text"))
                if self.tokens[tenant.name] in around:
                    self.found[process].add((tenant.name, "tokens"))

    def wanted(self, request, region):
        return ("final" if KINDS[request.kind][0] == "/v1/completions" else "") + MARKS[region] + letters(7, request.number, request.count)

    def run(self):
        """All requests, so many at a time, and the misfortunes between them."""
        with concurrent.futures.ThreadPoolExecutor(CLIENTS + 1) as pool:
            misfortunes = pool.submit(self.misfortunes)
            clients = [pool.submit(self.play, request) for request in self.case.requests]
            for one in clients:
                one.result()
            self.over = True
            misfortunes.result()

    def play(self, request):
        region, tenant = self.regions[request.entry], request.tenant
        with self.lock:
            self.begun += 1
            if request.poison:
                self.hurt.add(tenant.region)
        g = request.turn % len(region.ports)
        body = body_of(request.kind, self.case.text(request), 7)
        text, headers, gateway = json.dumps(body), tenant.headers(request.header), region.gateways[g]
        result, begun = Result(request, gateway, "good", size=len(text)), time.monotonic()
        try:
            is_batch, port = request.kind == "batch", region.ports[g]
            result.text = batched(port, body, headers) if is_batch else answered(port, request.kind, text, headers)
        except Refused as error:
            result.what, result.detail = "refused", error.what
        except Broken as error:
            result.what, result.detail, result.text = "broken", str(error), error.text
        except OSError as error:
            result.what, result.detail = "nobody", repr(error)
        result.maker = next((name for name in self.case.names if result.what == "good" and result.text == self.wanted(request, name)), "")
        with self.lock:
            result.hurt, result.took = frozenset(self.hurt), time.monotonic() - begun
            self.results.append(result)

    def misfortunes(self):
        for fault in self.case.faults:
            while self.begun < fault["at"] and not self.over:
                time.sleep(0.01)
            self.strike(fault, self.regions[fault["region"]])

    def strike(self, fault, region):
        what = fault["what"]
        if what == "poison":  # is among the requests
            return
        with self.lock:
            self.hurt.add(region.name)
        if what in ("worker", "workers"):
            every = [i for i, worker in enumerate(region.workers) if worker is not None]
            for i in every if what == "workers" else every[fault["i"] % max(len(every), 1):][:1]:
                region.kill_workers(i)
        elif what == "region":
            region.kill()
        elif what == "gateway":
            g = fault["i"] % len(region.gateways)
            if region.gateways[g] is not None:
                region.kill_gateway(g)
        elif what == "links":
            for link in region.links:
                link.cut(True)
        else:
            self.ask_for(region, **({"slow": 4} if what == "slow" else {"errors": 0.4}))
        time.sleep(fault["lasts"])
        for link in region.links:
            link.cut(False)
        if what == "errors":
            self.ask_for(region)
        if fault["back"]:
            region.start()

    @staticmethod
    def ask_for(region, **faults):
        try:
            region.fault(**faults)
        except OSError:  # one has just been poisoned
            pass

    def control(self, tenant):
        """One more request, which its own region keeps: by now that is well again."""
        region = self.regions[tenant.region]
        request = Request(tenant, "response", tenant.region, 0, REQUESTS + 1, 5)
        body, said = json.dumps(body_of("response", self.case.text(request), 7)), []

        def is_answered():
            g = next(g for g, gateway in enumerate(region.gateways) if gateway is not None)
            try:
                said.append(answered(region.ports[g], "response", body, tenant.headers()))
            except (Refused, Broken) as error:
                said.append(repr(error))
            return said[-1] == self.wanted(request, tenant.region)
        wait(is_answered, 30, lambda: (tenant, said[-3:]))

    def heal(self):
        """Each region has a worker and a gateway at least."""
        for region in self.regions.values():
            self.ask_for(region)
            for i, worker in enumerate(region.workers):
                if worker is not None and worker not in region.runs(region.workers):
                    region.kill_workers(i)
            if not region.runs(region.workers) or not region.runs(region.gateways):
                region.start()
        together([lambda one=one: self.control(one) for one in self.case.tenants if one.region])
        for region in self.regions.values():
            for process in region.runs((*region.workers, *region.gateways)):
                process.process.send_signal(signal.SIGSTOP)
                self.look(region, process)
                process.process.send_signal(signal.SIGCONT)

    def close(self):
        for region in self.regions.values():
            region.look = None
            region.close()


class Residency(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        """A server that is of no region says what words are as tokens."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        script = pathlib.Path(folder.name) / "script.json"
        script.write_text(json.dumps(gateway_fixture.SCRIPT))
        self.tokenizer = gateway_fixture.Process("serve", gateway_fixture.BOX, "--executor", f"modelled:{script}", "--port", "0")
        self.addCleanup(self.tokenizer.end)

    def tokens_of(self, text):
        """As they stand in memory."""
        status, answer = ask(self.tokenizer.port, "POST", "/tokenize", {"prompt": text})
        self.assertEqual(status, 200, answer)
        return b"".join(token.to_bytes(4, "little") for token in json.loads(answer)["tokens"])

    def test_nothing_that_is_tied_leaves(self):
        print(f"PELTON_SEED={SEED} ({CASES} cases{'' if MAY_LOOK else ', not as root: without the memory of processes'})", flush=True)
        self.crossed = 0
        for seed in range(SEED, SEED + CASES):
            with self.subTest(PELTON_SEED=seed):
                self.one(seed)
        # Of a case or two all that may leave can find room at home.
        if CASES >= 10:
            self.assertGreater(self.crossed, 0, "requests that may leave do")

    def one(self, seed):
        times, case, links = [time.monotonic()], Case(seed), Links(keeps=True)
        with tempfile.TemporaryDirectory() as folder:
            self.play = play = Play(case, folder, links, self.tokens_of)
            try:
                for step in (play.start, play.run, play.heal):
                    step()
                    times.append(time.monotonic())
                self.judge()
                self.look_at_ledgers()
                self.look_at_links()
                self.look_at_files()
                if MAY_LOOK:
                    self.look_at_memory()
            finally:
                play.close()
                links.close()
        times.append(time.monotonic())
        counts = collections.Counter(one.what if one.what != "refused" else "%s %s" % one.detail for one in play.results)
        crossed = sum(one.maker not in ("", one.request.entry) for one in play.results if not one.request.tenant.region)
        self.crossed += crossed
        print(f"{seed}: {'+'.join(case.names)} {[one['what'] for one in case.faults]} {dict(counts)}, {crossed} free ones crossed, "
              f"{'+'.join(f'{b - a:.1f}' for a, b in zip(times, times[1:]))} s", flush=True)

    def judge(self):
        wrong = [(why, one) for one in self.play.results for why in [self.wrong_with(one)] if why]
        self.assertEqual([], wrong)
        self.assertEqual(len(self.play.results), REQUESTS)

    def wrong_with(self, one):
        """Why this is no answer that the request may have; nothing: it is."""
        request, tenant = one.request, one.request.tenant
        here = request.entry in one.hurt
        if one.what == "nobody":
            return "" if here else "nobody listens"
        if one.what == "broken" and here and not one.text:
            return ""
        refused = one.detail if one.what == "refused" else None
        wanted = self.refusal_of(request)
        if wanted:
            return "" if refused == wanted else f"is not {wanted}"
        makers = [tenant.region] if tenant.region else [request.entry] if request.kind in STAYS else self.play.case.names
        if one.what == "good":
            is_late = request.kind == "batch" and one.text is None
            return "" if one.maker in makers or is_late else f"made by '{one.maker}'"
        is_late = one.took >= DEADLINE_MS / 1000 and (refused == LATE or one.what == "broken")
        if not is_late and not one.hurt & ({request.entry, tenant.region} if tenant.region else set(self.play.case.names)):
            return "nothing has happened to it"
        if one.what == "broken":
            return "" if any(self.play.wanted(request, name).startswith(one.text) for name in makers) else "another answer"
        return "" if refused in REFUSALS or refused == (502, "worker_failed") and not tenant.region else "no refusal of these"

    def refusal_of(self, request):
        """What it gets whatever happens; nothing: it may be answered."""
        tenant = request.tenant
        if request.header:
            return NOT_ALLOWED
        if not tenant.region or tenant.region == request.entry:
            return None
        if (request.entry, tenant.region) in self.play.case.unknown:
            return NOT_ALLOWED if tenant.by == "header" else (503, "no_worker")
        return (503, "no_worker") if request.kind in STAYS else None

    def look_at_ledgers(self):
        """Of the gateways that have lived from the beginning: what has gone where, by tenant."""
        play = self.play
        tied = {one.name: one.region for one in play.case.tenants if one.region}
        for (name, g), gateway in play.first.items():
            if play.regions[name].gateways[g] is not gateway:
                continue
            for row in play.regions[name].regions(g):
                its = {one["tenant"]: one for one in row["tenants"]}
                for what in ("requests", "bytes_out", "bytes_in"):
                    self.assertEqual(sum(one[what] for one in its.values()), row[what])
                for tenant in its:
                    self.assertIn(tied.get(tenant, row["name"]), (row["name"],), (name, row))
                for tenant in play.case.tenants:
                    there = [one for one in play.results if one.gateway is gateway and one.request.tenant is tenant and one.maker == row["name"]]
                    have = [its.get(tenant.name, {}).get(what, 0) for what in ("requests", "bytes_out")]
                    want = [len(there), sum(one.size for one in there)]
                    if play.hurt & {name, row["name"]}:  # of what broke nobody here knows whether it had begun
                        self.assertTrue(have[0] >= want[0] and have[1] >= want[1], (name, tenant, have, want))
                    else:
                        self.assertEqual(have, want, (name, row["name"], tenant))

    def look_at_links(self):
        links = [link for region in self.play.regions.values() for link in region.links]
        for tenant in self.play.case.tenants:
            to = {link.to for link in links if tenant.word.encode() in link.taken}
            if tenant.region:
                self.assertLessEqual(to, {tenant.region}, tenant)
            gone = {one.maker for one in self.play.results if one.request.tenant is tenant and one.maker not in ("", one.request.entry)}
            self.assertLessEqual(gone, to, "this test would find it")

    def look_at_files(self):
        """And at what processes said. A region's own store has its tenants' words: this test would find them."""
        for name, region in self.play.regions.items():
            words = privacy_test.Canaries()
            words.used = {self.play.case.stem + "7" + one.word: one.name for one in self.play.case.tenants if one.region and one.region != name}
            own = {self.play.case.stem + "7" + one.word for one in self.play.case.tenants if one.region == name}
            for path in region.folder.rglob("*"):
                if not path.is_file():
                    continue
                data = path.read_bytes()
                self.assertEqual(words.found_in(data), [], f"{name}: {path.relative_to(region.folder)}")
                own -= {one for one in own if one.encode() in data}
            self.assertEqual(own, set(), f"what {name} itself was to keep")
            for process in (*region.past, *region.gateways, *region.workers):
                if process is not None:
                    self.assertEqual(words.found_in("\n".join(list(process.log)).encode()), [], f"{name}: {process.process.args[:2]}")

    def look_at_memory(self):
        play = self.play
        tied = {one.name: one.region for one in play.case.tenants if one.region}
        asked = {(one.tenant.name, one.entry) for one in play.case.requests}
        for name, region in play.regions.items():
            at_home = set()
            for process in (*region.past, *region.gateways, *region.workers):
                is_worker = process is not None and process.process.args[1] == "serve"
                for tenant, form in play.found.get(process, ()):
                    at_home |= {tenant} if is_worker and tied.get(tenant) == name else set()
                    may = tied.get(tenant, name) == name or (not is_worker and (tenant, name) in asked)
                    self.assertTrue(may, f"{tenant}'s word stands in the memory of {process.process.args[1:2]} of {name}, as {form}")
            self.assertEqual(at_home, {tenant for tenant, its in tied.items() if its == name}, f"words that stand in {name}'s own workers")


if __name__ == "__main__":
    gateway_fixture.BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
