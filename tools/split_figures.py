#!/usr/bin/env python3
"""What a split costs its client on this machine: the first token with it against the same worker alone, and the pause where the answer goes
from one worker to the other. Prompts of both ways alternate; medians of their pairs.

usage: tools/split_figures.py BINARY [--prompts N] [--tokens N] [--batch N]
"""
import argparse
import http.client
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import gateway_fixture  # noqa: E402
from gateway_fixture import BOX, Process, ask  # noqa: E402
from ports import free_port  # noqa: E402


def times(port, prompt, tokens):
    """Seconds to the first event of the answer, and between its events."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = json.dumps({"model": "pelton-box", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True})
    begun = time.perf_counter()
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    at = []
    while line := answer.readline():
        if line.startswith(b"data: {"):
            at.append(time.perf_counter())
    connection.close()
    return at[0] - begun, [later - earlier for earlier, later in zip(at, at[1:])]


def gateway(folder, name, key, ports, pool):
    admin = free_port()
    config = pathlib.Path(folder) / f"{name}.toml"
    config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{admin}"\nfleet_key_file = "{key}"\n[[pool]]\nname = "box"\n'
                      f'model = "pelton-box"\ntokenizer = "{BOX}"\n{pool}' +
                      "".join(f'[[worker]]\npool = "box"\nurl = "http://127.0.0.1:{port}"\n' for port in ports))
    process = Process("gateway", "--config", config, "--log-level", "warning")
    end = time.monotonic() + 20
    while True:
        rows = json.loads(ask(admin, "GET", "/v1/workers")[1])["workers"]
        if len(rows) == len(ports) and all(row["state"] == "ready" for row in rows):
            return process, admin
        assert time.monotonic() < end, rows
        time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("--prompts", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=700, help="of each prompt")
    parser.add_argument("--batch", type=int, default=128, help="tokens of a step")
    asked = parser.parse_args()
    gateway_fixture.BINARY = asked.binary
    running = []
    with tempfile.TemporaryDirectory() as folder:
        key = pathlib.Path(folder) / "fleet.key"
        gateway_fixture.subprocess.run([asked.binary, "gateway", "--new-key", key], check=True)
        ports = [free_port(), free_port()]
        try:
            for role, port in zip(("both", "decode"), ports):
                running.append(Process("serve", BOX, "--threads", "1", "--device", "cpu", "--max-model-len", "1024", "--max-num-seqs", "2",
                                       "--max-num-batched-tokens", asked.batch, "--kv-cache-memory", "64MiB", "--swap-space", "64MiB", "--kv-port", "0",
                                       "--port", "0", "--fleet-port", port, "--fleet-name", role, "--fleet-key-file", key, "--fleet-role", role))
            split, admin = gateway(folder, "split", key, ports, 'split = "always"\n')
            alone, _ = gateway(folder, "alone", key, ports[:1], "")
            running += [split, alone]
            draw = random.Random(1)
            firsts, steps, pauses = [], [], []
            for number in range(asked.prompts + 2):
                pair = {}
                for way, process in (("split", split), ("alone", alone))[::1 if number % 2 else -1]:
                    prompt = [draw.randrange(300, 900) for _ in range(asked.tokens)]
                    pair[way] = times(process.port, prompt, 64)
                if number < 2:
                    continue  # their connections are made
                firsts.append((pair["split"][0], pair["alone"][0]))
                steps.append(statistics.median(pair["alone"][1]))
                pauses.append(max(pair["split"][1]))
            metrics = ask(admin, "GET", "/metrics")[1].splitlines()
        finally:
            for one in running[::-1]:
                one.end()
    milli = 1e3
    print(f"first token, split: {statistics.median(one for one, _ in firsts) * milli:.2f} ms; "
          f"alone: {statistics.median(one for _, one in firsts) * milli:.2f} ms; "
          f"difference in pairs, median: {statistics.median(one - other for one, other in firsts) * milli:+.2f} ms")
    print(f"step: {statistics.median(steps) * milli:.2f} ms; longest pause of a split answer, median: {statistics.median(pauses) * milli:.2f} ms, "
          f"worst: {max(pauses) * milli:.2f} ms")
    for line in metrics:
        if line.startswith(("pelton_gateway_splits_total", "pelton_gateway_split_", "pelton_gateway_stream_gap_seconds_sum",
                            "pelton_gateway_stream_gap_seconds_count")):
            print(line)


if __name__ == "__main__":
    main()
