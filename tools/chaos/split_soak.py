#!/usr/bin/env python3
"""Requests that are split between workers with disk tiers, under faults: what is said is what one worker says without any of it, nobody is
lost, and ledgers are at zero at the end.

usage: split_soak.py BINARY (--hours N | --minutes N) [--seed N] [--every SECONDS] [--clients N] [--handoff warm|first]

Two workers compute prompts and two go on; each has a host tier and a disk that stays. Every so often one of them is killed, stopped, frozen,
made to forget, or given bits that flipped on its disk; a start finds its disk warm. Exit code 1: less than 99.99 % good, an answer
that is another one, nothing split, nothing found on a disk, or something left behind.
"""
import argparse
import collections
import json
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import gateway_fixture  # noqa: E402
import kv_split_test as split  # noqa: E402
from gateway_fixture import BOX, Process, ask  # noqa: E402
from ports import free_port  # noqa: E402

GOOD = 0.9999
ROLES = ("prefill", "prefill", "decode", "decode")
NUMBERS = range(48)
TIERS = ("--kv-cache-memory", "2MiB", "--swap-space", "4MiB", "--kv-disk-size", "64MiB", "--kv-disk-write", "all")


class TieredFleet(split.SplitFleet):
    roles = ROLES

    def start(self, i):
        disk = self.folder / f"disk{i}"
        disk.mkdir(mode=0o700, exist_ok=True)
        key = self.folder / "disk.key"
        if not key.exists():
            key.write_text("k" * 40)
        self.admins = getattr(self, "admins", {})
        self.admins[i] = free_port()
        self.workers[i] = Process("serve", BOX, *split.COMMON, *TIERS, "--kv-disk", disk, "--kv-disk-key-file", key, "--kv-port", "0",
                                  "--port", "0", "--fleet-port", self.ports[i], "--fleet-name", f"w{i}", "--fleet-key-file", self.key,
                                  "--admin-port", self.admins[i], "--fleet-role", self.roles[i])


class Soak:
    def __init__(self, folder, arguments):
        self.draw = random.Random(arguments.seed)
        self.arguments = arguments
        alone = Process("serve", BOX, *split.COMMON, "--kv-cache-memory", "16MiB", "--port", "0")
        try:
            self.alone = [split.choices(alone.port, split.body(number)) for number in NUMBERS]
        finally:
            alone.end()
        self.fleet = TieredFleet(folder, len(ROLES), pool=f'tokenizer = "{BOX}"\nsplit = "always"\nhandoff = "{arguments.handoff}"\n')
        self.counts, self.failures = collections.Counter(), collections.deque(maxlen=20)
        self.over = threading.Event()

    def client(self, number):
        draw = random.Random(self.arguments.seed + number)
        while not self.over.is_set():
            which = draw.choice(NUMBERS)
            try:
                said = split.choices(self.fleet.gateway.port, split.body(which))
            except Exception as error:
                self.counts["bad"] += 1
                self.failures.append(repr(error)[:600])
                continue
            self.counts["good" if said == self.alone[which] else "wrong"] += 1

    def flip_bits(self, victim):
        with (self.fleet.folder / f"disk{victim}" / "blocks.pelton-kv").open("r+b") as file:
            size = file.seek(0, 2)
            for _ in range(200):
                at = self.draw.randrange(4096, size)
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes((byte[0] ^ 1 << self.draw.randrange(8),)))

    def fault(self):
        kinds = {"kill": 4, "stop": 2, "freeze": 2, "forget": 1, "flip": 2}
        kind = self.draw.choices(list(kinds), list(kinds.values()))[0]
        victim = self.draw.randrange(len(ROLES))
        worker = self.fleet.workers[victim]
        self.look()
        if kind == "kill":
            self.fleet.kill(victim)
            self.fleet.start(victim)
        elif kind == "stop":
            self.fleet.workers[victim] = None
            worker.end(signal.SIGTERM)
            self.fleet.start(victim)
        elif kind == "freeze":
            worker.process.send_signal(signal.SIGSTOP)
            time.sleep(3)
            worker.process.send_signal(signal.SIGCONT)
        elif kind == "forget":
            ask(self.fleet.admin, "POST", "/v1/reset_prefix_cache")
        else:
            self.flip_bits(victim)
        self.counts[f"fault {kind}"] += 1

    def look(self):
        """Of this start of each worker, whose figures go with it."""
        found = sum(self.fleet.figure(i, "pelton_kv_disk_blocks_total", kind="read") for i in range(len(ROLES)))
        self.counts["most blocks read"] = max(self.counts["most blocks read"], int(found))

    def run(self, seconds):
        clients = [threading.Thread(target=self.client, args=(number,)) for number in range(self.arguments.clients)]
        for one in clients:
            one.start()
        ended = time.monotonic() + seconds
        while time.monotonic() + self.arguments.every < ended:
            time.sleep(self.arguments.every)
            self.fault()
        time.sleep(max(0.0, ended - time.monotonic()))
        self.over.set()
        for one in clients:
            one.join()
        self.look()

    def left_behind(self):
        end, left = time.monotonic() + 30, ["not looked"]
        while left and time.monotonic() < end:
            time.sleep(0.2)
            left = [f"w{i}" for i in range(len(ROLES)) if not json.loads(ask(self.fleet.admins[i], "GET", "/debug/ledger")[1])["clean"]]
            left += [f"{row['name']} is {row['state']}" for row in self.fleet.rows() if row["state"] != "ready"]
        return left

    def verdict(self, seconds):
        left = self.left_behind()
        good, all_of_them = self.counts["good"], self.counts["good"] + self.counts["bad"] + self.counts["wrong"]
        splits = {outcome: self.fleet.splits(outcome) for outcome in ("handed_over", "ended", "no_decoder", "failed", "source_lost")}
        print(json.dumps({"seed": self.arguments.seed, "seconds": round(seconds), "good_share": good / max(all_of_them, 1), **self.counts,
                          "splits": splits, "left": left, "failures": list(self.failures)}, indent=2))
        sound = good >= GOOD * all_of_them > 0 and self.counts["wrong"] == 0 and not left
        return 0 if sound and splits["handed_over"] > 0 and self.counts["most blocks read"] > 0 else 1

    def close(self):
        self.over.set()
        self.fleet.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--hours", type=float)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--every", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--handoff", choices=("warm", "first"), default="warm")
    arguments = parser.parse_args()
    if (arguments.hours is None) == (arguments.minutes is None):
        parser.error("--hours or --minutes")
    seconds = arguments.hours * 3600 if arguments.hours is not None else arguments.minutes * 60
    gateway_fixture.BINARY = str(pathlib.Path(arguments.binary).resolve())
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(folder, arguments)
        try:
            soak.run(seconds)
            return soak.verdict(seconds)
        finally:
            soak.close()


if __name__ == "__main__":
    sys.exit(main())
