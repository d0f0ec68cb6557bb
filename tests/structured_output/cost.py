#!/usr/bin/env python3
"""What a format adds to a token: CPU time of the whole server, formats by turns, medians of 15 rounds.

usage: cost.py PELTON MODEL      By hand, on a quiet machine; some 20 seconds with the model in the box.
"""
import json
import os
import statistics
import subprocess
import sys
import urllib.request

PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "city": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "city"], "additionalProperties": False}
NUMBERS = {"type": "array", "minItems": 1000, "items": {"type": "number", "minimum": -10, "maximum": 999.5}}
FORMATS = {
    "none": {"ignore_eos": True},
    "objects": {"structured_outputs": {"json": {"type": "array", "minItems": 1000, "items": PERSON}}},
    "a long string": {"structured_outputs": {"json": {"type": "string", "minLength": 5000}}},
    "numbers": {"structured_outputs": {"json": NUMBERS}},
    "any object": {"structured_outputs": {"json": {"type": "object", "minProperties": 500}}},
    "an expression": {"structured_outputs": {"regex": "([a-z]{1,8} ){500}"}},
}
TOKENS = 400
ROUNDS = 15


def main():
    server = subprocess.Popen([sys.argv[1], "serve", sys.argv[2], "--port", "0", "--threads", "1"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    url = server.stdout.readline().split()[2]

    def cpu_us():
        threads = os.listdir("/proc/%d/task" % server.pid)
        return sum(int(open("/proc/%d/task/%s/schedstat" % (server.pid, one)).read().split()[0]) for one in threads) / 1e3

    def token_us(name, seed):
        body = {"messages": [{"role": "user", "content": "I need a JSON object with name and city: Nora Fisher lives in Prague."}],
                "temperature": 1, "seed": seed, "max_completion_tokens": TOKENS, "min_tokens": TOKENS, **FORMATS[name]}
        request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        begin = cpu_us()
        with urllib.request.urlopen(request, timeout=100) as reply:
            tokens = json.load(reply)["usage"]["completion_tokens"]
        return (cpu_us() - begin) / tokens

    try:
        for name in FORMATS:
            token_us(name, 0)
        rounds = [{name: token_us(name, seed) for name in FORMATS} for seed in range(ROUNDS)]
    finally:
        server.terminate()
        server.wait()
    for name in FORMATS:
        print("%-14s %6.1f us a token, %+5.1f" % (name, statistics.median(one[name] for one in rounds),
                                                statistics.median(one[name] - one["none"] for one in rounds)))


if __name__ == "__main__":
    main()
