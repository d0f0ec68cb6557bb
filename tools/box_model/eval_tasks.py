#!/usr/bin/python3
"""Held-out conversations as files of tasks for `pelton eval`, one for each task.

usage: eval_tasks.py [--count N] [--seed N] [--query] FOLDER      prints what --tasks takes

    pelton eval models/pelton-box --serve-flag=--current-date --serve-flag=2026-11-21 --max-tokens 400 \\
        --tasks $(tools/box_model/eval_tasks.py --count 200 /tmp/held-out)

`evaluate` says besides whether answers are proper Harmony.
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
    """What score.py judges, in pelton eval's words."""
    if "call" in score:
        return {"calls": [{"name": score["call"][0], "arguments": score["call"][1]}]}
    if "final" in score:
        return {"text": score["final"]}
    if "number" in score:
        return {"number": score["number"]}
    if "json" in score:
        return {"json": score["json"]}
    return {"text": "Today is %s." % DATE}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--query", action="store_true", help="the adapter's task instead of the model's")
    parser.add_argument("folder")
    arguments = parser.parse_args()
    source = query_tasks if arguments.query else corpus
    lines = collections.defaultdict(list)
    for i in range(arguments.count):
        conversation = source.conversation_at(arguments.seed, "test", i)
        lines[conversation["task"]].append(json.dumps({"id": str(i), **harmony.to_request(conversation),
                                                       "expect": expectation(conversation["score"])}, ensure_ascii=False))
    os.makedirs(arguments.folder, exist_ok=True)
    files = []
    for task, all_lines in sorted(lines.items()):
        files.append(os.path.join(arguments.folder, task.replace(" ", "_") + ".jsonl"))
        with open(files[-1], "w", encoding="utf-8") as file:
            file.write("\n".join(all_lines) + "\n")
    print(",".join(files))


if __name__ == "__main__":
    main()
