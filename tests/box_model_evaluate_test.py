#!/usr/bin/env python3
"""The held-out tasks of the model in the box as `pelton eval` judges them: what was expected is right, anything else is not; and the
model itself by tools/box_model/evaluate.

usage: box_model_evaluate_test.py PELTON MODEL_FOLDER
"""
import http.server
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest

PELTON, MODEL = sys.argv[1:3]
TOOLS = pathlib.Path(__file__).resolve().parent.parent / "tools" / "box_model"
sys.path.insert(0, str(TOOLS))
import corpus  # noqa: E402
import eval_tasks  # noqa: E402
import harmony  # noqa: E402
import query_tasks  # noqa: E402

COUNT = 300


def message_of(conversation):
    """The answer that training would have shown, as a server says it."""
    target = next(message for message in conversation["messages"] if message.get("train"))
    if not target.get("call"):
        return {"role": "assistant", "content": target["content"]}
    name, arguments = target["call"]
    return {"role": "assistant", "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}]}


def spoiled(message):
    """A message that no task expects."""
    if message.get("tool_calls"):
        return {**message, "tool_calls": [{**message["tool_calls"][0], "function": {"name": "nothing", "arguments": "{}"}}]}
    return {**message, "content": "Nothing of the kind."}


class Oracle:
    """Answers each conversation as expected, or not at all so."""

    def __init__(self, conversations, change):
        known = {json.dumps(harmony.to_request(c)["messages"], sort_keys=True): change(message_of(c)) for c in conversations}

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.say({"object": "list", "data": [{"id": "oracle", "object": "model"}]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                message = known[json.dumps(body["messages"], sort_keys=True)]
                reason = "tool_calls" if message.get("tool_calls") else "stop"
                self.say({"id": "a", "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": reason}]})

            def say(self, value):
                text = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self.url

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class HeldOut(unittest.TestCase):
    def judged(self, source, change, bound):
        with tempfile.TemporaryDirectory() as folder:
            conversations = [source.conversation_at(eval_tasks.SEED, "test", i) for i in range(COUNT)]
            for conversation in conversations:
                conversation["date"] = eval_tasks.DATE
                target = next(message for message in conversation["messages"] if message.get("train"))
                if target.get("content", "") and target["content"].startswith("Today is "):
                    target["content"] = "Today is %s." % eval_tasks.DATE
            files = eval_tasks.write_files(folder, source, eval_tasks.SEED, COUNT)
            with Oracle(conversations, change) as url:
                done = subprocess.run([PELTON, "eval", "--base-url", url, "--tasks", ",".join(files), "--fail-if", bound],
                                      capture_output=True, text=True, timeout=200, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"\nall +%d " % COUNT)

    def test_what_was_expected_is_right(self):
        for source in (corpus, query_tasks):
            with self.subTest(source=source.__name__):
                self.judged(source, lambda message: message, "score<1")

    def test_anything_else_is_wrong(self):
        self.judged(corpus, spoiled, "score>0")

    def test_the_model_is_asked(self):
        done = subprocess.run([TOOLS / "evaluate", "--pelton", PELTON, "--count", "40", MODEL, "--", "--fail-if", "score<0.8"],
                              capture_output=True, text=True, timeout=200, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(re.search(r"\npelton_new +\d+ ", done.stdout), done.stdout)
        self.assertRegex(done.stdout, r"\nall +40 ")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
