#!/usr/bin/env python3
"""`pelton serve` as platforms run it: told by environment variables, with access log, traces and watchdog.

usage: reporting_test.py BINARY
"""
import http.client
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None
SCRIPT = {"step_ms": 1, "rules": [
    {"when": "", "then": "<|channel|>analysis<|message|>hidden<|end|><|start|>assistant<|channel|>final<|message|>"
                         "secret answer<|return|>"}]}


class Collector(http.server.BaseHTTPRequestHandler):
    bodies = []

    def do_POST(self):
        Collector.bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


class Reporting(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        subprocess.run([BINARY, "synth", "--like", str(ROOT / "testdata/demo_model.json"), str(self.folder / "model")],
                       check=True, capture_output=True)
        (self.folder / "script.json").write_text(json.dumps(SCRIPT))

    def serve(self, *flags, **variables):
        server = subprocess.Popen([BINARY, "serve", "--executor", f"modelled:{self.folder}/script.json", *flags],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**os.environ, "OPTION_MODEL_ID": str(self.folder / "model"),
                                       "SAGEMAKER_BIND_TO_PORT": "0", **variables})
        line = server.stdout.readline()
        self.assertTrue(line.startswith("listening on "), line)
        self.port = int(line.rsplit(":", 1)[1])
        return server

    def stop(self, server):
        server.send_signal(signal.SIGTERM)
        _, log = server.communicate(timeout=60)
        self.assertEqual(server.returncode, 0, log)
        return log

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return reply.status, text

    def test_environment_access_log_and_traces(self):
        collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(collector.server_close)
        self.addCleanup(collector.shutdown)
        access = self.folder / "access.log"
        server = self.serve("--access-log", "json", "--access-log-file", str(access), "--http-threads", "2",
                            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{collector.server_port}",
                            OPTION_MAX_ROLLING_BATCH_SIZE="3", OPTION_ROLLING_BATCH="auto",
                            OPTION_ENABLE_PREFIX_CACHING="True", OPTION_LOG_LEVEL="INFO",
                            OPTION_SCHEDULING_POLICY="fcfs", OPTION_MAX_MODEL_LEN="auto")
        self.assertEqual(self.ask("GET", "/ping"), (200, ""))
        question = {"messages": [{"role": "user", "content": "secret question"}]}
        status, text = self.ask("POST", "/invocations", question,
                                traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        self.assertEqual(status, 200)
        self.assertIn("secret answer", text)
        status, text = self.ask("GET", "/server_info")
        self.assertEqual(json.loads(text)["watchdog_seconds"], 300)
        limits = json.loads(text)["limits"]
        for name, most in (("drain_ms", 25_000), ("body_bytes_max", 32 << 20), ("response_store_entries_max", 10_000),
                           ("queued_requests_max", 1024)):
            self.assertEqual(limits[name], most, name)
        self.assertNotIn("grpc_calls_max", limits)  # there is no such listener
        log = self.stop(server)
        lines = [json.loads(line) for line in access.read_text().splitlines()]
        self.assertEqual([line["path"] for line in lines], ["/ping", "/invocations", "/server_info"])
        self.assertGreater(lines[1]["output_tokens"], 0)
        self.assertEqual(lines[1]["trace_id"], "0af7651916cd43dd8448eb211c80319c")
        spans = b"".join(body for _, body in Collector.bodies).decode()
        self.assertIn("engine.decode", spans)
        self.assertIn('"service.name"', spans)
        for told in (log, access.read_text(), spans):
            self.assertNotIn("secret", told)
            self.assertNotIn("hidden", told)

    def test_text_log_on_stderr(self):
        server = self.serve("--access-log", "text")
        self.assertEqual(self.ask("GET", "/health?key=secret")[0], 200)
        log = self.stop(server)
        self.assertRegex(log, r"127\.0\.0\.1:\d+ GET /health 200 ")
        self.assertNotIn("secret", log)

    def test_refuses_what_cannot_be(self):
        for flags in (["--otlp-endpoint", "ftp://collector"], ["--otlp-endpoint", "collector"],
                      ["--access-log", "text", "--access-log-file", "/no/such/folder/x"],
                      ["--access-log", "xml"], ["--trace-share", "2"], ["--http-threads", "0"]):
            ended = subprocess.run([BINARY, "serve", str(self.folder / "model"), "--port", "0", *flags],
                                   capture_output=True, timeout=60, check=False)
            self.assertNotEqual(ended.returncode, 0, flags)
            self.assertTrue(ended.stderr.startswith(b"pelton: "), ended.stderr)


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop())
    unittest.main()
