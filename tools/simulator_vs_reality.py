#!/usr/bin/env python3
"""Measures this machine's engine, calibrates the step-time model on some loads, and compares the
simulator with others that it was not calibrated on.

usage: simulator_vs_reality.py BINARY MODEL [--input-len N] [--output-len N] [--range-ratio R] [--seconds S] [--runs N]
                               [--seqs N] [--threads N] [--kv BYTES] [--steady SHARE] [--patience N] [--keep FOLDER]
                               [--markdown FILE] [--only-calibrate]

Serves MODEL on loopback with a step log. In each of --runs rounds it measures closed loops of 1, 2, 6
and 12 streams and one arrival rate, which it calibrates on, and 1, 4, 8 and 16 streams and three
other rates, which it then simulates. Throughput must be within 5 %, the median time per output token within 8 %, the
90th percentile of the time to the first token within 15 %, beyond the spread of the measured runs.
Exit code 1 if not.

Lengths vary, as people's do. With equal ones a few streams fall into step, in one of several rhythms
that last for seconds; which one is decided by tens of microseconds, and the median time per output
token goes with it.

Others share this machine's memory: it is probed before and after each run. A run begins when it is as
fast as in the beginning, within --steady, and is repeated if it has changed meanwhile, --patience
times in all.
"""
import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BOUNDS = {"output_throughput": 0.05, "median_tpot_ms": 0.08, "p90_ttft_ms": 0.15}
NAMES = {"output_throughput": "tokens/s", "median_tpot_ms": "TPOT p50 ms", "p90_ttft_ms": "TTFT p90 ms"}


def say(*words):
    print(*words, flush=True)


class Bench:
    """A server, and load tests against it."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.steps = folder / "steps.jsonl"
        self.patience = options.patience
        self.reference = statistics.median(self.memory_speed() for _ in range(5))
        say(f"memory: {self.reference:.1f} GiB/s")
        self.serve_flags = ["--max-num-seqs", str(options.seqs), "--kv-cache-memory", options.kv,
                            "--no-enable-prefix-caching", "--threads", str(options.threads)]
        self.process = subprocess.Popen(
            [options.binary, "serve", options.model, "--port", "0", "--step-log", self.steps, *self.serve_flags],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            sys.exit("the server did not start")
        self.port = line.strip().rsplit(":", 1)[1]

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def shape(self, load):
        flags = ["--num-prompts", str(load["prompts"]), "--request-rate", str(load.get("rate", "inf")),
                 "--random-range-ratio", str(self.options.range_ratio)]
        if "streams" in load:
            flags += ["--max-concurrency", str(load["streams"])]
        return flags

    def memory_speed(self):
        """GiB/s of the fastest way of reading, now."""
        done = subprocess.run([self.options.binary, "bench", "bandwidth", "--runs", "2", "--buffer-size", "512MiB",
                               "--json", "-"], capture_output=True, text=True, timeout=60, check=True)
        return max(way["median"] for way in json.loads(done.stdout)["ways"]) / 2**30

    def is_as_fast(self):
        return abs(self.memory_speed() / self.reference - 1) <= self.options.steady

    def measure(self, load, seed):
        """A run of the load during which the machine was as fast as in the beginning, and its part of the step log."""
        while True:
            while self.patience > 0 and not self.is_as_fast():
                self.patience -= 1
                time.sleep(2)
            begin = self.steps.stat().st_size
            result = self.measure_once(load, seed)
            with open(self.steps, "rb") as log:
                log.seek(begin)
                steps = log.read()
            if self.patience <= 0 or self.is_as_fast():
                return result, steps
            self.patience -= 1

    def measure_once(self, load, seed):
        result = self.folder / "result.json"
        done = subprocess.run(
            [self.options.binary, "bench", "serve", "--port", self.port, "--dataset-name", "random",
             "--tokenizer", self.options.model, "--random-input-len", str(self.options.input_len),
             "--random-output-len", str(self.options.output_len), "--seed", str(seed), "--save-result", "--save-detailed",
             "--result-filename", str(result), "--metric-percentiles", "50,90,99", *self.shape(load)],
            capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode != 0:
            sys.exit(f"bench serve failed: {done.stderr[-2000:]}")
        value = json.loads(result.read_text())
        if value.get("failed", 0):
            sys.exit(f"{value['failed']} requests failed")
        return value

    def simulate(self, load, seed, calibration):
        done = subprocess.run(
            [self.options.binary, "simulate", self.options.model, "--calibration", calibration,
             "--input-len", str(self.options.input_len), "--output-len", str(self.options.output_len),
             "--seed", str(seed), "--json", "-", *self.serve_flags, *self.shape(load)],
            capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            sys.exit(f"simulate failed: {done.stderr[-2000:]}")
        return json.loads(done.stdout)


def prompts_for(options, streams, tokens_per_s):
    """As many requests as keep so many streams busy for the seconds wanted."""
    count = tokens_per_s * options.seconds / options.output_len
    return max(int(count), 2 * streams)


CALIBRATION_STREAMS = (1, 2, 6, 12)
CALIBRATION_RATE = 0.65  # of what 6 streams get
TEST_STREAMS = ((1, 1), (4, 2), (8, 6), (16, 12))  # and whose speed says how many requests last the seconds wanted
TEST_RATES = (0.3, 0.5, 0.8)


def first_look(bench, options):
    """Tokens/s at the numbers of streams that are calibrated on, about: what sizes the loads. Warms up, too."""
    speed = {1: bench.measure_once({"streams": 1, "prompts": 4}, 900)["output_throughput"]}
    for streams in CALIBRATION_STREAMS[1:]:
        speed[streams] = bench.measure_once({"streams": streams, "prompts": 3 * streams}, 901)["output_throughput"]
    return speed


def rate_load(options, speed, share):
    tokens = share * speed[6]
    return {"rate": round(tokens / options.output_len, 4), "prompts": prompts_for(options, 4, tokens)}


def calibration_loads(options, speed):
    loads = [(f"{n} streams", {"streams": n, "prompts": prompts_for(options, n, speed[n])}) for n in CALIBRATION_STREAMS]
    return loads + [("a rate", rate_load(options, speed, CALIBRATION_RATE))]


def test_loads(options, speed):
    loads = [(f"{n} streams", {"streams": n, "prompts": prompts_for(options, n, speed[near])}) for n, near in TEST_STREAMS]
    return loads + [(f"rate {share:.0%}", rate_load(options, speed, share)) for share in TEST_RATES]


def measure_rounds(bench, options, calibrating, testing):
    """Rounds of everything, so that a machine that grows slower or faster does so for both: for each load that is
    calibrated on its (tokens/s, result, step log) of each round, and for each that is tested its results."""
    logged = {name: [] for name, _ in calibrating}
    measured = {name: [] for name, _ in testing}
    for turn in range(options.runs):
        for at, (name, load) in enumerate(calibrating):
            result, steps = bench.measure(load, 910 + 10 * at + turn)
            logged[name].append((result["output_throughput"], result, steps))
        for name, load in testing:
            measured[name].append(bench.measure(load, 10 + turn)[0])
        say(f"round {turn + 1} of {options.runs} measured; memory {bench.memory_speed():.1f} GiB/s, patience left {bench.patience}")
    return logged, measured


def calibrate(options, folder, logged):
    """Returns the calibration's file, from each load's middle run by throughput: a disturbed one is left out."""
    middle = {name: sorted(runs, key=lambda run: run[0])[len(runs) // 2] for name, runs in logged.items()}
    for name, run in middle.items():
        say(f"calibrating on {name}: {run[0]:.1f} tokens/s")
    steps, idle, out = folder / "calibration_steps.jsonl", folder / "idle.json", folder / "calibration.json"
    steps.write_bytes(b"".join(run[2] for run in middle.values()))
    idle.write_text(json.dumps(middle["1 streams"][1]))
    done = subprocess.run([options.binary, "calibrate", options.model, "--step-log", steps, "--idle-result", idle,
                           "--out", out], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(f"calibrate failed: {done.stderr}")
    say(done.stdout)
    return out


def compare(bench, calibration, testing, measured):
    rows, good = [], True
    for name, load in testing:
        modelled = [bench.simulate(load, 10 + turn, calibration) for turn in range(len(measured[name]))]
        for key, bound in BOUNDS.items():
            values = [one[key] for one in measured[name]]
            real, sim = statistics.median(values), statistics.median([one[key] for one in modelled])
            spread = (max(values) - min(values)) / 2 / real
            error = sim / real - 1
            fine = abs(error) <= bound + spread
            good = good and fine
            rows.append((name, NAMES[key], real, spread, sim, error, bound, fine))
            say(f"{name:<12} {NAMES[key]:<12} measured {real:10.3f} +- {spread:6.1%}  simulated {sim:10.3f} "
                f"{error:+7.1%}  {'ok' if fine else 'BEYOND ' + format(bound, '.0%')}")
    return rows, good


def markdown(rows):
    lines = ["| load | metric | measured | spread | simulated | error | bound |", "|---|---|---|---|---|---|---|"]
    for name, metric, real, spread, sim, error, bound, fine in rows:
        lines.append(f"| {name} | {metric} | {real:.3f} | ± {spread:.1%} | {sim:.3f} | {error:+.1%} | "
                     f"{bound:.0%}{'' if fine else ' **beyond**'} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--input-len", type=int, default=96)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--range-ratio", type=float, default=0.3, help="lengths vary by this share both ways")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each run, about")
    parser.add_argument("--runs", type=int, default=3, help="rounds; medians are taken")
    parser.add_argument("--seqs", type=int, default=16)
    parser.add_argument("--threads", type=int, default=0, help="of the server's arithmetic; leave the load generator "
                        "a core of its own where steps are short")
    parser.add_argument("--kv", default="256MiB")
    parser.add_argument("--steady", type=float, default=0.1, help="a share of the memory's speed in the beginning")
    parser.add_argument("--patience", type=int, default=60)
    parser.add_argument("--keep", help="a folder for what was measured")
    parser.add_argument("--markdown", help="write the table there")
    parser.add_argument("--only-calibrate", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(options.keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        started = time.time()
        bench = Bench(options, folder)
        try:
            speed = first_look(bench, options)
            calibrating, testing = calibration_loads(options, speed), test_loads(options, speed)
            logged, measured = measure_rounds(bench, options, calibrating, [] if options.only_calibrate else testing)
            calibration = calibrate(options, folder, logged)
            if options.only_calibrate:
                return 0
            rows, good = compare(bench, calibration, testing, measured)
        finally:
            bench.close()
        if options.markdown:
            pathlib.Path(options.markdown).write_text(markdown(rows))
        say(f"{'all within bounds' if good else 'NOT all within bounds'}; {time.time() - started:.0f} s")
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
