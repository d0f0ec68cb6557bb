#!/usr/bin/python3
"""Held-out conversations as files of tasks for `pelton eval`, one for each task.

usage: eval_tasks.py [--count N] [--seed N] [--query] FOLDER      prints what --tasks takes

    pelton eval models/pelton-box --serve-flag=--current-date --serve-flag=2026-11-21 --max-tokens 400 \\
        --tasks $(tools/box_model/eval_tasks.py --count 200 /tmp/held-out)

`evaluate` is that in one command. A wording that training has not seen is in a set of its own (add_new beside add).
"""
import argparse
import collections
import json
import os

import corpus
import harmony
import query_tasks
from evaluate_settings import DATE, SEED


def expectation(score):
    """How an answer is judged: the `score` of tasks.py in pelton eval's words."""
    if "call" in score:
        return {"calls": [{"name": score["call"][0], "arguments": score["call"][1]}]}
    if "final" in score:
        return {"text": score["final"]}
    if "number" in score:
        return {"number": score["number"]}
    if "json" in score:
        return {"json": score["json"]}
    return {"text": "Today is %s." % DATE}


def write_files(folder, source, seed, count):
    """The files of `count` conversations, a set each."""
    lines = collections.defaultdict(list)
    for i in range(count):
        conversation = source.conversation_at(seed, "test", i)
        lines[conversation["task"] + (" new" if conversation["new_wording"] else "")].append(json.dumps(
            {"id": str(i), **harmony.to_request(conversation), "expect": expectation(conversation["score"])}, ensure_ascii=False))
    os.makedirs(folder, exist_ok=True)
    files = []
    for task, all_lines in sorted(lines.items()):
        files.append(os.path.join(folder, task.replace(" ", "_") + ".jsonl"))
        with open(files[-1], "w", encoding="utf-8") as file:
            file.write("\n".join(all_lines) + "\n")
    return files


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--query", action="store_true", help="the adapter's task instead of the model's")
    parser.add_argument("folder")
    arguments = parser.parse_args()
    source = query_tasks if arguments.query else corpus
    print(",".join(write_files(arguments.folder, source, arguments.seed, arguments.count)))


if __name__ == "__main__":
    main()
