#!/usr/bin/env python3
"""Measures this machine's engine, calibrates the step-time model on some loads, and compares the
simulator with others that it was not calibrated on.

usage: simulator_vs_reality.py BINARY MODEL [--input-len N] [--output-len N] [--seconds S] [--runs N] [--calibration-runs N]
                               [--seqs N] [--threads N] [--kv BYTES] [--keep FOLDER] [--markdown FILE] [--only-calibrate]

Serves MODEL on loopback with a step log. Calibrates on closed loops of 1, 2, 6 and 12 streams and
one arrival rate; then measures 1, 4, 8 and 16 streams and three other rates, each --runs times, and
simulates the same. Throughput must be within 5 %, the median time per output token within 8 %, the
90th percentile of the time to the first token within 15 %, beyond the spread of the measured runs.
Exit code 1 if not.
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


class Bench:
    """A server, and load tests against it."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.steps = folder / "steps.jsonl"
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

    def log_size(self):
        return self.steps.stat().st_size

    def shape(self, load):
        flags = ["--num-prompts", str(load["prompts"]), "--request-rate", str(load.get("rate", "inf"))]
        if "streams" in load:
            flags += ["--max-concurrency", str(load["streams"])]
        return flags

    def measure(self, load, seed):
        result = self.folder / "result.json"
        done = subprocess.run(
            [self.options.binary, "bench", "serve", "--port", self.port, "--dataset-name", "random",
             "--tokenizer", self.options.model, "--random-input-len", str(self.options.input_len),
             "--random-output-len", str(self.options.output_len), "--seed", str(seed), "--save-result",
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


def say(*words):
    print(*words, flush=True)


def prompts_for(options, streams, tokens_per_s):
    """As many requests as keep so many streams busy for the seconds wanted."""
    count = tokens_per_s * options.seconds / options.output_len
    return max(int(count), 2 * streams)


def middle_run(bench, load, seed, steps):
    """The median of the runs, by throughput: a disturbed one would be calibrated in. Appends its steps."""
    runs = []
    for run in range(bench.options.calibration_runs):
        begin = bench.log_size()
        result = bench.measure(load, seed + run)
        with open(bench.steps, "rb") as log:
            log.seek(begin)
            runs.append((result["output_throughput"], run, result, log.read()))
    runs.sort()
    middle = runs[len(runs) // 2]
    steps.append(middle[3])
    return middle[2]


def calibrate(bench, options, folder):
    """Returns the calibration's file and the measured tokens/s at each number of streams."""
    first = bench.measure({"streams": 1, "prompts": 4}, 900)  # warms up
    speed, kept = {1: first["output_throughput"]}, []
    idle = folder / "idle.json"
    for streams in (1, 2, 6, 12):
        guess = speed[max(speed)] * (1 if streams == 1 else 1.3)
        result = middle_run(bench, {"streams": streams, "prompts": prompts_for(options, streams, guess)},
                            900 + 10 * streams, kept)
        speed[streams] = result["output_throughput"]
        if streams == 1:
            idle.write_text(json.dumps(result))
        say(f"calibrating on {streams} streams: {result['output_throughput']:.1f} tokens/s")
    rate = 0.65 * speed[6] / options.output_len
    middle_run(bench, {"rate": round(rate, 4), "prompts": prompts_for(options, 4, 0.65 * speed[6])}, 1050, kept)
    steps = folder / "calibration_steps.jsonl"
    steps.write_bytes(b"".join(kept))
    out = folder / "calibration.json"
    done = subprocess.run([options.binary, "calibrate", options.model, "--step-log", steps, "--idle-result", idle,
                           "--out", out], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(f"calibrate failed: {done.stderr}")
    say(done.stdout)
    return out, speed


def compare(bench, options, calibration, loads):
    rows, good = [], True
    for name, load in loads:
        measured, modelled = [], []
        for run in range(options.runs):
            measured.append(bench.measure(load, 10 + run))
            modelled.append(bench.simulate(load, 10 + run, calibration))
        for key, bound in BOUNDS.items():
            values = [one[key] for one in measured]
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
    parser.add_argument("--seconds", type=float, default=1.5, help="of each run, about")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--calibration-runs", type=int, default=3, help="of each load; the middle one is taken")
    parser.add_argument("--seqs", type=int, default=16)
    parser.add_argument("--threads", type=int, default=0, help="of the server's arithmetic; leave the load generator "
                        "a core of its own where steps are short")
    parser.add_argument("--kv", default="256MiB")
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
            calibration, speed = calibrate(bench, options, folder)
            if options.only_calibrate:
                return 0
            loads = [(f"{n} streams", {"streams": n, "prompts": prompts_for(options, n, speed[near])})
                     for n, near in ((1, 1), (4, 2), (8, 6), (16, 12))]
            for share in (0.3, 0.5, 0.8):
                tokens = share * speed[6]
                loads.append((f"rate {share:.0%}", {"rate": round(tokens / options.output_len, 4),
                                                    "prompts": prompts_for(options, 4, tokens)}))
            rows, good = compare(bench, options, calibration, loads)
        finally:
            bench.close()
        if options.markdown:
            pathlib.Path(options.markdown).write_text(markdown(rows))
        say(f"{'all within bounds' if good else 'NOT all within bounds'}; {time.time() - started:.0f} s")
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
