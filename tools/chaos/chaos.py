#!/usr/bin/env python3
"""Chaos: servers under every kind of load and of misfortune, and a checker of all that they say.

usage: chaos.py BINARY [--hours H | --minutes M] [--seed S] [--out FOLDER] [--model FOLDER]

Four servers: "steady" lives through all of it, "rolling" is told to stop in mid-stream and followed by the next
process again and again, "sealed" speaks TLS and is killed without a word, "box" computes with the model in the box. Load and checker (load.py) and the bad network
(proxy.py) are processes of their own. Chaos and calm take turns; in each calm the ledgers must be clean, and
descriptors and threads what they were. At the end: memory may have grown by 4 MiB at most from minute 5 to minute
20, nothing may have been wrong. Exit code 0 if all that held. README.md has the rest.
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time

import pattern
import plot
from instance import Instance, MemoryLimit

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = pathlib.Path(__file__).resolve().parent
GROWTH_MAX = 4 << 20
GROWTH_FROM, GROWTH_TO = 5, 20     # minutes
PATIENCE_S = 600                   # for what must come at last; nothing shorter, as all of us may be frozen
FROZEN_S = 5                       # a turn of the loop that took so long: all stood still
SETTLE_POLL_S = 0.05
DRAIN_S = 3
OTHERS_MAX = 24                    # threads that are not ours
HARD_LIMIT = 64 << 20              # over what the steady server has after its first calm


class Clock:
    """Seconds in which we were not frozen."""

    def __init__(self):
        self.frozen, self.start = 0.0, time.monotonic()

    def now(self):
        return time.monotonic() - self.start - self.frozen

    async def watch(self):
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.25)
            gap = time.monotonic() - before
            if gap > FROZEN_S:
                self.frozen += gap


class Chaos:
    def __init__(self, arguments):
        self.seconds = arguments.minutes * 60
        self.long = self.seconds >= 600
        self.seed = arguments.seed
        self.dice = random.Random(self.seed)
        self.out = pathlib.Path(arguments.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.clock = Clock()
        self.failures, self.notes = [], []
        self.memory = {"steady": [], "box": []}
        self.inside = []  # what the steady server's memory is made of, in each calm
        self.health, self.health_failed = [], 0
        self.kills = self.rolls = self.freezes = self.hups = self.page_outs = self.calms = 0
        self.base, self.pressure, self.turns = {}, None, None
        serve = [arguments.binary, "serve", arguments.model, "--port", "0", "--admin-port", "0", "--grpc-port", "0"]
        bounded = ["--response-store-entries", "200", "--sampled-turn-tokens", "100K"]  # full within minutes
        commands = {name: [*serve, "--executor", f"modelled:{self.script(name, fail_every)}", "--http-threads", "2", *bounded]
                    for name, fail_every in (("steady", 0), ("rolling", 1000), ("sealed", 0))}
        commands["box"] = [*serve, "--threads", "1", "--max-num-seqs", "6", "--max-model-len", "1K",
                           "--kv-cache-memory", "3MiB", *bounded]  # more would become resident as it is first used
        commands["rolling"] += ["--drain-seconds", str(DRAIN_S)]  # not all answers end in that time
        certificate = self.certificate()
        store = self.out / "sealed.db"
        for left in self.out.glob("sealed.db*"):
            left.unlink()
        commands["sealed"] += ["--tls-cert", certificate, "--tls-key", certificate, "--no-admin-tls",
                               "--response-store", f"sqlite:{store}"]
        self.instances = {name: Instance(name, command, open(self.out / f"{name}.log", "w"), box=name == "box",
                                   fails=name == "rolling", drain_s=DRAIN_S,
                                   tls=certificate if name == "sealed" else None) for name, command in commands.items()}
        self.limit = MemoryLimit(f"pelton-chaos-{os.getpid()}")
        self.reports = asyncio.Queue()
        self.retiring = set()

    def script(self, name, fail_every):
        """So few blocks that someone always makes room; every promise of a plan is checked."""
        file = self.out / f"{name}.json"
        file.write_text(pattern.script(step_ms=4, context=8192, slots=24, blocks=900, host_blocks=60, checks=True,
                                       fail_every=fail_every))
        return file

    def certificate(self):
        """A file with a certificate of its own kind, and its key."""
        file, key = self.out / "sealed.pem", self.out / "sealed.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                        "-keyout", key, "-out", file], check=True, capture_output=True)
        file.write_text(file.read_text() + key.read_text())
        return str(file)

    def fail(self, what):
        if len(self.failures) < 100:
            print(f"{self.clock.now():7.1f} s  WRONG: {what}", flush=True)
        self.failures.append(what)

    def say(self, what):
        print(f"{self.clock.now():7.1f} s  {what}", flush=True)

    # ---- parts

    async def spawn(self, name):
        return await asyncio.create_subprocess_exec(
            sys.executable, str(HERE / name), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            limit=1 << 24)

    def tell(self, what, **fields):
        self.load.stdin.write(json.dumps({"do": what, **fields}).encode() + b"\n")

    async def hear(self):
        while line := await self.load.stdout.readline():
            said = json.loads(line)
            if said["report"] == "wrong":
                said.pop("report")
                self.fail(json.dumps(said))
            elif said["report"] == "frozen":
                self.notes.append(f"the load stood still for {said['seconds']:.0f} s")
            else:
                await self.reports.put(said)
        await self.reports.put({"report": "gone"})

    async def expect(self, report):
        while True:
            said = await self.reports.get()
            if said["report"] == report:
                return said
            if said["report"] == "gone":
                raise RuntimeError("the load has died")

    async def settled(self, instance):
        """The ledger once nothing is left in it and descriptors and threads are the base's, or at last."""
        loop = asyncio.get_running_loop()
        end = self.clock.now() + PATIENCE_S
        while True:
            ledger = await loop.run_in_executor(None, instance.ledger)
            process = ledger["process"]
            # gRPC keeps as many threads of its own as it likes, and as few; some bear the program's name.
            ours = {name: count for name, count in process["threads"]["by_name"].items()
                    if name.startswith("pelton-") and name != instance.program}
            others = process["threads"]["count"] - sum(ours.values())
            now = {"descriptors": process["descriptors"]["by_kind"], "threads": ours, "others": others <= OTHERS_MAX}
            same = ledger["clean"] and self.no_more_than_ever(instance, now)
            if same or self.clock.now() > end:
                return ledger, now, same
            await asyncio.sleep(SETTLE_POLL_S)

    def no_more_than_ever(self, instance, now):
        """As few descriptors as in any calm of this process before; the first may have caught some on their way out."""
        base = self.base.setdefault((instance.name, instance.generation), now)
        count, before = now["descriptors"], base["descriptors"]
        if any(count[kind] > before.get(kind, 0) for kind in count):
            return False
        base["descriptors"] = count
        return {**now, "descriptors": None} == {**base, "descriptors": None}

    # ---- misfortunes

    async def freeze(self, instance, seconds):
        self.freezes += 1
        instance.freeze(seconds)
        await asyncio.sleep(seconds)
        instance.thaw()

    async def roll(self):
        """SIGTERM in mid-stream: all that runs ends well, all others find the next process."""
        instance = self.instances["rolling"]
        self.rolls += 1
        loop = asyncio.get_running_loop()
        if self.dice.random() < 0.5:  # the next process is there before the last one goes
            old = await loop.run_in_executor(None, instance.start)
            self.tell("ending", name=instance.name)
            await self.load.stdin.drain()
            await asyncio.sleep(0.1)
            old.send_signal(signal.SIGTERM)
            self.tell("servers", servers=[instance.fields()])
        else:
            self.tell("ending", name=instance.name)
            await self.load.stdin.drain()
            await asyncio.sleep(0.1)
            instance.process.send_signal(signal.SIGTERM)
            old = await loop.run_in_executor(None, instance.start)
            self.tell("servers", servers=[instance.fields()])
        task = asyncio.create_task(self.retire(old))
        self.retiring.add(task)
        task.add_done_callback(self.retiring.discard)

    async def kill(self):
        """SIGKILL in mid-stream: what it was about is lost; the next process is whole, and so is what it finds stored."""
        instance = self.instances["sealed"]
        self.kills += 1
        loop = asyncio.get_running_loop()
        self.tell("killing", name=instance.name)
        await self.load.stdin.drain()
        await asyncio.sleep(0.1)
        await loop.run_in_executor(None, instance.kill)
        await loop.run_in_executor(None, instance.start)
        self.tell("servers", servers=[instance.fields()])

    async def retire(self, old):
        since = self.clock.now()
        while old.poll() is None and self.clock.now() - since < PATIENCE_S:
            await asyncio.sleep(0.1)
        if old.poll() is None:
            self.fail(f"a server that was told to stop still runs after {PATIENCE_S} s")
            old.kill()
        elif old.returncode != 0:
            self.fail(f"a server that was told to stop ended with {old.returncode}")
        else:
            self.say(f"a server that was told to stop is gone after {self.clock.now() - since:.1f} s")
        old.stdout.close()

    async def misfortune(self):
        what = self.dice.random()
        if what < 0.55:
            seconds = 10 if self.long and self.dice.random() < 0.05 else self.dice.uniform(0.05, 2)
            await self.freeze(self.dice.choice(list(self.instances.values())), seconds)
        elif what < 0.75:
            instance = self.dice.choice(list(self.instances.values()))
            if instance.catches_hup():
                self.hups += 1
                instance.process.send_signal(signal.SIGHUP)
        elif what < 0.85:
            self.page_outs += page_out(self.instances["box"].pid)
        elif self.long and what < 0.92:
            await self.kill()
        elif self.long or self.rolls == 0:
            await self.roll()

    # ---- watching

    async def watch_memory(self):
        while True:
            minute = self.clock.now() / 60
            for name, samples in self.memory.items():
                if self.instances[name].alive():
                    samples.append((minute, *self.instances[name].memory()))
            await asyncio.sleep(10 if self.long else 1)

    async def watch_health(self):
        """How long /health takes at the public listener, of servers that are not stopped."""
        loop = asyncio.get_running_loop()
        while True:
            instance = self.dice.choice([self.instances["steady"], self.instances["box"]])
            frozen, start = self.clock.frozen, time.monotonic()
            disturbed = instance.stopped()
            try:
                status, _ = await loop.run_in_executor(None, instance.get, instance.port, "/health")
            except OSError as error:
                status = repr(error)
            if status != 200:
                self.health_failed += 1
                self.fail(f"/health of {instance.name}: {status}")
            elif not disturbed and not instance.stopped() and self.clock.frozen == frozen:
                self.health.append((time.monotonic() - start) * 1000)
            await asyncio.sleep(0.3)

    def check_alive(self):
        for instance in self.instances.values():
            if not instance.alive():
                raise RuntimeError(f"{instance.name} died: {instance.process.returncode}")

    # ---- the whole

    async def chaos(self, seconds):
        self.tell("go")
        end = self.clock.now() + seconds
        if not self.long and self.rolls == 0:
            await asyncio.sleep(seconds / 3)
            await self.roll()
            await asyncio.sleep(seconds / 3)
            await self.kill()
        while self.clock.now() < end:
            await asyncio.sleep(self.dice.expovariate(1 / (6 if self.long else 1.5)))
            self.check_alive()
            await self.misfortune()

    async def calm(self):
        self.tell("calm")
        counts = (await self.expect("calm"))["counts"]
        if self.retiring:
            await asyncio.gather(*self.retiring)
        for instance in self.instances.values():
            self.check_alive()
            ledger, now, same = await self.settled(instance)
            if not ledger["clean"]:
                self.fail(f"{instance.name}: the ledger is not clean: {json.dumps(ledger['engine'])} "
                          f"{json.dumps(ledger['server'])}")
            elif not same:
                self.fail(f"{instance.name}: {now}, was {self.base[instance.name, instance.generation]}")
            if instance.name == "steady":
                self.inside.append((self.clock.now() / 60, instance.memory(), ledger["process"]["heap"], instance.mapped()))
                self.turns = ledger["server"]["turn_cache"]
                if self.calms == 0:
                    self.limit.hold(instance.pid, instance.memory()[0] + HARD_LIMIT)
        self.calms += 1
        rss = " ".join(f"{name} {instance.memory()[0] / 2**20:.1f}" for name, instance in self.instances.items())
        self.say(f"calm {self.calms}: {sum(counts.values())} questions, {len(self.failures)} wrong; MiB {rss}")
        return counts

    async def run(self):
        loop = asyncio.get_running_loop()
        for instance in self.instances.values():
            await loop.run_in_executor(None, instance.start)
        proxy = await self.spawn("proxy.py")
        self.load = await self.spawn("load.py")
        watches = [asyncio.create_task(self.hear())]
        counts = {}
        try:
            proxy_port = int(await proxy.stdout.readline())
            self.tell("start", seed=self.seed, proxy=proxy_port, pace=0.3 if self.long else 0.05,
                      servers=[instance.fields() for instance in self.instances.values()],
                      workers={"steady": 40, "rolling": 16, "sealed": 12, "box": 6})
            await self.expect("ready")
            self.clock = Clock()
            watches += [asyncio.create_task(part) for part in
                        (self.clock.watch(), self.watch_memory(), self.watch_health())]
            while self.clock.now() < self.seconds:
                await self.chaos(self.dice.uniform(30, 110) if self.long else self.seconds / 2.5)
                counts = await self.calm()
            for watch in watches[1:]:
                watch.cancel()
            await self.end()
        except (RuntimeError, OSError) as error:
            self.fail(str(error))
        finally:
            for task in watches:
                task.cancel()
            for part in (proxy, self.load):
                part.stdin.close()
            for instance in self.instances.values():
                if instance.alive():
                    instance.thaw()
                    instance.process.kill()
                    instance.process.wait()
            for part in (proxy, self.load):
                if part.returncode is None:
                    part.terminate()
                await part.wait()
            self.limit.close()
        return self.verdict(counts)

    async def end(self):
        """All stop as they should."""
        self.pressure = {kind: self.instances["steady"].metric("pelton_preemptions_total", f'kind="{kind}"')
                         for kind in ("recompute", "swap")}
        if self.long and not all(self.pressure.values()):
            self.fail(f"no pressure on keys and values: {self.pressure}")
        for instance in self.instances.values():
            instance.process.send_signal(signal.SIGTERM)
            await self.retire(instance.process)

    def growth(self, name, column):
        """Between the two minutes: medians of the samples half a minute around each; None: too short a run."""
        def around(minute):
            near = [sample[column] for sample in self.memory[name] if abs(sample[0] - minute) <= 0.5]
            return statistics.median(near) if near else None
        first, last = around(GROWTH_FROM), around(GROWTH_TO)
        return None if first is None or last is None else last - first

    def memory_inside(self):
        """Of each calm: what is resident, what the allocator says of it, and what it is of."""
        rows = [f"  {'minute':>6} {'resident':>8} {'anon':>6} | {'used':>6} {'mapped':>6} {'free':>6} | "
                + " ".join(f"{kind:>6}" for kind in (self.inside[0][3] if self.inside else ()))]
        for minute, memory, heap, mapped in self.inside:
            sizes = [*memory, heap["used_bytes"], heap["mapped_bytes"], heap["free_bytes"], *mapped.values()]
            figures = [f"{size / 2**20:6.1f}" for size in sizes]
            rows.append(f"  {minute:6.1f}   {figures[0]} {figures[1]} | {' '.join(figures[2:5])} | {' '.join(figures[5:])}")
        return ["steady in each calm, MiB: resident, the allocator's books, resident by kind", *rows]

    def verdict(self, counts):
        lines = [f"seed {self.seed}; {self.clock.now() / 60:.1f} minutes, and {self.clock.frozen:.0f} s frozen",
                 f"{sum(counts.values())} questions, {self.rolls} restarts, {self.kills} SIGKILLs, {self.freezes} "
                 f"SIGSTOPs, {self.hups} "
                 f"SIGHUPs, {self.page_outs} times paged out, {self.calms} calms; memory limit "
                 f"{'on' if self.limit.works else 'not possible here'}", *self.notes]
        lines += [f"  {count:7d}  {what}" for what, count in sorted(counts.items())]
        if self.health:
            health = sorted(self.health)
            lines.append(f"/health in ms: median {statistics.median(health):.1f}, p99 "
                         f"{health[int(len(health) * 0.99)]:.1f}, most {health[-1]:.1f} of {len(health)}")
        for name, column, what in (("steady", 1, "resident"), ("box", 2, "anonymous")):
            grown = self.growth(name, column)
            if grown is not None:
                lines.append(f"{name}: {what} memory, minute {GROWTH_TO} less minute {GROWTH_FROM}: "
                             f"{grown / 2**20:+.2f} MiB")
                if grown > GROWTH_MAX:
                    self.fail(lines[-1])
            lines.append(plot.text([(sample[0], sample[column] / 2**20) for sample in self.memory[name]]))
        lines += self.memory_inside()
        lines.append(f"steady: preempted {self.pressure}, turns kept {self.turns}")
        lines.append(f"{len(self.failures)} things went wrong" if self.failures else "nothing went wrong")
        series = {f"{name}, {what}": [(sample[0], sample[column] / 2**20) for sample in self.memory[name]]
                  for name, column, what in (("steady", 1, "resident"), ("steady", 2, "anonymous"),
                                             ("box", 1, "resident"), ("box", 2, "anonymous"))}
        (self.out / "memory.svg").write_text(plot.svg("Memory during chaos", series, "MiB"))
        (self.out / "memory.json").write_text(json.dumps(self.memory))
        report = "\n".join(lines + self.failures) + "\n"
        (self.out / "report.txt").write_text(report)
        print("\n".join(lines + self.failures[:20]))
        return 1 if self.failures or not counts else 0


def page_out(pid):
    """Has the kernel drop the pages that a process has mapped from files, as memory pressure does."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd_open, process_madvise, madv_pageout = 434, 440, 21

    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
    file = libc.syscall(pidfd_open, pid, 0)
    if file < 0:
        return 0
    done = 0
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, _, _, _, inode = line.split()[:5]
        if inode != "0":
            begin, end = (int(edge, 16) for edge in span.split("-"))
            piece = Piece(begin, end - begin)
            done |= libc.syscall(process_madvise, file, ctypes.byref(piece), 1, madv_pageout, 0) > 0
    os.close(file)
    return int(done)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--hours", type=float)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("PELTON_SEED", random.randrange(1 << 30))))
    parser.add_argument("--out", default=str(ROOT / "build" / "chaos"))
    parser.add_argument("--model", default=str(ROOT / "models" / "pelton-box"))
    arguments = parser.parse_args()
    if (arguments.hours is None) == (arguments.minutes is None):
        parser.error("either --hours or --minutes")
    if arguments.minutes is None:
        arguments.minutes = arguments.hours * 60
    arguments.binary = str(pathlib.Path(arguments.binary).resolve())
    print(f"PELTON_SEED={arguments.seed}", flush=True)
    return asyncio.run(Chaos(arguments).run())


if __name__ == "__main__":
    sys.exit(main())
