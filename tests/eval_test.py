"""`pelton eval` and `pelton perplexity` as a user meets them.

usage: eval_test.py BINARY
"""
import http.server
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from ports import free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = ""
BOX = os.path.join(ROOT, "models", "pelton-box")
TINY = os.path.join(ROOT, "testdata", "golden", "tiny")


def pelton(*words, code=0):
    done = subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def read_npy(file):
    """Float32 (rows, columns) as lists."""
    with open(file, "rb") as opened:
        data = opened.read()
    length = struct.unpack("<H", data[8:10])[0]
    header = data[10:10 + length].decode()
    shape = [int(n) for n in header[header.index("(") + 1:header.index(")")].split(",") if n.strip()]
    values = struct.unpack("<%df" % (shape[0] * shape[1]), data[10 + length:])
    return [values[row * shape[1]:(row + 1) * shape[1]] for row in range(shape[0])]


class Perplexity(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        with open(os.path.join(TINY, "tokens.json"), encoding="utf-8") as file:
            known = json.load(file)
        self.ids = (known["prompt"] + known["continuation"])[:90]
        self.tokens = os.path.join(self.folder.name, "ids.json")
        with open(self.tokens, "w", encoding="utf-8") as file:
            json.dump(self.ids, file)

    def of(self, *flags):
        return json.loads(pelton("perplexity", TINY, "--tokens", self.tokens, "--json", *flags))

    def nats_of_logits(self, window, stride):
        """The same by `pelton logits` and Python's own arithmetic, window by window."""
        total, count, begin, predicted = 0.0, 0, 0, 1
        while predicted < len(self.ids):
            end = min(begin + window, len(self.ids))
            part, out = os.path.join(self.folder.name, "part.json"), os.path.join(self.folder.name, "l.npy")
            with open(part, "w", encoding="utf-8") as file:
                json.dump(self.ids[begin:end], file)
            pelton("logits", TINY, "--tokens", part, "--out", out, "--kernels", "reference")
            rows = read_npy(out)
            for position in range(max(predicted, begin + 1), end):
                row = rows[position - 1 - begin]
                most = max(row)
                total += most + math.log(sum(math.exp(one - most) for one in row)) - row[self.ids[position]]
                count += 1
            predicted, begin = end, begin + stride
        return total / count, count

    def test_is_what_logits_say_in_any_windows(self):
        for window, stride in ((90, 90), (40, 40), (48, 16)):
            with self.subTest(window=window, stride=stride):
                found = self.of("--kernels", "reference", "--window", str(window), "--stride", str(stride))
                nats, count = self.nats_of_logits(window, stride)
                self.assertEqual(found["tokens"], count)
                self.assertAlmostEqual(found["nats_per_token"], nats, delta=1e-5)
                self.assertAlmostEqual(found["perplexity"], math.exp(found["nats_per_token"]), delta=1e-9)

    def test_another_form_is_as_far_as_it_is(self):
        same = self.of("--against", TINY)
        self.assertEqual((same["kl_max"], same["agreement"], same["other_perplexity"]), (0, 1, same["perplexity"]))
        eighth = self.of("--against-kv-cache-dtype", "int8")
        self.assertGreater(eighth["kl_mean"], 0)
        self.assertLessEqual(eighth["kl_mean"], eighth["kl_p99"])
        self.assertLessEqual(eighth["kl_p99"], eighth["kl_max"])
        packed = self.of("--against-weights", "shipped")
        self.assertLess(packed["kl_mean"], 0.1)

    def test_what_is_wrong_is_said(self):
        empty = os.path.join(self.folder.name, "empty.txt")
        with open(empty, "w", encoding="utf-8"):
            pass
        self.assertIn("two tokens", pelton("perplexity", BOX, "--text", empty, code=2))
        self.assertIn("stride", pelton("perplexity", TINY, "--tokens", self.tokens, "--window", "8", "--stride", "9", code=2))
        with open(self.tokens, "w", encoding="utf-8") as file:
            json.dump([1, 10**6], file)
        self.assertIn("vocabulary", pelton("perplexity", TINY, "--tokens", self.tokens, code=2))
        self.assertIn("--text", pelton("perplexity", TINY, code=2))


class Eval(unittest.TestCase):
    def test_a_model_is_asked_and_compared(self):
        with tempfile.TemporaryDirectory() as folder:
            out, page = os.path.join(folder, "a.json"), os.path.join(folder, "a.html")
            tasks = os.path.join(folder, "mine.jsonl")
            with open(tasks, "w", encoding="utf-8") as file:
                file.write('{"prompt": "What is 3 plus 4?", "expect": {"number": 7}}\n')
                file.write('{"question": "2 and 2?", "answer": "#### 5"}\n')
            words = ["eval", BOX, "--tasks", "arithmetic,%s" % tasks, "--num-tasks", "6", "--max-tokens", "200"]
            text = pelton(*words, "--out", out, "--html", page)
            self.assertIn("mine", text)
            self.assertFalse(os.path.exists(out + ".partial"))
            with open(out, encoding="utf-8") as file:
                result = json.load(file)
            self.assertEqual([one["set"] for one in result["scores"]], ["arithmetic", "mine", "all"])
            self.assertEqual(len(result["outcomes"]), 8)
            self.assertFalse([one for one in result["outcomes"] if "error" in one])
            self.assertTrue(result["outcomes"][6]["right"], result["outcomes"][6])
            with open(page, encoding="utf-8") as file:
                self.assertIn("Evaluation of", file.read())
            again = os.path.join(folder, "b.json")
            pelton(*words, "--out", again, "--against", out, "--fail-if", "drop>0", "p<0.5")
            with open(out, "rb") as first, open(again, "rb") as second:
                self.assertEqual(first.read(), second.read())
            self.assertIn("score<1", pelton(*words, "--fail-if", "score<1", code=1))

    def test_a_server_that_restarts_twice_gives_the_same_file(self):
        port = str(free_port())

        def started():
            server = subprocess.Popen([BINARY, "serve", BOX, "--port", port, "--kv-cache-memory", "64MiB", "--log-level", "error"], stdout=subprocess.PIPE, text=True)
            self.assertTrue(server.stdout.readline().startswith("listening on "))
            return server

        with tempfile.TemporaryDirectory() as folder:
            files = [os.path.join(folder, name) for name in ("calm.json", "restarted.json")]
            words = [BINARY, "eval", "--base-url", "http://127.0.0.1:" + port, "--tasks", "arithmetic", "--num-tasks", "60", "--max-tokens", "120",
                     "--max-concurrency", "2", "--out"]
            server, kills = started(), []
            try:
                subprocess.run([*words, files[0]], check=True, timeout=120, capture_output=True)
                evaluation = subprocess.Popen([*words, files[1]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for least in (8, 25):  # answers that are there by then
                    while evaluation.poll() is None:
                        try:
                            with open(files[1] + ".partial", encoding="utf-8") as kept:
                                if sum(1 for _ in kept) > least:
                                    break
                        except FileNotFoundError:
                            pass
                        time.sleep(0.005)
                    kills.append(evaluation.poll() is None)
                    server.kill()
                    server.wait()
                    server.stdout.close()
                    server = started()
                said = evaluation.communicate(timeout=120)
                self.assertEqual(evaluation.returncode, 0, said)
            finally:
                server.kill()
                server.wait()
                server.stdout.close()
            self.assertEqual(kills, [True, True], "it was killed while it was asked")
            with open(files[0], "rb") as calm, open(files[1], "rb") as restarted:
                self.assertEqual(calm.read(), restarted.read())

    def test_programs_are_run_where_that_was_asked_for(self):
        """A server that answers with programs: right ones, wrong ones, and such as leave, fork or fill the disk."""
        answers = ["def f(x):\n    return 2 * x", "def f(x):\n    return 3 * x", "import os\nos._exit(0)", "raise SystemExit(0)",
                   "import os\nwhile True: os.fork()", "for i in range(99): open(str(i), 'wb').write(bytes(4 << 20))\ndef f(x): return 2 * x"]

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.say({"data": [{"id": "m"}]})

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][0]["content"]
                code = answers[int(re.search(r"Task (\d)", asked)[1])]
                self.say({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": f"Here:\n```python\n{code}\n```"}}]})

            def say(self, value):
                data = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        with tempfile.TemporaryDirectory() as folder:
            tasks, out = os.path.join(folder, "programs.jsonl"), os.path.join(folder, "a.json")
            with open(tasks, "w", encoding="utf-8") as file:
                for number in range(len(answers)):
                    file.write(json.dumps({"task_id": f"t/{number}", "text": f"Task {number}: double it.", "test_list": ["assert f(4) == 8"]}) + "\n")
            words = ["eval", "--base-url", f"http://127.0.0.1:{server.server_port}", "--tasks", tasks]
            self.assertIn("--run-code", pelton(*words, code=2))
            self.assertIn("--run-code", pelton("eval", BOX, "--tasks", "arithmetic", "--run-code", code=2))
            done = subprocess.run([BINARY, *words, "--run-code", "--out", out], capture_output=True, text=True, timeout=100, check=False)
            if done.returncode != 0:  # where no sandbox can be made nothing is asked
                self.assertRegex(done.stderr, "the sandbox that programs run in cannot be made here: .+: ")
                self.assertFalse(os.path.exists(out))
                return
            with open(out, encoding="utf-8") as file:
                outcomes = json.load(file)["outcomes"]
            self.assertEqual([one["right"] for one in outcomes], [True] + [False] * 5)

    def test_what_is_wrong_is_said_before_anything_is_asked(self):
        self.assertIn("arithmetic", pelton("eval", BOX, "--tasks", "poems", code=4))
        self.assertIn("--against", pelton("eval", BOX, "--fail-if", "drop>0", code=2))
        self.assertIn("rhyme", pelton("eval", BOX, "--fail-if", "rhyme>0", code=2))
        self.assertIn("--base-url", pelton("eval", code=2))
        self.assertIn("no result", pelton("eval", BOX, "--against", os.path.join(TINY, "config.json"), code=2))


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
