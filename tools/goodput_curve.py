#!/usr/bin/env python3
"""What a server answers in time when it is asked for more than it can give, and how soon it refuses the rest.

Starts `pelton serve` with steps of a fixed length and no model (16 slots, 4 ms a step, answers of some 50 tokens), measures
what it can serve (a closed loop of 16), asks it with `pelton bench serve` in an open loop at 0.5 to 3 times that, and
prints answers a second that were in time. A prober beside it measures how long a refusal takes. docs/log/performance-2026.md has
the table.

usage: goodput_curve.py BINARY [--model FOLDER] [--slo-ms 1000] [--seconds 6] [--times 0.5,1,1.5,2,3] [--bound deadline|wait|none]
"""
import argparse
import http.client
import json
import pathlib
import subprocess
import tempfile
import threading
import time

SEATS, STEP_MS, OUTPUT = 16, 4, 50


def serve(options, folder):
    binary, bound, slo_ms = options.binary, options.bound, options.slo_ms
    root = pathlib.Path(__file__).resolve().parent.parent
    what = [options.model]
    if options.model is None:
        what = [f"{folder}/model", "--executor", f"modelled:{folder}/script.json"]
        subprocess.run([binary, "synth", "--like", str(root / "testdata/demo_model.json"), what[0]], check=True,
                       capture_output=True)
    script = {"step_ms": STEP_MS, "rules": [{"when": "", "then": [{"text": "on and on ", "times": 2000}]}]}
    pathlib.Path(folder, "script.json").write_text(json.dumps(script))
    flags = {"deadline": [], "wait": ["--max-queue-seconds", str(slo_ms / 2000)],
             "none": ["--max-queue-seconds", "0", "--max-num-queued-reqs", "100000"]}[bound]
    server = subprocess.Popen([binary, "serve", *what, "--port", "0", "--max-num-seqs", str(SEATS), *flags], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    return server, int(server.stdout.readline().decode().rsplit(":", 1)[1])


class Prober(threading.Thread):
    """One request after the other, refused or not, for as long as it runs."""

    def __init__(self, port, slo_ms, says_deadline):
        super().__init__(daemon=True)
        self.says_deadline = says_deadline
        self.port, self.slo_ms, self.refusals_ms, self.retry_s, self.stop = port, slo_ms, [], set(), False

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = {"prompt": "a " * 50, "max_tokens": OUTPUT}
        if self.says_deadline:
            body["timeout"] = self.slo_ms / 1000
        body = json.dumps(body)
        while not self.stop:
            began = time.perf_counter()
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            if response.status == 429:
                self.refusals_ms.append((time.perf_counter() - began) * 1e3)
                self.retry_s.add(int(response.headers["Retry-After"]))
            time.sleep(0.005)


def bench(options, port, *flags):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.binary, "bench", "serve", "--port", str(port), "--random-input-len", "50",
                        "--random-output-len", str(OUTPUT), "--random-range-ratio", "0.3", "--save-result", "--result-dir",
                        folder, "--result-filename", "result.json", "--disable-tqdm", "--timeout-sec", "120", *flags],
                       capture_output=True, check=False)
        return json.loads(pathlib.Path(folder, "result.json").read_text())


def measure(options, port, rate):
    prober = Prober(port, options.slo_ms, options.bound == "deadline")
    prober.start()
    objective = f"e2el:{options.slo_ms}" if options.bound == "deadline" else f"ttft:{options.slo_ms}"
    deadline = ["--header", f"x-request-timeout-ms={options.slo_ms}"] if options.bound == "deadline" else []
    result = bench(options, port, "--request-rate", str(rate), "--num-prompts", str(int(rate * options.seconds)), "--goodput",
                   objective, *deadline)
    prober.stop = True
    prober.join()
    refusals = sorted(prober.refusals_ms)
    return result, refusals, prober.retry_s


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("--model", help="a real one instead, with whatever computes it")
    parser.add_argument("--slo-ms", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--times", default="0.5,1,1.5,2,3")
    parser.add_argument("--bound", choices=("deadline", "wait", "none"), default="deadline")
    options = parser.parse_args()
    peak, last = 0.0, 0.0
    print("load    asked/s  in time/s  completed  refused   refusal p50  p99 ms   Retry-After")
    with tempfile.TemporaryDirectory() as folder:
        server, port = serve(options, folder)
        try:
            capacity = bench(options, port, "--max-concurrency", str(SEATS), "--num-prompts", str(SEATS * 8))[
                "request_throughput"]
            for times in map(float, options.times.split(",")):
                result, refusals, retry_s = measure(options, port, capacity * times)
                good = result["request_goodput"]
                peak, last = max(peak, good), good
                spent = [f"{refusals[len(refusals) * share // 100]:8.1f}" for share in (50, 99)] if refusals else ["-"] * 2
                retries = f"{min(retry_s)}..{max(retry_s)} s" if retry_s else "-"
                print(f"{times:4.2f} {capacity * times:9.1f} {good:10.1f} {result['completed']:10d} {result['failed']:8d} "
                      f"{spent[0]:>12} {spent[1]:>9}   {retries}", flush=True)
        finally:
            server.terminate()
            server.wait(60)
    print(f"at the last load: {last / peak:.0%} of the peak")


if __name__ == "__main__":
    main()
