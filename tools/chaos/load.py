#!/usr/bin/env python3
"""The clients of a chaos run, and the checker of every byte that they get.

usage: load.py          commands come as lines of JSON on stdin, reports go as such to stdout

  {"do": "start", "seed": S, "proxy": PORT, "servers": [...], "workers": {NAME: N}, "pace": SECONDS}
  {"do": "servers", "servers": [{"name", "port", "grpc", "generation", "box": bool}]}
  {"do": "ending", "name": NAME}     that server has been told to stop: it may now refuse and break off
  {"do": "killing", "name": NAME}    that one ends at once: whatever it was about breaks off
  {"do": "calm"}                     no more questions; {"report": "calm"} when the last one is over
  {"do": "go"}, {"do": "stop"}
  reports: {"report": "wrong", "what": ...}, {"report": "counts", ...}, {"report": "ready"}, {"report": "calm"}
"""
import asyncio
import collections
import contextlib
import json
import random
import sys
import time

import box
import kinds
from endings import Left, Refused
from pattern import Wrong
from questions import Plan
from wire import Connection, Cut, tls_context

HANG_S = 1200      # a question that is not over by then hangs; frozen time is not known here, so it is long
FROZEN_S = 5       # a turn of the loop that took so long: everything stood still
RETRIES_MAX = 50
GRACE_S = 1        # who asks so shortly before a server is told to stop may find it stopping


class Retry(Exception):
    """The server was going when we came."""


class Server:
    def __init__(self, fields):
        self.name, self.port, self.grpc = fields["name"], fields["port"], fields["grpc"]
        self.generation, self.box = fields["generation"], fields.get("box", False)
        self.drain_s = fields.get("drain_s", 20)  # who reads slowly has at least so long after SIGTERM
        self.fails = fields.get("fails", False)  # some of its steps do: error events are to be expected
        self.tls = fields.get("tls")     # a file with the certificate that vouches for it
        self.ending_at, self.killed = float("inf"), False

    @property
    def ending(self):
        return self.ending_at < float("inf")


class Load:
    STALL_S = 25  # the server cuts off who takes nothing for 30 s

    def __init__(self, command):
        self.seed, self.proxy, self.pace = command["seed"], command["proxy"], command["pace"]
        self.servers, self.links = {}, set()
        self.counts = collections.Counter()
        self.numbers, self.busy = 0, 0
        self.gate, self.idle = asyncio.Event(), asyncio.Event()
        self.calm = asyncio.Event()
        self.idle.set()
        self.vectors = {}       # of embeddings: the first answer to each text
        self.references = {}    # of the box model's prompts
        self.kept = collections.defaultdict(list)  # by server: responses that it has stored, and their questions
        self.frozen_at = -1.0
        self.stopping = False
        self.take_servers(command["servers"])

    def take_servers(self, servers):
        for fields in servers:
            self.servers[fields["name"]] = Server(fields)

    # ---- one question

    @contextlib.asynccontextmanager
    async def link(self, server, plan, grpc=False):
        link = None
        try:
            link = await Connection.open(server.grpc if grpc else server.port, self.proxy, plan.faults,
                                         small_buffers=plan.slow > 0, pause=plan.slow,
                                         tls=server.tls and tls_context(server.tls, "h2" if grpc else "http/1.1"))
            self.links.add(link)
            if self.calm.is_set():
                link.pause = 0
            yield link
        except Cut as cut:
            # Before the server was told to stop it had the question, or must have had.
            cut.had = link is not None and (link.begun or link.sent_at < server.ending_at - GRACE_S)
            raise
        finally:
            if link is not None:
                self.links.discard(link)
                link.close()

    def number(self):
        self.numbers += 1
        return self.numbers

    async def question(self, server_name, dice):
        kind = kinds.draw(dice, self.servers[server_name].box)
        for attempt in range(RETRIES_MAX):
            server = self.servers[server_name]
            plan = Plan.draw(dice)
            begun = time.monotonic()
            try:
                ending = await self.attempt(kind, server, plan, dice, begun)
            except Retry:
                self.counts["retried"] += 1
                await asyncio.sleep(0.05 * min(attempt + 1, 20))
                continue
            self.counts[f"{kind.__name__}: {ending}"] += 1
            return
        self.wrong(kind, server, plan, "never answered by any process")

    async def attempt(self, kind, server, plan, dice, begun):
        """How it ended. Everything that no rule below names is wrong."""
        try:
            return await asyncio.wait_for(kind(self, server, plan, dice), HANG_S)
        except Left:
            return "left by us"
        except Refused as refusal:
            return str(refusal)
        except Cut as cut:
            if plan.cut:
                return "cut by the proxy"
            if self.frozen_at >= begun:
                return "cut after standing still"
            if server.killed and cut.had:
                return "ended with its server"
            if plan.slow and time.monotonic() - server.ending_at > server.drain_s:
                return "too slow for the drain"
            if server.ending and not cut.had:
                raise Retry from cut
            now = time.monotonic()
            self.wrong(kind, server, plan, f"the connection ended: {cut} (server ending: {server.ending}, part of the "
                       f"answer had come: {cut.had}, asked {now - begun:.2f} s ago, servers last stood still "
                       f"{now - self.frozen_at:.2f} s ago)")
        except asyncio.TimeoutError:
            self.wrong(kind, server, plan, "hangs")
        except (Wrong, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            if self.frozen_at >= begun and "408" in str(error):
                return "cut after standing still"
            self.wrong(kind, server, plan, f"{type(error).__name__}: {error}")
        return "wrong"

    def wrong(self, kind, server, plan, what):
        report("wrong", what=what, kind=kind.__name__, server=server.name, generation=server.generation,
               ending=server.ending, plan=str(plan))

    # ---- workers

    async def worker(self, name, index):
        turn = 0
        while not self.stopping:
            await self.gate.wait()
            dice = random.Random(f"{self.seed} {name} {index} {turn}")
            turn += 1
            self.busy += 1
            self.idle.clear()
            try:
                await self.question(name, dice)
            finally:
                self.busy -= 1
                if self.busy == 0:
                    self.idle.set()
            await asyncio.sleep(dice.expovariate(1 / self.pace))

    async def become_calm(self):
        self.gate.clear()
        self.calm.set()
        for link in self.links:
            link.pause = 0
        await self.idle.wait()
        report("calm", counts=dict(self.counts))

    def go(self):
        self.calm.clear()
        self.gate.set()

    async def watch_time(self):
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.2)
            if time.monotonic() - before > FROZEN_S:
                self.frozen_at = time.monotonic()
                report("frozen", seconds=time.monotonic() - before)


def report(kind_of_report, **fields):
    print(json.dumps({"report": kind_of_report, **fields}), flush=True)


async def main():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    load, tasks = None, []
    while line := await reader.readline():
        command = json.loads(line)
        what = command["do"]
        if what == "start":
            load = Load(command)
            tasks.append(asyncio.create_task(load.watch_time()))
            for server in load.servers.values():
                if server.box:
                    await box.ask_references(load, server)
            for name, count in command["workers"].items():
                tasks += [asyncio.create_task(load.worker(name, i)) for i in range(count)]
            report("ready")
        elif what == "servers":
            load.take_servers(command["servers"])
        elif what == "ending":
            load.servers[command["name"]].ending_at = time.monotonic()
        elif what == "killing":
            load.servers[command["name"]].ending_at = time.monotonic()
            load.servers[command["name"]].killed = True
        elif what == "calm":
            tasks.append(asyncio.create_task(load.become_calm()))
        elif what == "go":
            load.go()
        elif what == "counts":
            report("counts", counts=dict(load.counts), busy=load.busy)
        elif what == "stop":
            break
        for task in [task for task in tasks if task.done()]:
            tasks.remove(task)
            task.result()  # a worker that died is no calm one


if __name__ == "__main__":
    asyncio.run(main())
