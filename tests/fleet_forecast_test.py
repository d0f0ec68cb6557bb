#!/usr/bin/env python3
"""A real fleet of processes beside its simulation: the same requests, recorded by the gateway, played by `pelton simulate` with step times
and start times that were measured on other loads. Throughput, 90th percentile of first tokens, replica-hours, moments of scaling steps.

usage: fleet_forecast_test.py BINARY [--full] [--loads steady,saw] [--markdown FILE]

One short load in ./test, which asks that all of it is compared and nothing is far off; six with --full or PELTON_FULL, against the bounds.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import gateway_fixture
from autoscale_load_test import streamed
from autoscale_test import Scaled

TOKENS = 50
STEP_MS = 20
SLOTS = 4
LEAD_S = 4.0  # of the provider, before a process starts
TICK_S = 2.0
BOUNDS = {"tokens/s": 0.05, "TTFT p90": 0.15, "replica-hours": 0.05, "whatif replica-hours": 0.05}
READY = 2  # as facts write it (autoscaler/pool_facts.h)


def even(phases):
    """Moments of requests that come evenly in each of `phases`, pairs of seconds and requests a second."""
    at, begin = [], 0.0
    for seconds, rate in phases:
        count = round(seconds * rate)
        at += [begin + seconds * (i + 0.5) / count for i in range(count)]
        begin += seconds
    return at


class Load:
    """Requests: one at the very beginning, so that what the autoscaler knows begins there in both, and after `prelude_s` those of `phases`.
    `least`, `ready`: the pool's fewest replicas, and those at the beginning; kill_s, replace_s: when one is killed, all are replaced."""

    def __init__(self, phases, least=1, ready=1, prelude_s=6.0, kill_s=None, replace_s=None):
        self.arrivals = [0.0] + [prelude_s + at for at in even(phases)]
        self.seconds = prelude_s + sum(seconds for seconds, _ in phases)
        self.least, self.ready, self.kill_s, self.replace_s = least, ready, kill_s, replace_s


LOADS = {
    "steady": Load([(30, 5)], least=2, ready=2),
    "step": Load([(12, 1.5), (30, 8), (20, 1.5)]),
    "spike from zero": Load([(1, 12), (18, 1.5)], least=0, ready=0, prelude_s=16.0),
    "kill": Load([(36, 5)], least=2, ready=2, kill_s=20),
    "rolling update": Load([(40, 4)], least=2, ready=2, replace_s=14),
    "saw": Load([(9, 2), (9, 5), (9, 8)] * 2),
}
SHORT = {"short": Load([(1, 4), (1.5, 8)], prelude_s=0.5)}


def run(*words, timeout=120):
    done = subprocess.run([gateway_fixture.BINARY, *map(str, words)], capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, (words, done.stderr[-2000:])
    return done.stdout


def facts_of(path):
    """(moment in seconds, facts, decision) of each line that decides."""
    lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    return [(line["now_ns"] * 1e-9, line["facts"], line["decision"]) for line in lines if "decision" in line]


def replica_hours(facts, begin, end):
    """Of replicas that are ordered and not gone, from line to line."""
    total = 0.0
    for (at, one, _), (then, _, _) in zip(facts, facts[1:] + [(end, None, None)]):
        total += len(one["replicas"]) * max(0.0, min(then, end) - max(at, begin))
    return total / 3600


def steps_of(facts, begin, end):
    """(seconds since `begin`, desired) wherever the desired number changes."""
    steps, before = [], None
    for at, _, decision in facts:
        if before is not None and decision["desired"] != before and begin - 1 <= at <= end:
            steps.append((at - begin, decision["desired"]))
        before = decision["desired"]
    return steps


def start_times(facts):
    """Seconds from the decision that ordered it until each replica was ready, of those that were seen to start."""
    seen, taken, ordered = set(), {}, None
    for at, one, decision in facts:
        for replica in one["replicas"]:
            if replica["id"] not in seen:
                seen.add(replica["id"])
                taken[replica["id"]] = [ordered, None]
            if replica["phase"] == READY and taken[replica["id"]][1] is None:
                taken[replica["id"]][1] = float(replica["ready_ns"]) * 1e-9
        if decision["start"] > 0:
            ordered = at
    return [ready - order for order, ready in taken.values() if order is not None and ready is not None]


class Fleet:
    """The real one."""

    def __init__(self, folder, load, start_s):
        self.folder, self.load = pathlib.Path(folder), load
        script = self.folder / "steps.json"
        script.write_text(json.dumps({**gateway_fixture.SCRIPT, "step_ms": STEP_MS, "slots": SLOTS}))
        self.requests, self.facts = self.folder / "requests.jsonl", self.folder / "facts.jsonl"
        self.fleet = Scaled(self.folder, 8, scale=f"min = {load.least}\nscale_down_delay = 15\n",
                            serve=[str(gateway_fixture.BOX), "--executor", f"modelled:{script}", "--max-num-seqs", str(SLOTS)],
                            launch=f'kind = "simulated"\nquota = 16\nlead_seconds = {LEAD_S}', window=15,
                            record=self.facts, more=["--record-requests", self.requests], start=start_s)
        self.fleet.wait(lambda: self.fleet.page()["ready"] == load.ready or load.ready == 0, 60)

    def play(self):
        """Everything once; returns first tokens in seconds, faults, (begin, end) on the facts' clock, and when replicas were ended."""
        faults, first, threads, ended = [], [], [], []

        def client(number):
            try:
                first.append(streamed(self.fleet.port, number, number))
            except Exception as error:
                faults.append(f"{number}: {error!r}"[:300])

        begun = time.monotonic() + 0.2
        helpers = []
        if self.load.kill_s is not None:
            helpers.append(threading.Timer(self.load.kill_s, lambda: ended.append((time.monotonic() - begun, self.end_one(signal.SIGKILL)))))
        if self.load.replace_s is not None:
            helpers.append(threading.Timer(self.load.replace_s, self.replace_all, (begun, ended)))
        for one in helpers:
            one.start()
        for number, at in enumerate(self.load.arrivals):
            time.sleep(max(0.0, begun + at - time.monotonic()))
            threads.append(threading.Thread(target=client, args=(number + 1,)))
            threads[-1].start()
        for one in threads:
            one.join()
        end = time.monotonic()
        for one in helpers:
            one.join()
        time.sleep(max(0.0, begun + self.load.seconds - end))
        self.fleet.close()
        return first, faults, (begun, end), ended

    def running(self):
        return [pid for pid in self.fleet.starts() if pathlib.Path(f"/proc/{pid}").exists()]

    def end_one(self, how):
        os.kill(self.running()[0], how)
        return 0

    def replace_all(self, begun, ended):
        for place, pid in enumerate(self.running()):
            before = len(self.fleet.starts())
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:  # drained meanwhile
                continue
            ended.append((time.monotonic() - begun, place))
            until = time.monotonic() + 20
            while time.monotonic() < until and len(self.fleet.starts()) == before:
                time.sleep(0.05)
            time.sleep(LEAD_S + 3)


class Measured:
    """Step times of a single worker, and start times of a fleet that grows: on loads that none of the others is."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        script, log, idle = self.folder / "one.json", self.folder / "steps.jsonl", self.folder / "idle.json"
        script.write_text(json.dumps({**gateway_fixture.SCRIPT, "step_ms": STEP_MS, "slots": SLOTS}))
        worker = gateway_fixture.Process("serve", gateway_fixture.BOX, "--executor", f"modelled:{script}", "--max-num-seqs", SLOTS, "--port", "0",
                                         "--step-log", log)
        try:
            threads = []
            for number in range(10):
                streamed(worker.port, 900 + number, 1) if number < 2 else None
                threads.append(threading.Thread(target=streamed, args=(worker.port, 100 + number, 3)))
                threads[-1].start()
                time.sleep(0.13)
            for one in threads:
                one.join()
        finally:
            worker.end(signal.SIGTERM)
        self.calibration = self.folder / "calibration.json"
        run("calibrate", gateway_fixture.BOX, "--step-log", log, "--out", self.calibration)
        self.start_s = LEAD_S + 1
        if not FULL:
            return
        grow = self.folder / "grow"
        grow.mkdir()
        fleet = Fleet(grow, Load([(4, 5), (1, 1)]), LEAD_S + 1)
        fleet.play()
        starts = start_times(facts_of(fleet.facts))
        self.start_s = statistics.mean(starts) if starts else LEAD_S + 1
        print(f"starts took {', '.join(f'{one:.2f}' for one in starts)} s", flush=True)


def simulated(folder, fleet, load, measured, ended):
    """The same requests in virtual time; returns its figures and facts."""
    facts = pathlib.Path(folder) / "simulated-facts.jsonl"
    words = ["simulate", gateway_fixture.BOX, "--calibration", measured.calibration, "--requests", fleet.requests, "--scale-config",
             fleet.fleet.config, "--max-num-seqs", SLOTS, "--router", "cost", "--replicas", load.ready, "--start-seconds", f"{measured.start_s:.3f}", "--assumed-service-seconds", 10,
             "--record-facts", facts, "--json", "-"]
    if ended:
        faults = pathlib.Path(folder) / "faults.json"
        faults.write_text(json.dumps([{"kind": "crash", "replica": place, "at_s": round(at, 3)} for at, place in ended]))
        words += ["--faults", faults]
    return json.loads(run(*words)), facts_of(facts)


def far(real, played):
    """Seconds between steps to the same number, and how many of either have no partner."""
    distances, left = [], list(played)
    for at, desired in real:
        partners = [one for one in left if one[1] == desired]
        if partners:
            nearest = min(partners, key=lambda one: abs(one[0] - at))
            left.remove(nearest)
            distances.append(abs(nearest[0] - at))
    return distances, len(real) - len(distances) + len(left)


class Row:
    def __init__(self, name, folder, load, measured):
        self.name = name
        fleet = Fleet(folder, load, measured.start_s)
        _, self.faults, (begin, end), ended = fleet.play()
        facts = facts_of(fleet.facts)
        figures, played_facts = simulated(folder, fleet, load, measured, ended)
        span = end - begin
        played_end = max(span, figures["duration"])
        lines = [json.loads(line) for line in fleet.requests.read_text().splitlines()]
        answered = [line for line in lines if line["outcome"] == "ok"]
        tokens = sum(line["output_length"] for line in answered)
        first = [line["first_token_ms"] / 1000 for line in answered]
        self.pairs = {
            "tokens/s": (tokens / span, figures["output_throughput"]),
            "TTFT p90": (statistics.quantiles(first, n=10, method="inclusive")[-1], figures["fleet"]["figures"]["ttft_p90_s"]),
            "replica-hours": (replica_hours(facts, begin, end), replica_hours(played_facts, 0, span)),
        }
        runs = json.loads(run("whatif", "--facts", fleet.facts, "--json", "-"))["runs"]
        self.pairs["whatif replica-hours"] = tuple(one["figures"]["replica_hours"] for one in runs[:2])
        self.distances, self.unpaired = far(steps_of(facts, begin, end), steps_of(played_facts, 0, played_end))
        self.bound_s = TICK_S + 0.1 * measured.start_s

    def errors(self):
        return {name: played / real - 1 if real else 0.0 for name, (real, played) in self.pairs.items()}

    def markdown(self):
        cells = [f"{real:.4g} / {played:.4g} ({played / real - 1 if real else 0:+.1%})" for real, played in self.pairs.values()]
        steps = f"{len(self.distances)} pairs, at most {max(self.distances, default=0):.1f} s apart; {self.unpaired} alone"
        return f"| {self.name} | {' | '.join(cells)} | {steps} | {len(self.faults)} |"

    def beyond(self):
        out = [name for name, error in self.errors().items() if abs(error) > BOUNDS[name]]
        return out + (["steps"] if self.unpaired or max(self.distances, default=0) > self.bound_s else [])


def table(rows):
    head = "| load | tokens/s: real / simulated | TTFT p90, s | replica-hours | whatif: replica-hours | scaling steps | requests lost |\n|---|---|---|---|---|---|---|\n"
    return head + "\n".join(row.markdown() for row in rows) + "\n"


class Forecast(unittest.TestCase):
    def test_the_simulator_says_what_the_fleet_does(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            measured = Measured(folder)
            rows = []
            for name, load in (LOADS if FULL else SHORT).items():
                if ONLY and name not in ONLY:
                    continue
                (folder / name).mkdir()
                rows.append(Row(name, folder / name, load, measured))
                print(rows[-1].markdown(), flush=True)
        if MARKDOWN:
            pathlib.Path(MARKDOWN).write_text(table(rows))
        for row in rows:
            self.assertEqual(row.faults, [], row.name) if row.name not in ("kill", "rolling update") else None
            if FULL:
                print(f"{row.name}: beyond the bounds: {', '.join(row.beyond()) or 'nothing'}", flush=True)
                continue
            # A few seconds beside other work are no figures: they must be there, and of the same size.
            for name, (real, played) in row.pairs.items():
                self.assertGreater(real, 0, name)
                self.assertGreater(played, 0, name)
            self.assertLess(abs(row.errors()["tokens/s"]), 0.5, row.pairs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--loads", default="")
    parser.add_argument("--markdown")
    options = parser.parse_args()
    FULL = options.full or bool(os.environ.get("PELTON_FULL"))
    if not FULL:
        LEAD_S = 0.3
    ONLY = [one for one in options.loads.split(",") if one]
    MARKDOWN = options.markdown
    gateway_fixture.BINARY = options.binary
    unittest.main(argv=sys.argv[:1], verbosity=2)
