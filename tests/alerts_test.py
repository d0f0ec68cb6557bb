#!/usr/bin/env python3
"""Alerts on their way: Debian's Prometheus with the shipped rules watches a gateway and its worker, its Alertmanager with the shipped example notifies a
receiver. Quiet while nothing is wrong; when the worker is killed under requests, the first page is the one that says so, and it is over when
the worker is back.

usage: alerts_test.py BINARY     exit code 77 (skipped) unless PELTON_FULL=1
PELTON_QUIET_SECONDS: how long nothing may be said while nothing is wrong (600).
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from http.server import ThreadingHTTPServer

import gateway_fixture
from gateway_fixture import Fleet, ask, chat
from json_handler import JsonHandler
from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
EXAMPLE = ROOT / "deploy" / "prometheus" / "alertmanager.yaml"
QUIET_SECONDS = int(os.environ.get("PELTON_QUIET_SECONDS", 600))  # an hour: 3600
ALERT_SECONDS = 120


class Receiver(ThreadingHTTPServer):
    """What Alertmanager says to whom: (path, status, names of alerts), in order."""
    daemon_threads = True

    def __init__(self):
        self.heard = []

        class Handler(JsonHandler):
            def do_POST(self):
                value = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for one in value["alerts"]:
                    self.server.heard.append((self.path, one["status"], one["labels"]["alertname"]))
                self.whole(200, {})
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Alerts(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)

    def run_in_background(self, *words):
        log = open(self.folder / f"{pathlib.Path(words[0]).name}.log", "w", encoding="utf-8")
        process = subprocess.Popen(list(map(str, words)), stdout=log, stderr=log)

        def end():
            process.terminate()
            process.wait(30)
            log.close()
        self.addCleanup(end)

    def watch(self, admin):
        """Prometheus and Alertmanager, quicker than they would be at home: a sample and a look at the rules each second."""
        receiver = Receiver()
        self.addCleanup(receiver.server_close)
        self.addCleanup(receiver.shutdown)
        example = self.folder / "alertmanager.yml"
        example.write_text(EXAMPLE.read_text().replace("127.0.0.1:9099", f"127.0.0.1:{receiver.server_port}").replace("group_interval: 5m", "group_interval: 5s"))
        manager, prometheus = free_port(), free_port()
        self.run_in_background("prometheus-alertmanager", f"--config.file={example}", f"--storage.path={self.folder / 'alerts'}", "--cluster.listen-address=",
                               f"--web.listen-address=127.0.0.1:{manager}")
        config = self.folder / "prometheus.yml"
        config.write_text(f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{RULES}]\n"
                          f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{manager}']}}]}}]}}\n"
                          f"scrape_configs: [{{job_name: pelton, static_configs: [{{targets: ['127.0.0.1:{admin}']}}]}}]\n")
        self.run_in_background("prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'data'}", f"--web.listen-address=127.0.0.1:{prometheus}")
        return receiver

    def wait_for(self, receiver, wanted, seconds):
        end = time.monotonic() + seconds
        while wanted not in receiver.heard:
            self.assertLess(time.monotonic(), end, f"{wanted} is not among {receiver.heard}")
            time.sleep(0.2)

    def test_a_lost_worker_pages_and_is_over_when_it_is_back(self):
        fleet = Fleet(self.folder, 1)
        self.addCleanup(fleet.close)
        receiver = self.watch(fleet.admin)

        def request():
            return ask(fleet.gateway.port, "POST", "/v1/chat/completions", chat(1, 5, 1), **{"x-request-timeout-ms": "1000"})[0]
        end = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < end:
            self.assertEqual(request(), 200)
            self.assertEqual(receiver.heard, [], "nothing is wrong")
            time.sleep(0.2)
        fleet.kill(0)
        over = threading.Event()

        def load():
            while not over.is_set():
                request()
                time.sleep(0.5)
        client = threading.Thread(target=load)
        client.start()
        self.addCleanup(over.set)
        self.wait_for(receiver, ("/page", "firing", "PeltonNoWorker"), ALERT_SECONDS)
        self.assertEqual(receiver.heard[0], ("/page", "firing", "PeltonNoWorker"), "the first one says what is wrong")
        fleet.start(0)
        self.wait_for(receiver, ("/page", "resolved", "PeltonNoWorker"), 3 * ALERT_SECONDS)
        over.set()
        client.join()


if __name__ == "__main__":
    if os.environ.get("PELTON_FULL") != "1":
        print("alerts: only in ./test --full", file=sys.stderr)
        sys.exit(77)
    for program in ("prometheus", "prometheus-alertmanager"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed (tools/install_packages --full)")
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
