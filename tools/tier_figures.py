#!/usr/bin/env python3
"""What the tiers of the prefix cache are worth on this machine: the first token of a prompt of which most is found on the host, on the disk or at
a peer, against all of it computed; and what steps take while the disk is written and read. Medians; ways alternate.

usage: tools/tier_figures.py BINARY MODEL [--prompts N] [--tokens 8000] [--shared 7500] [--folder DIR]

MODEL has a context of --tokens and 32 more. DIR (default: TMPDIR) is on the disk that is meant. Nothing else should run.
"""
import argparse
import http.client
import json
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import gateway_fixture  # noqa: E402
import kv_peers_test as peers  # noqa: E402
from gateway_fixture import Process, ask  # noqa: E402


class Asking:
    def __init__(self, arguments):
        self.arguments = arguments
        self.draw = random.Random(1)

    def prefix(self):
        return [self.draw.randrange(300, 900) for _ in range(self.arguments.shared)]

    def prompt(self, prefix):
        return prefix + [self.draw.randrange(300, 900) for _ in range(self.arguments.tokens - len(prefix))]

    def first(self, port, prompt, model):
        """Seconds to the first event, and tokens that were found, by tier."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        body = {"model": model, "prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}
        begun = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        at, usage = None, {}
        while line := answer.readline():
            if line.startswith(b"data: {"):
                at = at or time.perf_counter()
                usage = json.loads(line[6:]).get("usage") or usage
        connection.close()
        details = usage.get("prompt_tokens_details") or {}
        return at - begun, details.get("cached_tokens_details") or {"device": details.get("cached_tokens", 0)}


def of_one_server(asking, tier, flags):
    """Two prefixes in turn, of which the device holds one: the other comes from the tier."""
    arguments = asking.arguments
    server = Process("serve", arguments.model, "--served-model-name", "m", "--port", "0", "--device", "cpu", "--max-num-seqs", "1",
                     "--max-model-len", arguments.tokens + 32, *flags)
    try:
        cold, warm, found = [], [], []
        prefixes = [asking.prefix() for _ in range(3)]
        for prefix in prefixes:
            cold.append(asking.first(server.port, asking.prompt(prefix), "m")[0])
        time.sleep(2)  # what is to be written is
        for number in range(arguments.prompts):
            seconds, by = asking.first(server.port, asking.prompt(prefixes[number % 3]), "m")
            cold.append(asking.first(server.port, asking.prompt(asking.prefix()), "m")[0])
            if by.get(tier, 0) > arguments.shared // 2:
                warm.append(seconds)
                found.append(by[tier])
        return report(tier, cold, warm, found)
    finally:
        server.end()


def of_a_peer(asking, folder, flags):
    arguments = asking.arguments
    peers.COMMON = ("--device", "cpu", "--max-model-len", str(arguments.tokens + 32), "--max-num-seqs", "1")
    fleet = peers.PeerFleet(folder, 2, serve=(*flags, "--kv-port", "0"), pool=f'tokenizer = "{gateway_fixture.BOX}"\n')
    try:
        cold, warm, found = [], [], []
        for _ in range(arguments.prompts):
            prefix = asking.prefix()
            fleet.only(0)
            cold.append(asking.first(fleet.gateway.port, asking.prompt(prefix), "pelton-box")[0])
            fleet.wait_until_announced(0)
            fleet.only(1)
            seconds, by = asking.first(fleet.gateway.port, asking.prompt(prefix), "pelton-box")
            if by.get("peer", 0) > arguments.shared // 2:
                warm.append(seconds)
                found.append(by["peer"])
        return report("peer", cold, warm, found)
    finally:
        fleet.close()


def report(tier, cold, warm, found):
    if not warm:
        return f"{tier}: nothing was found there (computing may have been quicker); cold {statistics.median(cold) * 1e3:.1f} ms"
    return (f"{tier}: {statistics.median(warm) * 1e3:.1f} ms of {statistics.median(cold) * 1e3:.1f} ms cold: "
            f"{statistics.median(warm) / statistics.median(cold):.3f}, {statistics.median(found):.0f} tokens found, {len(warm)} times")


def gaps_beside(asking, flags):
    """p99 of the pauses of one answer while prompts come and go."""
    arguments = asking.arguments
    server = Process("serve", arguments.model, "--served-model-name", "m", "--port", "0", "--device", "cpu", "--max-num-seqs", "2",
                     "--max-model-len", arguments.tokens + 32, *flags)
    over = threading.Event()

    def churn():
        prefixes = [asking.prefix()[:arguments.shared // 8] for _ in range(8)]
        while not over.is_set():
            for prefix in prefixes:
                ask(server.port, "POST", "/v1/completions", {"model": "m", "prompt": prefix, "max_tokens": 1})
    beside = threading.Thread(target=churn)
    try:
        beside.start()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
        body = {"model": "m", "prompt": [300, 301], "max_tokens": arguments.tokens // 2, "temperature": 0, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer, at = connection.getresponse(), []
        while line := answer.readline():
            if line.startswith(b"data: {"):
                at.append(time.perf_counter())
        gaps = sorted(later - earlier for earlier, later in zip(at, at[1:]))
        return gaps[len(gaps) * 99 // 100] * 1e3
    finally:
        over.set()
        beside.join()
        server.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--shared", type=int, default=7500)
    parser.add_argument("--folder", help="on the disk that is meant")
    parser.add_argument("--device-memory", default="64MiB", help="of the KV cache: for one prompt, not for two")
    parser.add_argument("--host-memory", default="1GiB")
    arguments = parser.parse_args()
    gateway_fixture.BINARY = str(pathlib.Path(arguments.binary).resolve())
    asking = Asking(arguments)
    device = ("--kv-cache-memory", arguments.device_memory)
    host = (*device, "--swap-space", arguments.host_memory)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        disk = (*device, "--swap-space", arguments.device_memory, "--kv-disk", folder, "--kv-disk-size", "4GiB", "--kv-disk-write", "all")
        print(of_one_server(asking, "host", host), flush=True)
        print(of_one_server(asking, "disk", disk), flush=True)
        for flags, name in ((host, "without a disk"), (disk, "while a disk is written and read")):
            print(f"pauses of an answer {name}: p99 {gaps_beside(asking, flags):.2f} ms", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        print(of_a_peer(asking, folder, ("--kv-cache-memory", arguments.host_memory, "--swap-space", arguments.host_memory)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
