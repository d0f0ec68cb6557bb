#!/usr/bin/env python3
"""A day in an hour (or as long as the run takes): from none to eight replicas and back under a day's curve, two gateways, two autoscalers of
which one leads by a lease in etcd, one random fault a minute, and streams of which every letter is known.

usage: autoscale_soak.py BINARY (--hours N | --minutes N) [--seed N] [--every SECONDS] [--streams N] [--replicas N]

Exit code 1: less than 99.99 % good, the most and none of the replicas were not both seen, or something is left behind: a replica, a request, a
held one. 77: etcd is not installed. Gateways' memory, which follows the day here, is shown; fleet_soak.py judges it.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time

from fleet_soak import GOOD, LOOK_S, resident, slope  # also opens tests/ for import
import gateway_fixture
from autoscale_launchers_test import Scaler
from autoscale_test import alive
from gateway_discovery_test import Etcd
from gateway_fixture import BOX, Process, ask, check_stream
from ports import free_port

# Hour of the day, share of the most streams: a night of nothing, a morning, a lunch, the day's most, an evening.
DAY = ((0, 0.04), (2, 0), (5, 0), (7, 0.2), (10, 0.9), (12.5, 0.6), (15, 1), (18, 0.5), (21, 0.2), (23, 0), (24, 0))
LEASE_S = 4
SCRIPT = {**gateway_fixture.SCRIPT, "step_ms": 30, "slots": 4}
FAULTS = {"replica killed": 4, "replica stopped": 3, "replica frozen": 2, "leader killed": 2, "leader frozen": 1, "standby killed": 1,
          "gateway killed": 2, "etcd killed": 1}


def share_at(hour):
    for (begin, low), (end, high) in zip(DAY, DAY[1:]):
        if begin <= hour <= end:
            return low + (high - low) * (hour - begin) / (end - begin)
    return 0.0


class Gateway:
    """A process at a fixed admin port, which may be killed and started again; clients read `port`."""

    def __init__(self, config):
        self.config, self.kills, self.memory = config, 0, []
        self.process = Process("gateway", "--config", config)

    @property
    def port(self):
        return self.process.port

    def kill(self):
        self.kills += 1
        self.process.end()
        self.process = Process("gateway", "--config", self.config)
        self.memory = []
        self.kills += 1

    def look(self):
        try:
            self.memory.append((time.monotonic(), resident(self.process)))
        except OSError:  # it is being killed now, by another thread
            pass


class Soak:
    def __init__(self, folder, arguments):
        self.arguments, self.draw = arguments, random.Random(arguments.seed)
        self.folder = pathlib.Path(folder)
        self.counts, self.failures = collections.Counter(), collections.deque(maxlen=20)
        self.over = threading.Event()
        self.active = 0  # streams that are wanted now; written by run() only
        self.ready_seen = set()
        self.etcd = Etcd(str(self.folder / "etcd"))
        self.admins = [free_port(), free_port()]
        self.gateways = [Gateway(self.write_config(i)) for i in range(2)]
        self.scalers = [Scaler(self.gateways[i].config) for i in range(2)]

    def write_config(self, number):
        """Of one gateway and one autoscaler; what is the fleet's is the same in both."""
        script = self.folder / "script.json"
        script.write_text(json.dumps(SCRIPT))
        gateways = [f"http://127.0.0.1:{admin}" for admin in self.admins]
        config = self.folder / f"gateway{number}.toml"
        config.write_text(f"""[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:{self.admins[number]}"

[etcd]
endpoints = ["{self.etcd.endpoint}"]

[autoscaler]
state_dir = "{self.folder / "replicas"}"
gateways = {json.dumps(gateways)}
lead = "etcd"
lease_seconds = {LEASE_S}

[[pool]]
name = "box"
model = "pelton-box"

[pool.scale]
max = {self.arguments.replicas}
window = 6
idle_to_zero = 2
scale_down_delay = 3

[pool.launch]
serve = {json.dumps([str(BOX), "--executor", f"modelled:{script}"])}
start_seconds = 1
""")
        return config

    def client(self, number):
        draw = random.Random(self.arguments.seed + number)
        while not self.over.is_set():
            if number >= self.active:
                time.sleep(0.05)
                continue
            gateway = self.gateways[number % 2]
            kills = gateway.kills
            try:
                check_stream(gateway.port, draw.randrange(10**9), draw.randrange(2, 300), draw.randrange(2**31))
                self.counts["good"] += 1
            except Exception as error:
                # A gateway that is killed breaks off what it has: that is no loss of a replica's. Its clients ask again.
                if kills % 2 or gateway.kills != kills:
                    self.counts["with its gateway"] += 1
                    time.sleep(0.2)
                    continue
                self.counts["bad"] += 1
                self.failures.append(repr(error)[:600])

    def replicas(self):
        """Process ids of those that run."""
        found = [int(re.search(r"process (\d+)", line).group(1)) for one in self.scalers for line in one.said("is started, process")]
        return [pid for pid in found if alive(pid)]

    def leader(self):
        """The index of the autoscaler whose last word about it was that it leads; None between two."""
        for i, one in enumerate(self.scalers):
            words = [line for line in list(one.log) if "leads, epoch" in line or "stands by" in line or "the lead is lost" in line]
            if one.process.poll() is None and words and "leads, epoch" in words[-1]:
                return i
        return None

    def freeze(self, pid, seconds):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    def fault(self):
        kind = self.draw.choices(list(FAULTS), list(FAULTS.values()))[0]
        target, leader = kind.split()[0], self.leader()
        try:
            if target == "replica":
                running = self.replicas()
                if not running:
                    self.counts["fault without a replica"] += 1
                    return
                pid = self.draw.choice(running)
                if kind == "replica frozen":
                    self.freeze(pid, 5)
                else:
                    os.kill(pid, signal.SIGKILL if kind == "replica killed" else signal.SIGTERM)
            elif target == "gateway":
                self.draw.choice(self.gateways).kill()
            elif target == "etcd":
                self.etcd.end()
                time.sleep(2)
                self.etcd.start()
            elif leader is None:
                self.counts["fault without a leader"] += 1
                return
            elif kind == "leader frozen":
                self.freeze(self.scalers[leader].process.pid, LEASE_S + 1)
            else:
                self.scalers[leader if kind == "leader killed" else 1 - leader].process.kill()
        except ProcessLookupError:  # it had ended by itself meanwhile
            pass
        self.counts[f"fault {kind}"] += 1

    def rows(self, gateway):
        """Of its workers; nothing while it is killed."""
        try:
            return json.loads(ask(gateway, "GET", "/v1/workers")[1])["workers"]
        except OSError:
            return []

    def look(self, hour):
        for one in self.gateways:
            one.look()
        ready = sum(row["state"] == "ready" for row in self.rows(self.admins[0]))
        self.ready_seen.add(ready)
        print(f"{int(hour):02}:{int(hour % 1 * 60):02}  streams {self.active:3}  ready {ready}  good {self.counts['good']}  bad {self.counts['bad']}",
              file=sys.stderr, flush=True)

    def run(self, seconds):
        clients = [threading.Thread(target=self.client, args=(number,)) for number in range(self.arguments.streams)]
        for one in clients:
            one.start()
        began = time.monotonic()
        next_fault, next_look = began + self.arguments.every, began
        faults = None
        while time.monotonic() < began + seconds:
            hour = 24 * (time.monotonic() - began) / seconds
            self.active = round(share_at(hour) * self.arguments.streams)
            if time.monotonic() >= next_look:
                next_look += LOOK_S
                self.look(hour)
            if time.monotonic() >= next_fault and (faults is None or not faults.is_alive()):
                next_fault = max(next_fault + self.arguments.every, time.monotonic())
                faults = threading.Thread(target=self.fault)  # some last for seconds, in which the day goes on
                faults.start()
            for one in self.scalers:
                one.revive()
            time.sleep(0.05)
        if faults is not None:
            faults.join()
        self.over.set()
        for one in clients:
            one.join()
        self.look(24)

    def metric(self, admin, name):
        text = ask(admin, "GET", "/metrics")[1]
        assert re.search(rf"^# TYPE pelton_gateway_{name} ", text, re.M), name
        found = re.findall(rf"^pelton_gateway_{name}(?:{{.*}})? (\S+)$", text, re.M)
        return int(sum(float(value) for value in found))

    def left_behind(self):
        """What is not back to nothing a minute after the last client."""
        end, left = time.monotonic() + 60, ["not looked"]
        while left and time.monotonic() < end:
            time.sleep(0.2)
            for one in self.scalers:
                one.revive()
            left = [f"replica {pid} runs" for pid in self.replicas()]
            for i, gateway in enumerate(self.gateways):
                left += [f"gateway {i}: {name} {self.metric(self.admins[i], name)}" for name in ("requests_open", "suspects", "held_requests")
                         if self.metric(self.admins[i], name)]
                left += [f"gateway {i}: {row['name']} is {row['state']}" for row in self.rows(self.admins[i])]
                state = json.loads(ask(gateway.port, "GET", "/v1/models/pelton-box")[1])["state"]
                left += [f"gateway {i}: the model is {state}"] if state != "cold" else []
        return left

    def verdict(self, seconds):
        left = self.left_behind()
        good, bad = self.counts["good"], self.counts["bad"]
        share = good / (good + bad) if good + bad else 0.0
        slopes = {f"gateway {i}": slope(one.memory) if one.memory else 0.0 for i, one in enumerate(self.gateways)}
        starts = sum(len(one.said("is started, process")) for one in self.scalers)
        leads = sum(len(one.said("leads, epoch")) for one in self.scalers)
        print(json.dumps({"seed": self.arguments.seed, "seconds": round(seconds), "good_share": share, **self.counts, "starts": starts,
                          "changes of the lead": leads - 1, "ready_seen": sorted(self.ready_seen),
                          "bytes_an_hour": {name: round(value) for name, value in slopes.items()}, "left": left,
                          "failures": list(self.failures)}, indent=2))
        went = {0, self.arguments.replicas} <= self.ready_seen
        return 0 if share >= GOOD and went and not left else 1

    def close(self):
        self.over.set()
        pids = self.replicas()
        for one in self.scalers:
            one.end(signal.SIGKILL)
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        for one in self.gateways:
            one.process.end()
        self.etcd.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--hours", type=float)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--every", type=float, default=60.0)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--replicas", type=int, default=8)
    arguments = parser.parse_args()
    if (arguments.hours is None) == (arguments.minutes is None):
        parser.error("--hours or --minutes")
    if shutil.which("etcd") is None:
        print("etcd is not installed", file=sys.stderr)
        return 77
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
