#!/usr/bin/env python3
"""Faults of the machine under a running `pelton serve`: rows FT of docs/hardening.md that take a process.

usage: faults_test.py BINARY WALL_CLOCK_JUMPS
"""
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from tiers import full

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None
JUMPS = None
WORDS = 60  # of the long answer
SEED = int(os.environ.get("PELTON_SEED", time.time_ns()))
RANDOM = random.Random(SEED)

SCRIPT = {"step_ms": 4, "context": 4096, "slots": 8, "rules": [
    {"when": "", "then": "<|channel|>final<|message|>Hello.<|return|>"},
    {"when": "count", "then": ["<|channel|>final<|message|>", {"text": "one ", "times": WORDS}]}]}


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        os.chmod(cls.folder.name, 0o755)
        cls.home = pathlib.Path(cls.folder.name)
        cls.model = cls.home / "model"
        subprocess.run([BINARY, "synth", "--like", ROOT / "testdata/golden/tiny/config.json", cls.model],
                       check=True, stdout=subprocess.DEVNULL, timeout=60)
        cls.script = cls.home / "script.json"
        cls.script.write_text(json.dumps(SCRIPT))

    def serve(self, *flags, env=None, before=None, script=None, err=subprocess.DEVNULL, computes=None):
        """Started and listening; self.port, self.admin. `computes`: a model that is no script."""
        executor = [computes] if computes else [self.model, "--executor", f"modelled:{script or self.script}"]
        server = subprocess.Popen(
            [BINARY, "serve", *executor, "--port", "0", "--admin-port", "0", *map(str, flags)],
            stdout=subprocess.PIPE, stderr=err, text=True, preexec_fn=before, env={**os.environ, **(env or {})})
        self.addCleanup(self.stop, server)
        self.port = int(re.search(r":(\d+)$", server.stdout.readline().strip()).group(1))
        self.admin = int(re.search(r":(\d+)$", server.stdout.readline().strip()).group(1))
        return server

    @staticmethod
    def stop(server):
        if server.poll() is None:
            server.send_signal(signal.SIGCONT)
            server.kill()
        server.wait()
        for pipe in (server.stdout, server.stderr):
            if pipe is not None:
                pipe.close()

    def ask(self, path, body=None, port=None, headers=None, timeout=30):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request("GET" if body is None else "POST", path,
                               None if body is None else json.dumps(body), headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def chat(self, words="hi", **more):
        status, body = self.ask("/v1/chat/completions",
                                {"messages": [{"role": "user", "content": words}], **more})
        self.assertEqual(status, 200, body)
        return json.loads(body)["choices"][0]["message"]["content"]

    def ledger(self):
        return json.loads(self.ask("/debug/ledger", port=self.admin)[1])

    def assert_clean(self):
        end = time.monotonic() + 10
        while not (ledger := self.ledger())["clean"] and time.monotonic() < end:
            time.sleep(0.05)
        self.assertTrue(ledger["clean"], ledger)

    @contextlib.contextmanager
    def stream(self, words="count", **more):
        """The text of a stream as it comes: a function that reads until so much is there."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("POST", "/v1/chat/completions", json.dumps(
            {"messages": [{"role": "user", "content": words}], "stream": True, **more}))
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        text = [""]
        errors = []

        def read(enough):
            while len(text[0]) < enough:
                line = answer.readline()
                if not line:
                    break
                if not line.startswith(b"data: ") or line == b"data: [DONE]\n":
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    errors.append(event["error"])
                    break
                for choice in event["choices"]:
                    text[0] += choice["delta"].get("content") or ""
            return text[0]
        read.errors = errors
        with contextlib.closing(connection):
            yield read

    def test_FT_12_a_step_that_never_ends(self):
        stuck = self.home / "stuck.json"
        stuck.write_text(json.dumps({**SCRIPT, "step_ms": 60_000}))
        server = self.serve("--watchdog-seconds", 1, "--watchdog-action", "exit", script=stuck,
                            err=subprocess.PIPE)
        begin = time.monotonic()
        status, body = self.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
        self.assertEqual(status, 503)
        self.assertIn("stuck", json.loads(body)["error"]["message"])
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(server.wait(20), 7)
        self.assertIn("the watchdog allows", server.stderr.read())

    def box(self, name):
        """A copy of the model in the box, to be damaged: its folder, and a function that writes into a tensor."""
        folder = self.home / name
        folder.mkdir()
        for part in ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors"):
            shutil.copyfile(ROOT / "models/pelton-box" / part, folder / part)

        def damage(tensor, data):
            with open(folder / "model.safetensors", "r+b") as file:
                size = int.from_bytes(file.read(8), "little")
                begin = json.loads(file.read(size))[tensor]["data_offsets"][0]
                file.seek(8 + size + begin)
                file.write(data)  # the pages that are mapped and computed with
        return folder, damage

    def until(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            time.sleep(0.05)
        return condition()

    def ready(self):
        status, body = self.ask("/ready")
        return status, json.loads(body)["error"]["code"] if status != 200 else None

    def test_FT_18_weights_that_change_in_memory(self):
        for action in ("report", "exit"):
            folder, damage = self.box(f"changed-{action}")
            # Mapped: what is written to the file is in memory then.
            server = self.serve("--weight-scrub-hours", 0.0005, "--watchdog-action", action, "--threads", 1,
                                "--load-mode", "mmap", computes=folder, err=subprocess.PIPE)
            self.chat("Say hello to Anna.", max_tokens=5)
            time.sleep(4)  # looked at at least twice
            self.assertEqual(self.ready(), (200, None))
            damage("model.layers.0.mlp.experts.down_proj_blocks", b"\x11")
            if action == "exit":
                self.assertEqual(server.wait(30), 7)
            else:
                self.assertTrue(self.until(lambda: self.ready() == (503, "weights_damaged")), self.ready())
                self.assertEqual(self.ask("/health")[0], 503)
                status, body = self.ask("/v1/completions", {"prompt": "hi"})
                self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "weights_damaged"))
                self.assertIn(b"pelton_ready 0", self.ask("/metrics")[1])
                server.terminate()
                self.assertEqual(server.wait(30), 0)
            self.assertIn("model.layers.0.mlp.experts.down_proj_blocks, bytes 0 to", server.stderr.read())

    def test_FT_18_numbers_that_are_not_finite(self):
        folder, damage = self.box("broken")
        self.serve("--weight-scrub-hours", 0, "--numerical-errors-max", 2, "--threads", 1, computes=folder)
        damage("lm_head.weight", b"\xc0\x7f" * (4096 * 192))
        for _ in range(3):
            self.assertEqual(self.ready(), (200, None))
            status, body = self.ask("/v1/completions", {"prompt": "hi"})
            self.assertEqual((status, json.loads(body)["error"]["code"]), (500, "numerical_error"))
        self.assertTrue(self.until(lambda: self.ready() == (503, "numerical_errors")), self.ready())
        self.assertEqual(self.ask("/health")[0], 200)  # a doubt is no reason to start anew
        metrics = self.ask("/metrics")[1].decode()
        self.assertRegex(metrics, r"(?m)^pelton_numerical_errors_total\{[^}]*\} 3$")

    def test_E1_extreme_parameters_are_no_sign_of_damage(self):
        """Every number of a request at every end of its range, alone and together: an answer or a 400."""
        self.serve("--weight-scrub-hours", 0, "--numerical-errors-max", 1, "--threads", 1,
                   computes=ROOT / "models/pelton-box")
        least, small, below = 5e-324, 1.4e-45, 1 - 2**-53
        ends = {"repetition_penalty": (least, 1e-300, small, 1e-40, 1e-38, 1e-10, below, 1 + 2**-52, 100, 0, -0.0, 101),
                "temperature": (0, -0.0, least, small, 1e-38, 2, 2.1, -least),
                "top_p": (least, small, 1e-38, below, 1, 0, 1.1),
                "min_p": (0, least, small, below, 1, 1.1),
                "frequency_penalty": (-2, 2, least, -least, 2.1), "presence_penalty": (-2, 2, small, -small, -2.1),
                "top_k": (-1, 0, 1, 2**31 - 1, 2**31),
                "logit_bias": ({}, {"0": 100}, {"1": -100, "2": least}, {"3": -small}, {"0": 101})}

        def ask(**fields):
            path, body = RANDOM.choice((
                ("/v1/completions", {"prompt": "hello hello world"}),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello hello"}], "logprobs": True})))
            status, text = self.ask(path, {**body, "max_tokens": 4, **fields})
            self.assertIn(status, (200, 400), (fields, text))
            if status == 400:
                self.assertIn(json.loads(text)["error"]["param"].split(".")[0], fields)
        for name, values in ends.items():
            for value in values:
                ask(**{name: value})
        for _ in range(60):
            ask(**{name: RANDOM.choice(values) for name, values in ends.items() if RANDOM.random() < 0.6})
        self.assertEqual(self.ready(), (200, None))
        self.assertRegex(self.ask("/metrics")[1].decode(), r"(?m)^pelton_numerical_errors_total\{[^}]*\} 0$")

    def test_FT_20_FT_51_a_process_that_is_stopped_and_goes_on(self):
        server = self.serve("--watchdog-seconds", 1, "--watchdog-action", "exit")
        with self.stream() as read:
            read(20)
            server.send_signal(signal.SIGSTOP)
            time.sleep(2.5)
            server.send_signal(signal.SIGCONT)
            text = read(10**6)
            self.assertEqual(read.errors, [])
            self.assertEqual(text, "one " * WORDS)
        self.assertEqual(self.ask("/health/live")[0], 200)
        self.assert_clean()
        self.assertIsNone(server.poll())

    def test_FT_48_a_full_disk(self):
        """Nothing that is written beside the answers can be; the answers are."""
        store = self.home / "responses.db"
        for full in ("device", "limit"):
            flags = ["--response-store", f"sqlite:{store}", "--access-log", "json"]
            if full == "device":
                flags += ["--access-log-file", "/dev/full", "--step-log", "/dev/full"]
                before = None
            else:
                store.unlink(missing_ok=True)
                flags += ["--access-log-file", self.home / "access.log", "--step-log", self.home / "steps"]
                (self.home / "access.log").write_bytes(bytes(1 << 16))

                def before():  # files may grow to 64 KiB: then EFBIG, and SIGXFSZ for who does not ignore it
                    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
            server = self.serve(*flags, before=before)
            for _ in range(10):
                self.assertEqual(self.chat(), "Hello.")
                status, body = self.ask("/v1/responses", {"input": "hi " * 1000})
                self.assertIn(status, (200, 500), body)
                if status == 200:
                    self.assertEqual(json.loads(body)["status"], "completed")
            with self.stream() as read:
                self.assertEqual(read(10**6), "one " * WORDS)
            metrics = self.ask("/metrics", port=self.admin)[1].decode()
            dropped = re.search(r"^pelton_access_log_dropped_total(?:{.*})? (\d+)", metrics, re.M)
            self.assertGreater(int(dropped.group(1)), 0, full)
            self.assert_clean()
            self.assertIsNone(server.poll())
            self.stop(server)

    def test_E4_a_full_disk_under_the_store_and_the_access_log(self):
        """Reads go on, writes are refused by name, lines are whole or not there; and all is told."""
        limit = 1 << 17
        lines = self.home / "lines.log"
        lines.write_bytes(bytes(limit - 4096) + b"\n")

        def before():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        server = self.serve("--response-store", f"sqlite:{self.home / 'full.db'}", "--access-log", "json",
                            "--access-log-file", lines, before=before, err=subprocess.PIPE)

        def make(**more):
            status, body = self.ask("/v1/responses", {"input": "hi " * 1000, **more})
            self.assertEqual(status, 200, body)
            self.assertEqual(json.loads(body)["status"], "completed")
            return json.loads(body)
        kept = []
        while (last := make())["store"]:
            kept.append(last["id"])
            self.assertLess(len(kept), 1000)
        self.assertGreater(len(kept), 2)
        self.assertEqual(self.ask(f"/v1/responses/{last['id']}")[0], 404)
        for _ in range(2):
            for name in kept:
                self.assertEqual(self.ask(f"/v1/responses/{name}")[0], 200)
                self.assertEqual(self.ask(f"/v1/responses/{name}/input_items")[0], 200)
            self.assertFalse(make(previous_response_id=kept[0], input="hi " * 500)["store"])

        def delete(name):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            with contextlib.closing(connection):
                connection.request("DELETE", f"/v1/responses/{name}")
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())
        status, body = delete(kept[0])
        self.assertEqual((status, body["error"]["code"]), (507, "insufficient_storage"))
        self.assertEqual(self.ask(f"/v1/responses/{kept[0]}")[0], 200)
        metrics = self.ask("/metrics", port=self.admin)[1].decode()
        for name in ('pelton_response_store_failures_total{operation="write"}', "pelton_access_log_dropped_total"):
            self.assertGreater(int(re.search(rf"^{re.escape(name)} (\d+)", metrics, re.M).group(1)), 0, name)
        self.assertIn('pelton_response_store_failures_total{operation="read"} 0', metrics)
        text = lines.read_bytes()
        self.assertGreater(len(text), limit - 4096 + 1)
        self.assertTrue(text.endswith(b"}\n"), text[-300:])
        for line in text[limit - 4096 + 1:].splitlines():
            json.loads(line)
        # There is room again.
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        self.assertEqual(self.ask(f"/v1/responses/{make()['id']}")[0], 200)
        self.assertEqual(delete(kept[-1])[0], 200)
        self.assert_clean()
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(20), 0)
        said = server.stderr.read()
        self.assertRegex(said, r"the response store: .*full\.db: cannot be")
        self.assertIn("the access log loses lines: File too large", said)
        self.assertIn("is not stored", said)

    def test_FT_49_no_more_descriptors(self):
        server = self.serve(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
        self.assertEqual(self.chat(), "Hello.")
        many = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(150)]
        time.sleep(0.3)
        cpu = self.cpu_seconds(server)
        time.sleep(1)
        self.assertLess(self.cpu_seconds(server) - cpu, 0.25, "it is busy with nothing")
        self.assertEqual(self.ask("/health", port=self.admin)[0], 200, "the admin listener")
        for one in many:
            one.close()
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
                self.assertEqual(self.chat(), "Hello.")
                break
            time.sleep(0.1)
        self.assertEqual(self.chat(), "Hello.")
        self.assert_clean()

    @full
    def test_FT_49_connections_leave_descriptors_for_all_else(self):
        """Of 1000 descriptors 320 stay free when the public listener is full."""
        server = self.serve(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000)))
        idle = len(os.listdir(f"/proc/{server.pid}/fd"))
        many = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(1000)]
        time.sleep(0.5)
        taken = len(os.listdir(f"/proc/{server.pid}/fd")) - idle
        self.assertLessEqual(idle + taken, 1000 - 320 + 16, "but for what was opened later")
        self.assertGreaterEqual(taken, 1000 - 320 - idle - 70)
        self.assertEqual(self.ask("/health", port=self.admin)[0], 200, "the admin listener")
        for one in many:
            one.close()
        self.assert_clean()

    @staticmethod
    def cpu_seconds(server):
        words = pathlib.Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def test_FT_49_limits_at_the_start(self):
        """Whatever there is too little of: it serves, or it leaves with one sentence and no signal."""
        limits = [(resource.RLIMIT_NOFILE, n) for n in (6, 8, 10, 12, 14, 16, 20, 26, 40)]
        limits += [(resource.RLIMIT_AS, n << 20) for n in (200, 230, 240, 250, 270, 300, 310, 340, 400)]
        for (limit, most), threads in itertools.product(limits, ("1", "3")):
            with subprocess.Popen(
                    [BINARY, "serve", ROOT / "models/pelton-box", "--port", "0", "--admin-port", "0",
                     "--threads", threads, "--max-num-seqs", "4"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    preexec_fn=lambda limit=limit, most=most: resource.setrlimit(limit, (most, most))) as server:
                if server.stdout.readline().startswith("listening"):
                    stack = re.search(r"VmStk:\s+(\d+) kB", pathlib.Path(f"/proc/{server.pid}/status").read_text())
                    self.assertGreaterEqual(int(stack.group(1)), 512, "it cannot grow once there is no room")
                    server.terminate()
                    self.assertEqual(server.wait(30), 0, (limit, most))
                else:
                    said = server.stderr.read()
                    self.assertIn(server.wait(30), (1, 5), (limit, most, said))
                    self.assertRegex(said.splitlines()[-1], "^pelton: ")

    def test_FT_49_no_more_threads(self):
        def before():  # each thread's stack is to be larger than all the memory there may be
            resource.setrlimit(resource.RLIMIT_STACK, (1 << 36, resource.getrlimit(resource.RLIMIT_STACK)[1]))
            resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
        done = subprocess.run([BINARY, "serve", self.model, "--port", "0", "--executor", f"modelled:{self.script}"],
                              preexec_fn=before, capture_output=True, timeout=30, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("refuses a thread", done.stderr)

    def test_FT_49_requests_make_no_threads(self):
        self.serve()
        self.chat()
        before = self.ledger()["process"]["threads"]
        clients = [threading.Thread(target=self.chat, args=("count",)) for _ in range(20)]
        for client in clients:
            client.start()
        self.assertEqual(self.ledger()["process"]["threads"], before)
        for client in clients:
            client.join()

    def test_FT_50_a_calendar_that_jumps(self):
        self.serve("--response-store", f"sqlite:{self.home / 'jumps.db'}", "--response-store-age", 60,
                   env={"LD_PRELOAD": str(JUMPS)})
        stored = []
        dates = set()
        give_up = time.monotonic() + 20
        # Six rounds may all fit between two jumps.
        while len(stored) < 6 or (len(dates) < 2 and time.monotonic() < give_up):
            status, body = self.ask("/v1/chat/completions", {
                "messages": [{"role": "user", "content": "count"}], "timings": True, "temperature": 0},
                headers={"X-Request-Timeout-Ms": "20000"})
            self.assertEqual(status, 200, body)
            answer = json.loads(body)
            dates.add(answer["created"] // 1800)
            self.assertEqual(answer["choices"][0]["message"]["content"], "one " * WORDS)
            for name in ("queue_ms", "prefill_ms", "decode_ms"):
                self.assertGreaterEqual(answer["timings"][name], 0)
                self.assertLess(answer["timings"][name], 20_000)
            status, body = self.ask("/v1/responses", {"input": "hi"})
            self.assertEqual(status, 200, body)
            stored.append(json.loads(body)["id"])
        self.assertGreater(len(dates), 1, "the calendar did not jump")
        for name in stored:
            self.assertEqual(self.ask(f"/v1/responses/{name}")[0], 200, "forgotten before its time")
        self.assert_clean()

    @full
    def test_FT_50_who_reads_the_calendar(self):
        """Only who tells a date; nobody who waits or measures."""
        allowed = {"base/clock.cc", "base/clock.h",  # the calendar itself
                   "base/log.cc", "base/utc_time.h", "base/utc_time.cc",
                   "net/loop.cc", "net/http_time.cc", "net/http_time.h",  # the header Date
                   "net/tls.cc", "net/tls.h",  # certificates
                   "server/grpc_listener.cc", "server/grpc_fixture.h",  # how gRPC's library is told a deadline; made steady at once
                   "access/access_log.cc", "access/request_record.h", "access/request_reporter.cc",
                   "access/request_trace.cc", "access/audit_log.cc",
                   "server/chat_completions.cc", "server/completions.cc", "server/responses.cc", "server/response_plan.cc", "server/services.cc", "server/request_pipeline.cc",
                   "server/response_answer.cc", "server/embeddings.cc", "server/pinned_prefixes.cc",  # "created", and the date that models are told
                   "server/live_history.cc", "server/live_history.h", "server/live_console.cc",  # when a sample was taken, as its plot says
                   "server/adapter_registry.cc", "server/adapter_registry.h", "server/metrics_page.cc",
                   "server/adapter_reports.cc", "server/server_endpoints.cc",  # "created"; vLLM's lora_requests_info is a date
                   "server/kv_event_publisher.cc",  # a batch of events is dated, as vLLM has it
                   "server/ollama.cc", "server/ollama_answer.cc", "store/batch_store.cc",  # "created_at", and when a batch is over
                   "store/sqlite_response_store.cc"}  # ages that outlive the process; steady from the start on
        rooms = ("base", "net", "access", "server", "engine", "admission", "api", "store", "telemetry", "executor", "kv")
        readers = set()
        for room in rooms:
            for file in (ROOT / "src" / room).rglob("*.*"):
                if file.suffix in (".cc", ".h") and not file.stem.endswith(("_test", "_bench")) and re.search(
                        r"system_clock|unix_ms|CLOCK_REALTIME|gettimeofday|\btime\(nullptr\)", file.read_text()):
                    readers.add(f"{room}/{file.name}")
        self.assertEqual(readers - allowed, set())

    def test_FT_53_a_log_that_nobody_reads(self):
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, bytes(4096))
        os.set_blocking(writing, True)
        server = self.serve("--access-log", "text", err=writing)
        os.close(writing)
        for _ in range(30):
            self.assertEqual(self.chat(), "Hello.")
        self.assert_clean()
        server.send_signal(signal.SIGTERM)  # it says so, or would like to
        time.sleep(1)
        with contextlib.suppress(BlockingIOError):  # the access log's last lines may be waited for
            os.set_blocking(reading, False)
            while os.read(reading, 1 << 16):
                time.sleep(0.01)
        self.assertEqual(server.wait(20), 0)

    def test_FT_58_killed_and_started_again(self):
        flags = ("--response-store", f"sqlite:{self.home / 'kept.db'}")
        kept = []
        for _ in range(3):
            server = self.serve(*flags)
            for name in kept:
                self.assertEqual(self.ask(f"/v1/responses/{name}")[0], 200)
            kept.append(json.loads(self.ask("/v1/responses", {"input": "hi"})[1])["id"])
            with self.stream() as read:
                read(20)
                server.kill()
            server.wait()
            self.stop(server)


if __name__ == "__main__":
    JUMPS = pathlib.Path(sys.argv.pop(2)).resolve()
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    print(f"PELTON_SEED={SEED}")
    unittest.main()
