#!/usr/bin/env python3
"""Documents that the served model finishes for schemas, as JSON Lines {schema, text}.

usage: ask.py PELTON MODEL SCHEMAS COUNT      Fails if fewer than nine of ten end by themselves, or if one is
refused, or if what is streamed is not what is sent whole.
"""
import concurrent.futures
import json
import subprocess
import sys
import urllib.request

PELTON, MODEL, SCHEMAS = sys.argv[1:4]
COUNT = int(sys.argv[4])


def post(url, body):
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as reply:
        return reply.read().decode()


def streamed(url, body):
    """Content and finish reason of the stream."""
    content, reason = "", None
    for line in post(url, dict(body, stream=True)).splitlines():
        if not line.startswith("data: {"):
            continue
        choice = json.loads(line[6:])["choices"][0]
        content += choice["delta"].get("content") or ""
        reason = choice.get("finish_reason") or reason
    return content, reason


def ask(url, schemas, index):
    which = index % len(schemas)
    body = {"messages": [{"role": "user", "content": "I need a JSON object with name and city: Nora Fisher lives in Prague."}],
            "temperature": 2, "seed": index, "max_completion_tokens": 3000,
            "response_format": {"type": "json_schema", "json_schema": {"name": "it", "strict": True, "schema": schemas[which]}}}
    choice = json.loads(post(url, body))["choices"][0]
    said = choice["message"]["content"] or "", choice["finish_reason"]
    if index % 5 == 0 and streamed(url, body) != said:
        raise AssertionError("streamed: %r, whole: %r" % (streamed(url, body), said))
    if said[1] not in ("stop", "length"):
        raise AssertionError("finish_reason: %r" % (said,))
    return {"schema": which, "text": said[0]} if said[1] == "stop" else None


def main():
    with open(SCHEMAS, encoding="utf-8") as file:
        schemas = json.load(file)
    server = subprocess.Popen([PELTON, "serve", MODEL, "--port", "0", "--threads", "1", "--max-num-seqs", "4"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = server.stdout.readline().split()[2]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            documents = list(pool.map(lambda index: ask(url, schemas, index), range(COUNT)))
    finally:
        server.terminate()
        server.wait()
    finished = [document for document in documents if document]
    for document in finished:
        print(json.dumps(document))
    print("%d of %d finished" % (len(finished), COUNT), file=sys.stderr)
    return 0 if len(finished) >= 0.9 * COUNT else 1


if __name__ == "__main__":
    sys.exit(main())
