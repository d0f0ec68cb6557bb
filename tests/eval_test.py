"""`pelton eval` and `pelton perplexity` as a user meets them.

usage: eval_test.py BINARY
"""
import array
import http.server
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from ports import free_port
from tiers import FULL

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


def rounded_head(model, out, bits):
    """A copy whose lm_head is rounded to so many bits, a scale for each row; of bf16 weights."""
    os.makedirs(out, exist_ok=True)
    for name in os.listdir(model):
        if os.path.isdir(os.path.join(model, name)):
            continue
        if not name.endswith(".safetensors"):
            shutil.copy(os.path.join(model, name), out)
            continue
        with open(os.path.join(model, name), "rb") as file:
            data = bytearray(file.read())
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        if "lm_head.weight" in header:
            one = header["lm_head.weight"]
            assert one["dtype"] == "BF16", one
            begin, end = (8 + length + offset for offset in one["data_offsets"])
            values = array.array("H", bytes(data[begin:end]))
            columns = one["shape"][1]
            for row in range(0, len(values), columns):
                numbers = struct.unpack(f"<{columns}f", b"".join(b"\0\0" + struct.pack("<H", half) for half in values[row:row + columns]))
                scale = max(map(abs, numbers)) / (2 ** (bits - 1) - 1) or 1
                for i, number in enumerate(numbers):
                    word = struct.unpack("<I", struct.pack("<f", round(number / scale) * scale))[0]
                    values[row + i] = (word + 0x7FFF + (word >> 16 & 1)) >> 16
            data[begin:end] = values.tobytes()
        with open(os.path.join(out, name), "wb") as file:
            file.write(data)
    return out


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

    def test_is_that_of_the_exact_logits(self):
        """Of models whose logits an evaluation in float64 gave (testdata/golden): with reference kernels within 1e-4 of it."""
        for case in ("tiny", "qwen3", "llama3"):
            folder = os.path.join(ROOT, "testdata", "golden", case)
            with open(os.path.join(folder, "tokens.json"), encoding="utf-8") as file:
                known = json.load(file)
            ids = known["prompt"] + known["continuation"]
            rows = read_npy(os.path.join(folder, "logits_exact.npy"))
            self.assertEqual(known["logit_positions"], list(range(len(ids))))
            nats = 0.0
            for row, token in zip(rows, ids[1:]):
                most = max(row)
                nats += most + math.log(math.fsum(math.exp(one - most) for one in row)) - row[token]
            exact = math.exp(nats / (len(ids) - 1))
            with open(self.tokens, "w", encoding="utf-8") as file:
                json.dump(ids, file)
            for kernels, bound in (("reference", 1e-4), ("auto", 2e-2)):
                with self.subTest(case=case, kernels=kernels):
                    found = json.loads(pelton("perplexity", folder, "--tokens", self.tokens, "--json", "--kernels", kernels))
                    self.assertEqual(found["tokens"], len(ids) - 1)
                    self.assertLess(abs(found["perplexity"] / exact - 1), bound, (found["perplexity"], exact))

    def test_the_divergence_tells_a_head_of_8_bits_from_one_of_4(self):
        """Weights by a seed, their head rounded to 8 and to 4 bits (its other weights as they are): one bound on the divergence parts the two,
        and the model itself is at 0."""
        gate = 6e-4  # nats, as asked of fast kernels (testdata/golden)
        found = []
        for seed in range(100 if FULL else 3):
            base = os.path.join(self.folder.name, f"base{seed}")
            pelton("synth", "--like", os.path.join(TINY, "config.json"), "--seed", str(seed), base)
            kl = {}
            for bits in (16, 8, 4):
                other = base if bits == 16 else rounded_head(base, os.path.join(self.folder.name, f"head{bits}"), bits)
                said = json.loads(pelton("perplexity", base, "--tokens", self.tokens, "--against", other, "--json"))
                kl[bits] = said["kl_mean"]
                if bits == 16:
                    self.assertEqual((said["kl_max"], said["agreement"]), (0, 1), seed)
            found.append(kl)
            self.assertLess(kl[8], gate, (seed, kl))
            self.assertGreater(kl[4], gate, (seed, kl))
            shutil.rmtree(base)
        print("divergence, nats: 8 bits at most %.2e, 4 bits at least %.2e, %d seeds" %
              (max(kl[8] for kl in found), min(kl[4] for kl in found), len(found)), file=sys.stderr)

    def test_another_form_is_as_far_as_it_is(self):
        same = self.of("--against", TINY)
        self.assertEqual((same["kl_max"], same["agreement"], same["other_perplexity"]), (0, 1, same["perplexity"]))
        eighth = self.of("--against-kv-cache-dtype", "int8")
        self.assertGreater(eighth["kl_mean"], 0)
        self.assertLessEqual(eighth["kl_mean"], eighth["kl_p99"])
        self.assertLessEqual(eighth["kl_p99"], eighth["kl_max"])
        packed = self.of("--against-weights", "shipped")
        self.assertLess(packed["kl_mean"], 0.1)

    def test_keys_and_values_are_of_both_forms(self):
        same = self.of("--kv-cache-dtype", "int8", "--against", TINY)
        self.assertEqual((same["kl_max"], same["rise"]), (0, 0))
        self.assertGreater(self.of("--kv-cache-dtype", "int8", "--against-kv-cache-dtype", "f16")["kl_max"], 0)

    def test_kernels_against_others(self):
        fast = self.of("--kernels", "reference", "--against-kernels", "auto")
        self.assertEqual(fast["perplexity"], self.of("--kernels", "reference")["perplexity"])
        self.assertEqual(fast["other_perplexity"], self.of()["perplexity"])
        self.assertGreater(fast["kl_max"], 0)
        self.assertLess(fast["kl_mean"], 6e-4)
        same = self.of("--kernels", "reference", "--against-kernels", "reference")
        self.assertEqual((same["kl_max"], same["agreement"]), (0, 1))
        self.assertIn("is not one of auto, reference",
                      pelton("perplexity", TINY, "--tokens", self.tokens, "--against-kernels", "quick", code=2))

    def test_a_gate_and_a_page(self):
        page = os.path.join(self.folder.name, "page.html")
        words = ["perplexity", TINY, "--tokens", self.tokens, "--against-kv-cache-dtype", "int8"]
        found = json.loads(pelton(*words, "--json", "--html", page, "--fail-if", "kl_mean>1", "--fail-if", "agreement<0.1"))
        self.assertIn("--fail-if kl_mean>0 ", pelton(*words, "--fail-if", "kl_mean>0", code=1))
        self.assertIn("names nothing", pelton(*words, "--fail-if", "rhyme>0", code=2))
        self.assertIn("names nothing", pelton(*words[:-2], "--fail-if", "kl_mean>0", code=2))
        self.assertIn("--fail-if perplexity>1 ", pelton(*words[:-2], "--fail-if", "perplexity>1", code=1))
        with open(page, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("<td>KL divergence</td>", text)
        self.assertIn(f"<td>tokens</td><td>{found['tokens']}</td>", text)
        self.assertIsNone(re.search(r"(?:src|href)=\"(?!data:)", text))

    def test_one_that_was_killed_goes_on(self):
        out = os.path.join(self.folder.name, "result.json")
        partial = out + ".partial"
        text = os.path.join(self.folder.name, "text.txt")
        with open(text, "w", encoding="utf-8") as file:
            file.write(" ".join(f"{word} times {word + 1} is {word * (word + 1)}." for word in range(400)))
        words = ["perplexity", BOX, "--text", text, "--window", "64", "--stride", "48", "--against-kv-cache-dtype", "int8", "--out", out]

        def read(path):
            with open(path, encoding="utf-8") as file:
                return file.read()

        def lines():
            return read(partial).splitlines() if os.path.exists(partial) else []
        pelton(*words)
        whole = read(out)
        self.assertFalse(os.path.exists(partial))
        os.remove(out)
        killed = subprocess.Popen([BINARY, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(lines()) < 4:
            self.assertIsNone(killed.poll(), "it ended before it was killed")
            time.sleep(0.001)
        killed.kill()
        killed.wait()
        self.assertFalse(os.path.exists(out))
        kept = lines()[:3]
        self.assertIn("another model, text, window or format", pelton(*words[:5], "32", *words[6:], code=2))
        with open(partial, "w", encoding="utf-8") as file:  # and the second window's line is cut
            file.write("\n".join(kept)[:-9])
        resumed = subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=600, check=True)
        self.assertRegex(resumed.stderr, r"63 of \d+ tokens were computed before")
        self.assertEqual(read(out), whole)
        # What is known is not computed: where it says something else, so does the result.
        first = json.loads(kept[1])
        first["scores"][0][0] += 1.0
        with open(partial, "w", encoding="utf-8") as file:
            file.write(kept[0] + "\n" + json.dumps(first) + "\n")
        pelton(*words)
        other, same = json.loads(read(out)), json.loads(whole)
        self.assertAlmostEqual(other["nats_per_token"] - same["nats_per_token"], 1 / same["tokens"], delta=1e-9)
        self.assertEqual(other["kl_mean"], same["kl_mean"])

    def test_what_is_wrong_is_said(self):
        empty = os.path.join(self.folder.name, "empty.txt")
        with open(empty, "w", encoding="utf-8"):
            pass
        self.assertIn("two tokens", pelton("perplexity", BOX, "--text", empty, code=2))
        with open(empty, "wb") as file:
            file.write(b"words \xff\xfe words")
        self.assertIn("its byte 7 is not UTF-8", pelton("perplexity", BOX, "--text", empty, code=2))
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

    def asked_of(self, answers, tasks, *flags):
        """The outcomes of tasks that are asked of a server that gives the i-th the i-th answer."""
        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.say({"data": [{"id": "m"}]})

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][0]["content"]
                self.say({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": answers[int(asked.split()[-1])]}}]})

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
        try:
            with tempfile.TemporaryDirectory() as folder:
                file, out = os.path.join(folder, "tasks.jsonl"), os.path.join(folder, "a.json")
                with open(file, "w", encoding="utf-8") as opened:
                    opened.writelines(json.dumps({"prompt": f"Task {i}", "expect": expected}) + "\n" for i, expected in enumerate(tasks))
                pelton("eval", "--base-url", f"http://127.0.0.1:{server.server_port}", "--tasks", file, "--out", out, *flags)
                with open(out, encoding="utf-8") as opened:
                    return json.load(opened)
        finally:
            server.shutdown()
            server.server_close()

    def served(self, reply):
        """The URL of a server that gives each chat completion reply(body): a status and an object."""
        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.say(200, {"data": [{"id": "m"}]})

            def do_POST(self):
                self.say(*reply(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

            def say(self, status, value):
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}"

    def test_only_the_same_tasks_are_compared_and_what_else_differs_is_said(self):
        url = self.served(lambda _: (200, {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "7"}}]}))
        words = ["eval", "--base-url", url, "--tasks", "arithmetic", "--num-tasks", "6"]
        with tempfile.TemporaryDirectory() as folder:
            before, page = os.path.join(folder, "before.json"), os.path.join(folder, "page.html")
            pelton(*words, "--out", before)
            refused = pelton(*words, "--seed", "2", "--against", before, code=2)
            self.assertIn("task '0' of 'arithmetic'", refused)
            # Fewer of the same are some that both have.
            self.assertIn("before: " + before, pelton(*words[:-1], "4", "--against", before))
            said = " ".join(pelton(*words, "--temperature", "1", "--against", before, "--html", page).split())
            self.assertIn("not asked or served alike: temperature 0.0, now 1.0", said)
            with open(page, encoding="utf-8") as file:
                self.assertIn("temperature 0.0, now 1.0", file.read())
            with open(before, encoding="utf-8") as file:
                old = json.load(file)
            for outcome in old["outcomes"]:
                del outcome["task"]  # as results were before: their tasks as a whole decide
            with open(before, "w", encoding="utf-8") as file:
                json.dump(old, file)
            pelton(*words, "--against", before)
            self.assertIn("not the same in both", pelton(*words, "--seed", "2", "--against", before, code=2))

    def test_a_server_that_answers_nothing_has_no_score(self):
        asked = []
        def refuse(body):
            asked.append(body)
            return 404, {"error": {"message": "no such model"}}
        words = ["eval", "--base-url", self.served(refuse), "--tasks", "arithmetic,json", "--num-tasks", "2"]
        self.assertIn("no task was answered; the first: status 404: no such model", pelton(*words, code=1))
        # A set that is none of those is said before anything is asked.
        asked.clear()
        self.assertIn("names nothing", pelton(*words, "--fail-if", "poems.score<0.5", code=2))
        self.assertIn("names nothing", pelton(*words[:4], "json", "--fail-if", "all.score<0.5", code=2))
        self.assertEqual(asked, [])

    def test_the_published_instructions_are_read(self):
        """In the shape of IFEval's own file: keys, arguments of all kinds, unset ones null."""
        answers = ["Das ist der Anfang. Und hier geht es weiter, wie es sein soll.", "First\n******\nSecond", "no SHOUTING here"]
        lines = [{"key": 1, "prompt": "Task 0", "instruction_id_list": ["language:response_language"], "kwargs": [{"language": "de", "num_words": None}]},
                 {"key": 2, "prompt": "Task 1", "instruction_id_list": ["combination:two_responses"], "kwargs": [{}]},
                 {"key": 3, "prompt": "Task 2", "instruction_id_list": ["change_case:capital_word_frequency", "punctuation:no_comma"],
                  "kwargs": [{"capital_frequency": 2, "capital_relation": "at least"}, {}]}]
        url = self.served(lambda body: (200, {"choices": [{"finish_reason": "stop", "message": {
            "role": "assistant", "content": answers[int(body["messages"][0]["content"].split()[-1])]}}]}))
        with tempfile.TemporaryDirectory() as folder:
            file, out = os.path.join(folder, "ifeval.jsonl"), os.path.join(folder, "a.json")
            with open(file, "w", encoding="utf-8") as opened:
                opened.writelines(json.dumps(line) + "\n" for line in lines)
            pelton("eval", "--base-url", url, "--tasks", file, "--out", out)
            with open(out, encoding="utf-8") as opened:
                self.assertEqual([one["right"] for one in json.load(opened)["outcomes"]], [True, True, False])

    def test_recorded_requests_are_compared_between_two_servers(self):
        """Bodies as clients sent them, asked of both: paired, with each server's own key and what it says of its formats."""
        heard = {}

        def server(name, say, info):
            class Answers(http.server.BaseHTTPRequestHandler):
                def do_GET(self):
                    self.send({"data": [{"id": name}]} if self.path.endswith("/models") else info, 200 if info or self.path.endswith("/models") else 404)

                def do_POST(self):
                    body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                    heard.setdefault(name, []).append((body, self.headers.get("Authorization")))
                    text, reason, tokens = say(body["messages"][-1]["content"])
                    self.send({"choices": [{"finish_reason": reason, "message": {"role": "assistant", "content": text}}],
                               "usage": {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}})

                def send(self, value, status=200):
                    data = json.dumps(value).encode()
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

                def log_message(self, *_):
                    pass

            one = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
            threading.Thread(target=one.serve_forever, daemon=True).start()
            self.addCleanup(one.server_close)
            self.addCleanup(one.shutdown)
            return f"http://127.0.0.1:{one.server_port}"

        facts = {"runtime": {"chat_template": "harmony", "weights": "int8", "kv_dtype": "bf16", "kernels": "avx2", "memory": "much"}}
        new = server("new", lambda text: ("[1]" if "JSON" in text else "Hello " + text, "stop", 8), facts)
        old = server("old", lambda text: ("no" if "JSON" in text else "Hello " + text, "length" if "long" in text else "stop", 4), None)
        with tempfile.TemporaryDirectory() as folder:
            file, out = os.path.join(folder, "recorded.jsonl"), os.path.join(folder, "a.json")
            def body(content, **more):
                return {"model": "was", "temperature": 1, "stream": True, "messages": [{"role": "user", "content": content}], **more}
            with open(file, "w", encoding="utf-8") as opened:
                for line in (body("one"), body("long"), body("JSON", response_format={"type": "json_object"}),
                             {"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": body("four")}):
                    opened.write(json.dumps(line) + "\n")
            done = subprocess.run([BINARY, "eval", "--base-url", new, "--against", old, "--tasks", file, "--out", out, "--fail-if", "same<0.9"],
                                  env={**os.environ, "OPENAI_API_KEY": "sk-new", "OPENAI_API_KEY_AGAINST": "sk-old"},
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)  # three of four are the same
            self.assertIn("same<0.9 (it is 0.75)", done.stderr)
            self.assertIn("75.0 %", done.stdout)
            self.assertFalse([name for name in os.listdir(folder) if name.endswith(".partial")])
            with open(out, encoding="utf-8") as opened:
                result = json.load(opened)
            self.assertEqual(result["server"], {key: facts["runtime"][key] for key in ("chat_template", "weights", "kv_dtype", "kernels")})
            self.assertEqual([(one["id"], one["right"]) for one in result["outcomes"]], [("0", True), ("1", True), ("2", True), ("x", True)])
            self.assertEqual({key for _, key in heard["new"]}, {"Bearer sk-new"})
            self.assertEqual({key for _, key in heard["old"]}, {"Bearer sk-old"})
            for sent, _ in heard["new"] + heard["old"]:
                self.assertNotIn("stream", sent)
                self.assertEqual(sent["temperature"], 0)
            self.assertEqual({sent["model"] for sent, _ in heard["old"]}, {"old"})
            refused = pelton("eval", "--base-url", new, "--against", out, "--against-model", "m", "--tasks", file, code=2)
            self.assertIn("--against-model", refused)
            with open(file, "w", encoding="utf-8") as opened:
                opened.write('{"timestamp":1,"input_length":3,"output_length":4,"hash_ids":[]}\n')
            self.assertIn("numbers only", pelton("eval", "--base-url", new, "--tasks", file, code=2))

    def test_schemas_are_judged_as_by_debians_jsonschema(self):
        """Random schemas and random values, half of them made by the schema: the same verdicts as python3-jsonschema's."""
        import jsonschema
        dice = random.Random(37)

        def schema(depth):
            kind = dice.choice(["integer", "number", "string", "boolean", "null", "enum"] + ["object", "array", "any"] * (depth > 0))
            if kind == "enum":
                return {"enum": dice.sample(["a", "b", 1, 2.5, None, True], 3)}
            if kind == "any":
                return {"anyOf": [schema(depth - 1), schema(depth - 1)]}
            one = {"type": kind}
            if kind in ("integer", "number") and dice.random() < 0.7:
                one.update(minimum=dice.randint(-9, 0), maximum=dice.randint(0, 9))
            if kind == "string" and dice.random() < 0.7:
                one.update(minLength=dice.randint(0, 2), maxLength=dice.randint(2, 5))
            if kind == "array":
                one.update(items=schema(depth - 1), minItems=dice.randint(0, 2), maxItems=dice.randint(2, 4))
            if kind == "object":
                names = dice.sample("abcd", dice.randint(1, 3))
                one.update(properties={name: schema(depth - 1) for name in names}, required=dice.sample(names, dice.randint(0, len(names))),
                           additionalProperties=dice.random() < 0.5)
            return one

        def value(depth):
            kind = dice.randrange(8 if depth > 0 else 6)
            if kind == 6:
                return [value(depth - 1) for _ in range(dice.randint(0, 4))]
            if kind == 7:
                return {name: value(depth - 1) for name in dice.sample("abcde", dice.randint(0, 3))}
            return [None, dice.random() < 0.5, dice.randint(-12, 12), dice.randint(-24, 24) / 2, "".join(dice.choices("abé", k=dice.randint(0, 6))), "a"][kind]

        def fitting(of):
            if "enum" in of:
                return dice.choice(of["enum"])
            if "anyOf" in of:
                return fitting(dice.choice(of["anyOf"]))
            kind = of["type"]
            if kind == "object":
                return {name: fitting(inner) for name, inner in of["properties"].items() if name in of["required"] or dice.random() < 0.5}
            if kind == "array":
                return [fitting(of["items"]) for _ in range(dice.randint(of["minItems"], of["maxItems"]))]
            return {"integer": dice.randint(of.get("minimum", -3), of.get("maximum", 3)), "number": dice.randint(of.get("minimum", -3), of.get("maximum", 3)) * 0.5,
                    "string": "é" * dice.randint(of.get("minLength", 0), of.get("maxLength", 4)), "boolean": True, "null": None}[kind]

        pairs = []
        for i in range(300):
            of = schema(2)
            pairs.append((of, fitting(of) if i % 2 else value(2)))
        expected = [jsonschema.Draft202012Validator(of).is_valid(given) for of, given in pairs]
        self.assertTrue(100 < sum(expected) < 280, sum(expected))
        found = self.asked_of([json.dumps(given) for _, given in pairs], [{"schema": of} for of, _ in pairs])["outcomes"]
        for (of, given), wanted, one in zip(pairs, expected, found):
            self.assertEqual(one["right"], wanted, (of, given))

    def test_intervals_and_p_are_what_exact_sums_give(self):
        """Wilson's interval and McNemar's exact p, again by Python's whole numbers."""
        answers = ["7" if i % 3 else "8" for i in range(40)]
        result = self.asked_of(answers, [{"number": 7}] * 40)
        score = result["scores"][0]
        n, share, z = 40, score["right"] / 40, 1.959963984540054
        middle, half = (share + z * z / 2 / n) / (1 + z * z / n), z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / 4 / n / n)
        self.assertAlmostEqual(score["low"], middle - half, delta=1e-6)
        self.assertAlmostEqual(score["high"], middle + half, delta=1e-6)
        with tempfile.TemporaryDirectory() as folder:
            before = os.path.join(folder, "before.json")
            for outcome in result["outcomes"]:  # 5 of them were right before that are not now, 12 the other way round
                outcome["right"] = outcome["right"] if int(outcome["id"].split("/")[-1] or 0) % 2 else not outcome["right"]
            with open(before, "w", encoding="utf-8") as file:
                json.dump(result, file)
            others = [one["right"] for one in result["outcomes"]]
            now = [answer == "7" for answer in answers]
            only_a, only_b = sum(a and not b for a, b in zip(others, now)), sum(b and not a for a, b in zip(others, now))
            tail = sum(math.comb(only_a + only_b, k) for k in range(min(only_a, only_b) + 1)) / 2 ** (only_a + only_b)
            p = min(1, 2 * tail)
            self.asked_of(answers, [{"number": 7}] * 40, "--against", before, "--fail-if", f"p<{p * 0.999}", f"p>{p * 1.001}")

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
                self.skipTest("no sandbox can be made here: " + done.stderr.strip())
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
