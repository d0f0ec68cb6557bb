#!/usr/bin/env python3
"""Files and batches of a running server, and `pelton run-batch`: processes that are killed amid a batch, and each
custom_id in the output once all the same; the folder's owner and bound; what live requests see meanwhile.
1 000 lines here; 10 000 with $PELTON_FULL.

usage: batches_test.py BINARY
"""
import collections
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from tiers import FULL

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None
LINES = 10_000 if FULL else 1_000
SCRIPT = {"step_ms": 1, "slots": 16, "blocks": 2000, "context": 4096, "rules": [
    {"when": "", "then": "<|channel|>final<|message|>Hi.<|return|>"},
    {"when": "count for ", "then": ["<|channel|>final<|message|>", {"counted": 1}, "<|return|>"]}]}


def line_of(custom_id, content, **more):
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions",
                       "body": {"messages": [{"role": "user", "content": content}], **more}})


def counted_input(count, tokens=3):
    """Each answer says whose it is: "17a0 17a1 17a2 "."""
    lines = [line_of(f"c{i}", f"count for {i} {tokens} 0 .") for i in range(count - 1)]
    return "\n".join([*lines, line_of("bad", "Hello", temperature=9)]) + "\n"


def read_lines(text):
    lines = [json.loads(line) for line in text.splitlines()]
    counts = collections.Counter(line["custom_id"] for line in lines)
    twice = [custom_id for custom_id, count in counts.items() if count != 1]
    assert not twice, f"more than once: {twice[:10]}"
    return {line["custom_id"]: line for line in lines}


class Batches(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="pelton_batches_")
        cls.folder = pathlib.Path(cls.temporary.name)
        (cls.folder / "script.json").write_text(json.dumps(SCRIPT))
        subprocess.run([BINARY, "synth", "--like", ROOT / "testdata/demo_model.json", cls.folder / "model"], check=True,
                       capture_output=True, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def serve(self, folder, *flags):
        log = open(self.folder / "log", "a", encoding="utf-8")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [BINARY, "serve", self.folder / "model", "--port", "0", "--executor", f"modelled:{self.folder}/script.json",
             "--batches", folder, *flags], stdout=subprocess.PIPE, stderr=log, text=True)

        def end():
            process.kill()
            process.wait(30)
            process.stdout.close()
        self.addCleanup(end)
        listening = process.stdout.readline()
        self.assertIn("listening on ", listening, (self.folder / "log").read_text()[-2000:])
        return process, listening.split()[-1]

    def ask(self, method, url, body=None, headers=None):
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        request = urllib.request.Request(url, data=data, method=method,
                                         headers={"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def upload(self, url, content, headers=None):
        body = ("--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--XX\r\nContent-Disposition: "
                f"form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n{content}\r\n--XX--\r\n").encode()
        status, text = self.ask("POST", url + "/v1/files", body,
                                {"Content-Type": "multipart/form-data; boundary=XX", **(headers or {})})
        self.assertEqual(status, 200, text)
        return json.loads(text)["id"]

    def create(self, url, file, headers=None):
        status, text = self.ask("POST", url + "/v1/batches", {
            "input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}, headers)
        self.assertEqual(status, 200, text)
        return json.loads(text)["id"]

    def wait_for(self, url, batch, reached, seconds=600):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            now = json.loads(self.ask("GET", f"{url}/v1/batches/{batch}")[1])
            if reached(now):
                return now
            time.sleep(0.02)
        self.fail(f"not reached: {now}")

    def check_output(self, lines, errors, count, tokens=3):
        self.assertEqual(set(lines), {f"c{i}" for i in range(count - 1)})
        self.assertEqual(set(errors), {"bad"})
        for i in range(count - 1):
            answer = lines[f"c{i}"]["response"]
            self.assertEqual(answer["status_code"], 200)
            content = answer["body"]["choices"][0]["message"]["content"]
            self.assertEqual(content, "".join(f"{i}a{n} " for n in range(tokens)), "another line's answer")
        self.assertEqual(errors["bad"]["response"]["status_code"], 400)

    def test_killed_three_times_each_line_is_answered_once(self):
        folder = self.folder / "killed"
        process, url = self.serve(folder)
        batch = self.create(url, self.upload(url, counted_input(LINES)))
        for share in (0.1, 0.4, 0.7):
            self.wait_for(url, batch, lambda now, share=share: now["request_counts"]["completed"] >= share * LINES)
            process.send_signal(signal.SIGKILL)
            process.wait(30)
            process, url = self.serve(folder)
        now = self.wait_for(url, batch, lambda now: now["status"] not in ("in_progress", "finalizing"))
        self.assertEqual(now["status"], "completed", now)
        self.assertEqual(now["request_counts"], {"total": LINES, "completed": LINES - 1, "failed": 1})
        content = lambda file: self.ask("GET", f"{url}/v1/files/{file}/content")[1]  # noqa: E731
        self.check_output(read_lines(content(now["output_file_id"])), read_lines(content(now["error_file_id"])), LINES)
        # And it ends as it should, with a batch that runs.
        self.create(url, self.upload(url, counted_input(500)))
        process.terminate()
        self.assertEqual(process.wait(60), 0)

    def test_one_process_has_the_folder(self):
        folder = self.folder / "taken"
        self.serve(folder)
        second = subprocess.run([BINARY, "serve", self.folder / "model", "--port", "0", "--executor",
                                 f"modelled:{self.folder}/script.json", "--batches", folder],
                                capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(second.returncode, 3, second.stderr)
        self.assertIn("batches.sqlite", second.stderr)

    def test_live_requests_go_first(self):
        _, url = self.serve(self.folder / "live", "--max-num-queued-reqs", "4", "--max-batch-requests", "64")
        lines = "\n".join(line_of(f"c{i}", f"count for {i} 60 0 .") for i in range(300))
        batch = self.create(url, self.upload(url, lines))
        for _ in range(20):
            status, text = self.ask("POST", url + "/v1/chat/completions",
                                    {"messages": [{"role": "user", "content": "Hello"}]})
            self.assertEqual(status, 200, text)
        now = self.wait_for(url, batch, lambda now: now["status"] == "completed")
        self.assertEqual(now["request_counts"]["completed"], 300)  # refused ones were asked again

    def test_keys_see_their_own_over_a_restart(self):
        (self.folder / "keys").write_text("sk-a\nsk-b\n")
        folder = self.folder / "keyed"
        a, b = ({"Authorization": f"Bearer sk-{name}"} for name in "ab")
        process, url = self.serve(folder, "--api-key-file", self.folder / "keys")
        file = self.upload(url, line_of("c", "Hello"), a)
        process.kill()
        process.wait(30)
        _, url = self.serve(folder, "--api-key-file", self.folder / "keys")
        self.assertEqual(self.ask("GET", f"{url}/v1/files/{file}", headers=a)[0], 200)
        self.assertEqual(self.ask("GET", f"{url}/v1/files/{file}", headers=b)[0], 404)
        self.assertEqual(self.ask("GET", f"{url}/v1/files/{file}")[0], 401)

    # pelton run-batch

    def run_batch(self, *words, **more):
        return subprocess.Popen([BINARY, "run-batch", self.folder / "model", "--executor",
                                 f"modelled:{self.folder}/script.json", *map(str, words)],
                                stderr=subprocess.PIPE, text=True, **more)

    def test_run_batch_killed_three_times(self):
        source, out = self.folder / "in.jsonl", self.folder / "out.jsonl"
        count, tokens = LINES, 8
        source.write_text(counted_input(count, tokens))
        draw = random.Random(7)
        for _ in range(3):
            process = self.run_batch("-i", source, "-o", out)
            time.sleep(0.4 + draw.random() * 0.3)
            process.send_signal(signal.SIGKILL)
            process.wait(30)
            process.stderr.close()
            self.assertFalse(out.exists(), "it was through before it was killed")
        process = self.run_batch("-i", source, "-o", out, "--overwrite")
        said = process.communicate(timeout=600)[1]
        self.assertEqual(process.returncode, 0, said)
        self.assertIn(f"{count - 1} answered, 1 with an error", said)
        lines = read_lines(out.read_text())
        self.check_output({name: line for name, line in lines.items() if name != "bad"}, {"bad": lines["bad"]}, count,
                          tokens)
        self.assertFalse(pathlib.Path(f"{out}.journal").exists())

    def test_run_batch_refuses_by_name(self):
        source, out = self.folder / "odd.jsonl", self.folder / "odd_out.jsonl"
        source.write_text(line_of("a", "Hello") + "\nnonsense\n")
        process = self.run_batch("-i", source, "-o", out)
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 2, said)
        self.assertIn("line 2", said)
        self.assertFalse(out.exists())
        self.assertFalse(pathlib.Path(f"{out}.journal").exists())
        out.write_text("mine")
        source.write_text(line_of("a", "Hello"))
        process = self.run_batch("-i", source, "-o", out)
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 2, said)
        self.assertIn("--overwrite", said)
        self.assertEqual(out.read_text(), "mine")

    def test_run_batch_goes_on_after_ctrl_c_with_the_same_input_only(self):
        source, out = self.folder / "stop.jsonl", self.folder / "stop_out.jsonl"
        source.write_text("\n".join(line_of(f"c{i}", f"count for {i} 900 0 .") for i in range(200)))
        process = self.run_batch("-i", source, "-o", out)
        while not pathlib.Path(f"{out}.journal/batches.sqlite").exists():
            time.sleep(0.05)
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        self.assertNotEqual(process.returncode, 0, said)
        self.assertIn("goes on", said)
        source.write_text(line_of("other", "Hello"))
        process = self.run_batch("-i", source, "-o", out)
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 2, said)
        self.assertIn("another input", said)


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
