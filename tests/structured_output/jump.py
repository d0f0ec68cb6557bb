#!/usr/bin/env python3
"""What telling forced tokens saves: steps, tokens/s and tokens an answer, with and without --jump-ahead-tokens, by turns.

usage: jump.py PELTON MODEL BOX_MODEL_TOOLS      By hand, on a quiet machine; half a minute with the model in the box.
"""
import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request

PELTON, MODEL = sys.argv[1:3]
sys.path.insert(0, sys.argv[3])
import corpus  # noqa: E402: tools/box_model
import harmony  # noqa: E402

PERSON = {"type": "object", "properties": {"kind": {"const": "person"}, "first_name": {"type": "string"}, "city_of_residence": {"type": "string"}},
          "required": ["kind", "first_name", "city_of_residence"], "additionalProperties": False}
TICKET = "<ticket>\\n  <queue>(billing|technical-support|sales-department)</queue>\\n  <priority>(low|normal|urgent)</priority>\\n</ticket>"
ROUNDS, ANSWERS = 7, 30


def schema_of(result):
    kinds = {key: {"type": "integer" if isinstance(value, int) else "string"} for key, value in result.items()}
    return {"type": "object", "properties": kinds, "required": list(result), "additionalProperties": False}


class Server:
    def __init__(self, jump):
        self.process = subprocess.Popen([PELTON, "serve", MODEL, "--port", "0", "--threads", "1", "--jump-ahead-tokens", str(jump)],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().split()[2]

    def get(self, path, body=None):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode() if body else None, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=100) as reply:
            return reply.read().decode()

    def steps(self):
        return float(re.search(r"^pelton_engine_steps_total(?:\{[^}]*\})? (\S+)", self.get("/metrics"), re.M).group(1))

    def run(self, bodies):
        steps, begin = self.steps(), time.monotonic()
        replies = [json.loads(self.get("/v1/chat/completions", body)) for body in bodies]
        seconds = time.monotonic() - begin
        tokens = sum(reply["usage"]["completion_tokens"] for reply in replies)
        return {"steps": (self.steps() - steps) / tokens, "tokens/s": tokens / seconds, "answers/s": len(bodies) / seconds,
                "tokens": tokens / len(bodies)}, [reply["choices"][0]["message"]["content"] for reply in replies]


def main():
    tasks, index = [], 0
    while len(tasks) < ANSWERS:
        conversation = corpus.conversation_at(2027, "test", index)
        index += 1
        if isinstance(conversation["score"].get("json"), dict):
            tasks.append(conversation)
    base = {"temperature": 0, "max_completion_tokens": 400}
    wheel = {**base, "messages": [{"role": "user", "content": "What is a Pelton wheel?"}], "reasoning_effort": "low"}
    kinds = {
        "JSON tasks": [{**harmony.to_request(c), **base, "structured_outputs": {"json": schema_of(c["score"]["json"])}} for c in tasks],
        "long keys, constants": [{**wheel, "seed": i, "temperature": 1, "structured_outputs": {"json": PERSON}} for i in range(ANSWERS)],
        "a template": [{**wheel, "seed": i, "temperature": 1, "structured_outputs": {"regex": TICKET}} for i in range(ANSWERS)],
    }
    servers = {jump: Server(jump) for jump in (0, 16)}
    try:
        for name, bodies in kinds.items():
            rounds = [{jump: server.run(bodies) for jump, server in servers.items()} for _ in range(ROUNDS)]
            same = sum(a == b for a, b in zip(rounds[0][0][1], rounds[0][16][1]))
            for jump in servers:
                median = {what: statistics.median(one[jump][0][what] for one in rounds) for what in rounds[0][jump][0]}
                print("%-22s jump %2d  %s" % (name, jump, "  ".join("%s %.3g" % item for item in median.items())))
            ratio = statistics.median(one[16][0]["answers/s"] / one[0][0]["answers/s"] for one in rounds)
            print("%-22s answers/s times %.3f; %d of %d documents the same" % ("", ratio, same, len(bodies)))
    finally:
        for server in servers.values():
            server.process.terminate()
            server.process.wait()


if __name__ == "__main__":
    main()
