#!/usr/bin/env python3
"""Asks a chat server one question and prints the answer as it comes.

usage: ask.py [--max-tokens N] URL QUESTION        (URL: http://127.0.0.1:8000)

Reasoning is printed dim on a terminal. Exit code 0 if the answer ended properly, else 1.
"""
import argparse
import json
import os
import sys
import urllib.error
import urllib.request

DIM, PLAIN = "\x1b[2m", "\x1b[0m"


def events(response):
    """Yields the JSON of each server-sent event; ends at [DONE]."""
    for line in response:
        line = line.decode("utf-8").rstrip("\r\n")
        if not line.startswith("data: "):
            continue
        if line == "data: [DONE]":
            return
        yield json.loads(line[len("data: "):])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("url")
    parser.add_argument("question")
    arguments = parser.parse_args()
    request = urllib.request.Request(
        arguments.url + "/v1/chat/completions",
        data=json.dumps({
            "messages": [{"role": "user", "content": arguments.question}],
            "max_completion_tokens": arguments.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }).encode(),
        headers={"Content-Type": "application/json"})
    styled = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    finish, usage, dim = None, None, False
    try:
        with urllib.request.urlopen(request, timeout=600) as response:
            for event in events(response):
                usage = event.get("usage") or usage
                for choice in event.get("choices", []):
                    finish = choice.get("finish_reason") or finish
                    delta = choice.get("delta", {})
                    thought = delta.get("reasoning_content") or delta.get("reasoning")
                    for text, is_thought in ((thought, True), (delta.get("content"), False)):
                        if not text:
                            continue
                        if is_thought != dim:
                            dim = is_thought
                            sys.stdout.write((DIM if dim else PLAIN + "\n") if styled else "\n")
                        shown = "".join(c for c in text if c in "\n\t" or c.isprintable())
                        sys.stdout.write(shown)
                        sys.stdout.flush()
    except urllib.error.HTTPError as error:
        sys.exit(f"ask: {error.code}: {error.read().decode(errors='replace')}")
    except OSError as error:
        sys.exit(f"ask: {arguments.url}: {error}")
    print(PLAIN if styled else "")
    if finish is None:
        sys.exit("ask: the answer broke off")
    if usage:
        print(f"({usage['prompt_tokens']} tokens in, {usage['completion_tokens']} tokens out, "
              f"finish_reason {finish})", file=sys.stderr)


if __name__ == "__main__":
    main()
