#!/usr/bin/env python3
"""Two gateways, eight workers, one random fault a minute, and streams of which every letter is known: how much is good, what memory
the gateways hold, and whether all is back to zero at the end.

usage: fleet_soak.py BINARY (--hours N | --minutes N) [--seed N] [--every SECONDS] [--streams N] [--workers N]

Exit code 1: less than 99.99 % good, a gateway's memory grew by more than 1 MiB an hour, or something is left behind. Slopes are judged only
in runs of an hour or more: before, what is seen is caches that fill.
"""
import argparse
import collections
import json
import pathlib
import random
import re
import signal
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import gateway_fixture  # noqa: E402
from gateway_fixture import Fleet, Process, ask, check_stream  # noqa: E402

GOOD = 0.9999
SLOPE_MAX = 1 << 20  # bytes an hour
LOOK_S = 15


def resident(process):
    text = pathlib.Path(f"/proc/{process.process.pid}/smaps_rollup").read_text()
    return int(re.search(r"^Rss: +(\d+) kB", text, re.M).group(1)) * 1024


def slope(samples):
    """Bytes an hour: least squares over the last three quarters."""
    samples = samples[len(samples) // 4:]
    if len(samples) < 2:
        return 0.0
    at = sum(x for x, _ in samples) / len(samples)
    height = sum(y for _, y in samples) / len(samples)
    spread = sum((x - at) ** 2 for x, _ in samples)
    return 3600 * sum((x - at) * (y - height) for x, y in samples) / spread if spread else 0.0


class Soak:
    def __init__(self, folder, arguments):
        self.draw = random.Random(arguments.seed)
        self.arguments = arguments
        self.fleet = Fleet(folder, arguments.workers)
        config = pathlib.Path(folder) / "second.toml"
        config.write_text(re.sub(r"admin = .*\n", "", self.fleet.config.read_text()))
        self.second_config = config
        self.second = Process("gateway", "--config", config)
        self.counts, self.failures = collections.Counter(), collections.deque(maxlen=20)
        self.memory = collections.defaultdict(list)
        self.over = threading.Event()
        self.second_down = threading.Event()

    def client(self, number):
        draw = random.Random(self.arguments.seed + number)
        while not self.over.is_set():
            is_second = number % 2 == 1
            gateway = self.second if is_second else self.fleet.gateway
            was_down = self.second_down.is_set()
            try:
                check_stream(gateway.port, draw.randrange(10**9), draw.randrange(2, 400), draw.randrange(2**31))
                self.counts["good"] += 1
            except Exception as error:
                # A gateway that is killed breaks off what it has: that is no loss of a worker's. Its clients ask again.
                if is_second and (was_down or self.second_down.is_set() or gateway is not self.second):
                    self.counts["with its gateway"] += 1
                    time.sleep(0.2)
                    continue
                self.counts["bad"] += 1
                self.failures.append(repr(error)[:600])

    def fault(self):
        kinds = {"kill": 4, "stop": 3, "freeze": 2, "drain": 1, "reload": 1, "gateway": 1}
        kind = self.draw.choices(list(kinds), list(kinds.values()))[0]
        victim = self.draw.randrange(len(self.fleet.workers))
        worker = self.fleet.workers[victim]
        if kind == "kill":
            self.fleet.kill(victim)
            self.fleet.start(victim)
        elif kind == "stop":
            self.fleet.workers[victim] = None
            worker.end(signal.SIGTERM)
            self.fleet.start(victim)
        elif kind == "freeze":
            worker.process.send_signal(signal.SIGSTOP)
            time.sleep(5)
            worker.process.send_signal(signal.SIGCONT)
        elif kind == "drain":
            name = f"w{victim}"
            ask(self.fleet.admin, "POST", f"/v1/workers/{name}/drain")
            time.sleep(2)
            ask(self.fleet.admin, "POST", f"/v1/workers/{name}/undrain")
        elif kind == "reload":
            for _ in range(20):
                self.fleet.gateway.process.send_signal(signal.SIGHUP)
                time.sleep(0.1)
        else:
            self.second_down.set()
            self.second.end()
            self.second = Process("gateway", "--config", self.second_config)
            self.memory.pop("second", None)
            self.second_down.clear()
        self.counts[f"fault {kind}"] += 1

    def look(self, began):
        at = time.monotonic() - began
        self.memory["first"].append((at, resident(self.fleet.gateway)))
        self.memory["second"].append((at, resident(self.second)))

    def run(self, seconds):
        clients = [threading.Thread(target=self.client, args=(number,)) for number in range(self.arguments.streams)]
        for one in clients:
            one.start()
        began = time.monotonic()
        next_fault, next_look, ended = began + self.arguments.every, began, began + seconds
        while time.monotonic() < ended:
            if time.monotonic() >= next_look:
                next_look += LOOK_S
                self.look(began)
            if time.monotonic() >= next_fault:
                next_fault = max(next_fault + self.arguments.every, time.monotonic())
                self.fault()
            time.sleep(0.05)
        self.over.set()
        for one in clients:
            one.join()
        self.look(began)

    def left_behind(self):
        """What is not back to zero half a minute after the last client."""
        end, left = time.monotonic() + 30, ["not looked"]
        while left and time.monotonic() < end:
            time.sleep(0.2)
            rows = self.fleet.rows()
            left = [f"{row['name']}: {key} {row[key]}" for row in rows for key in ("running", "waiting", "uncounted") if row[key]]
            left += [f"{row['name']} is {row['state']}" for row in rows if row["state"] != "ready"]
            left += [f"{name}: {self.fleet.metric(name)}" for name in ("requests_open", "suspects") if self.fleet.metric(name)]
        return left

    def verdict(self, seconds):
        left = self.left_behind()
        good, bad = self.counts["good"], self.counts["bad"]
        share = good / (good + bad) if good + bad else 0.0
        slopes = {name: slope(samples) for name, samples in self.memory.items()}
        moved = {name: self.fleet.metric(name) for name in ("migrations_total", "drain_moves_total", "warm_moves_total", "retries_total")}
        print(json.dumps({"seed": self.arguments.seed, "seconds": round(seconds), "good_share": share, **self.counts, **moved,
                          "bytes_an_hour": {name: round(value) for name, value in slopes.items()},
                          "resident": {name: samples[-1][1] for name, samples in self.memory.items()}, "left": left,
                          "failures": list(self.failures)}, indent=2))
        grew = seconds >= 3600 and max(slopes.values()) > SLOPE_MAX
        return 0 if share >= GOOD and not left and not grew else 1

    def close(self):
        self.over.set()
        self.second.end()
        self.fleet.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--hours", type=float)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--every", type=float, default=60.0)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--workers", type=int, default=8)
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
