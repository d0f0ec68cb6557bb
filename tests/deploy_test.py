#!/usr/bin/env python3
"""What is shipped for Prometheus and Grafana is what the binary exports: deploy/metrics.toml names each metric, the rules and
dashboards are made of it, each alert has a runbook and cases in which it fires and does not. Under PELTON_FULL=1 Debian's Prometheus
scrapes a fleet, and every panel of every dashboard has data.

usage: deploy_test.py BINARY
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import unittest
import urllib.parse

import gateway_fixture
from gateway_fixture import BOX, SCRIPT, Process, ask, chat, check_stream
from ports import free_port
from tiers import FULL, full

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
DESCRIBED = tomllib.loads((DEPLOY / "metrics.toml").read_text())
NAME = re.compile(r"\b(?:pelton|vllm|http|process)[_:][a-z0-9_:]*[a-z0-9]")


def listed(where, always):
    return {name for group in DESCRIBED["metrics"] if group["where"] == where and not (always and "when" in group) for name in group["names"]}


def written_in_sources():
    """Each name that begins as a metric does, where metrics are written: whether or not a small fleet shows it."""
    found = set()
    for file in [*(ROOT / "src").rglob("*.cc"), *(ROOT / "apps").rglob("*.cc")]:
        text = file.read_text()
        if file.stem.endswith(("_test", "_fuzz", "_bench")) or "telemetry::" not in text and "telemetry/" not in text:
            continue
        found |= set(re.findall(r'"((?:pelton|vllm|http|process|inference_pool)[_:][a-z0-9_:]+)"', text))
        # Those of whose names a common beginning is left out.
        for prefix in re.findall(r'text\.(?:counter|gauge|family)\(fmt::format\("([a-z_]+){}"', text):
            found |= {prefix + name for name in re.findall(r'(?<![.\w])(?:counter|gauge)\(\s*"([a-z0-9_]+)"', text)}
    return found


def with_variables(expression, board):
    """As Grafana asks before anybody has filled in a field."""
    for one in board.get("variables", []):
        expression = expression.replace("$" + one["name"], one["value"])
    return expression


def exported(port):
    status, text = ask(port, "GET", "/metrics")
    assert status == 200, text
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


class Files(unittest.TestCase):
    def test_rules_and_dashboards_are_as_they_are_written(self):
        done = subprocess.run([sys.executable, ROOT / "tools" / "dashboards", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_runbooks_may_lie_elsewhere(self):
        done = subprocess.run([ROOT / "tools" / "dashboards", "--runbooks", "https://wiki.example/runbooks/"], capture_output=True, text=True, check=True)
        self.assertIn("runbook_url: https://wiki.example/runbooks/PeltonNoWorker.md\n", done.stdout)
        own = (ROOT / "deploy" / "prometheus" / "rules.yaml").read_text()
        self.assertEqual(done.stdout.replace("https://wiki.example/runbooks/", "docs/runbooks/"), own)

    def test_an_image_for_gpus_is_refused_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([ROOT / "tools" / "image", "--cuda", f"{folder}/image"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("never run on a GPU", done.stderr)
            self.assertFalse(pathlib.Path(folder, "image").exists())

    def test_whatever_is_looked_at_is_exported(self):
        known = {name for group in DESCRIBED["metrics"] for name in group["names"]} | {rule["name"] for rule in DESCRIBED["record"]}
        asked = [rule["expr"] for rule in DESCRIBED["record"] + DESCRIBED["alert"]]
        asked += [query["expr"] for board in DESCRIBED["dashboard"] for panel in board["panels"] for query in panel["queries"]]
        for expression in asked:
            for name in NAME.findall(expression):
                self.assertTrue(name in known or re.sub(r"_(bucket|sum|count)$", "", name) in known, f"{name} in {expression}")

    def test_whatever_the_sources_export_is_described(self):
        described = {name for group in DESCRIBED["metrics"] for name in group["names"]}
        written = written_in_sources()
        self.assertEqual(written - described, set(), "written in src, and not named in deploy/metrics.toml")
        self.assertEqual(described - written, set(), "named in deploy/metrics.toml, and written nowhere in src")

    def test_a_panels_variables_are_its_dashboards(self):
        for board in DESCRIBED["dashboard"]:
            asked = {name for panel in board["panels"] for query in panel["queries"] for name in re.findall(r"\$(\w+)", query["expr"])}
            self.assertEqual(asked, {one["name"] for one in board.get("variables", [])}, board["uid"])

    def test_each_alert_has_a_runbook_and_cases(self):
        alerts = {rule["name"] for rule in DESCRIBED["alert"]}
        folder = ROOT / "docs" / "runbooks"
        self.assertEqual({page.stem for page in folder.glob("*.md")} - {"README"}, alerts)
        self.assertEqual(set(re.findall(r"\| \[(\w+)\]", (folder / "README.md").read_text())), alerts)
        for name in alerts:
            page = (folder / f"{name}.md").read_text()
            for part in (f"# {name}\n", "\n## What it means\n", "\n## Look first\n", "\n## Do\n"):
                self.assertIn(part, page)
        cases = "".join(file.read_text() for file in (DEPLOY / "prometheus").glob("rules*_test.yaml"))
        for name in alerts:
            self.assertRegex(cases, rf"eval_time: \w+\n +alertname: {name}\n", "it fires")
            self.assertIn(f"alertname: {name}, exp_alerts: []", cases, "and it does not")

    def test_the_rules_do_what_the_cases_say(self):
        promtool = shutil.which("promtool")
        if promtool is None:
            self.assertFalse(FULL, "prometheus is not installed (tools/install_packages --full)")
            self.skipTest("prometheus is not installed")
        for words in (["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml", "rules_drift_test.yaml"]):
            done = subprocess.run([promtool, *words], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_example_for_alertmanager_is_sound_and_sends_alerts_where_they_belong(self):
        amtool = shutil.which("amtool")
        if amtool is None:
            self.assertFalse(FULL, "prometheus-alertmanager is not installed (tools/install_packages --full)")
            self.skipTest("prometheus-alertmanager is not installed")
        file = DEPLOY / "prometheus" / "alertmanager.yaml"
        subprocess.run([amtool, "check-config", file], capture_output=True, check=True)
        severities = set(re.findall(r"severity: (\w+)", (DEPLOY / "prometheus" / "rules.yaml").read_text()))
        receivers = {one: subprocess.run([amtool, "config", "routes", "test", f"--config.file={file}", f"severity={one}"], capture_output=True, text=True,
                                         check=True).stdout.strip() for one in severities}
        self.assertEqual(receivers, {"page": "on-call", "ticket": "tickets"})
        names = set(re.findall(r'alertname="(\w+)"', file.read_text()))
        self.assertLessEqual(names, set(re.findall(r"alert: (\w+)", (DEPLOY / "prometheus" / "rules.yaml").read_text())))


class Exported(unittest.TestCase):
    """A gateway with its autoscaler, and the replica that it starts."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.scratch.name)
        (folder / "script.json").write_text(json.dumps({**SCRIPT, "step_ms": 1}))
        cls.admin = free_port()
        config = folder / "gateway.toml"
        serve = json.dumps([str(BOX), "--executor", f"modelled:{folder / 'script.json'}"])
        key = folder / "fleet.key"
        subprocess.run([gateway_fixture.BINARY, "gateway", "--new-key", key], check=True)
        pair = json.dumps([str(BOX), "--served-model-name", "pair", "--max-model-len", "768", "--max-num-seqs", "2", "--kv-cache-memory", "16MiB", "--swap-space", "16MiB"])
        config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{cls.admin}"\nfleet_key_file = "{key}"\n[autoscaler]\nstate_dir = "{folder / "state"}"\n'
                          f'[[pool]]\nname = "box"\nmodel = "pelton-box"\n[pool.scale]\nmin = 1\n[pool.launch]\nserve = {serve}\n'
                          # Of two roles, at zero until it is asked: some panels are of such ones alone.
                          f'[[pool]]\nname = "pair"\nmodel = "pair"\ntokenizer = "{BOX}"\nsplit = "always"\n[pool.scale]\nmin = 0\nmax = 1\nprefill_min = 0\n'
                          f'policy = "slo"\nttft = 1\nitl = 0.1\n[pool.launch]\nserve = {pair}\n')
        cls.gateway = Process("gateway", "--config", config, "--with-autoscaler")
        check_stream(cls.gateway.port, 1, 20, 1)
        check_stream(cls.gateway.port, 1, 20, 1)
        cls.worker = int(re.search(r"listening on http://[^:]+:(\d+)", (folder / "state" / "box.0.out").read_text()).group(1))
        cls.folder = folder
        # Over its own port too: what counts requests there has something to say.
        status, text = ask(cls.worker, "POST", "/v1/chat/completions", chat(1, 20, 1))
        assert status == 200, text

    @classmethod
    def tearDownClass(cls):
        cls.gateway.end(signal.SIGTERM)
        cls.scratch.cleanup()

    def test_none_is_missing_and_none_unknown(self):
        seen = exported(self.worker)
        self.assertEqual(listed("serve", always=True) - seen, set(), "named in deploy/metrics.toml, and not exported")
        self.assertEqual(seen - listed("serve", always=False), set(), "exported, and not named in deploy/metrics.toml")
        seen = exported(self.admin)
        self.assertEqual((listed("gateway", always=True) | listed("autoscaler", always=True)) - seen, set())
        self.assertEqual(seen - listed("gateway", always=False) - listed("autoscaler", always=False), set())

    def name_targets(self):
        fresh = self.folder / "targets.new"
        fresh.write_text(json.dumps([{"targets": [f"127.0.0.1:{self.worker}", f"127.0.0.1:{self.admin}"]}]))
        fresh.rename(self.folder / "targets.json")

    @staticmethod
    def has_data(port, expression):
        try:
            status, text = ask(port, "GET", "/api/v1/query?query=" + urllib.parse.quote(expression))
        except OSError:
            return False
        return status == 200 and any(row["value"][1] != "NaN" for row in json.loads(text)["data"]["result"])

    def lose_the_worker_amid_a_stream(self):
        """The answer waits for the replica that is started in its place, and goes on there: a wait, and a gap."""
        answer = threading.Thread(target=check_stream, args=(self.gateway.port, 1, 1500, 1))
        answer.start()
        time.sleep(0.5)
        pids = subprocess.run(["fuser", self.folder / "state" / "box.0.replica"], capture_output=True, text=True, check=False).stdout.split()
        self.assertEqual(len(pids), 1, "the replica's process holds the file")
        os.kill(int(pids[0]), signal.SIGKILL)
        answer.join(60)
        self.assertFalse(answer.is_alive(), "the answer goes on")
        type(self).worker = int(re.search(r"listening on http://[^:]+:(\d+)", (self.folder / "state" / "box.0.out").read_text()).group(1))
        status, text = ask(self.worker, "POST", "/v1/chat/completions", chat(1, 20, 1))
        self.assertEqual(status, 200, text)
        self.name_targets()

    @full
    def test_every_panel_has_data(self):
        prometheus = shutil.which("prometheus")
        self.assertIsNotNone(prometheus, "tools/install_packages --full")
        port = free_port()
        config = self.folder / "prometheus.yml"
        config.write_text(f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{DEPLOY / 'prometheus' / 'rules.yaml'}]\n"
                          f"scrape_configs: [{{job_name: pelton, file_sd_configs: [{{files: ['{self.folder}/targets.json']}}]}}]\n")
        self.name_targets()
        with open(self.folder / "prometheus.log", "w", encoding="utf-8") as log, subprocess.Popen(
                [prometheus, f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}"],
                stdout=log, stderr=log) as process:
            self.addCleanup(process.terminate)
            missing = {with_variables(query["expr"], board) for board in DESCRIBED["dashboard"] for panel in board["panels"] for query in panel["queries"]}
            # Nothing of a fleet that is well is refused, so that this one is empty.
            missing = {expression for expression in missing if "status=~" not in expression}
            number = 2
            end = time.monotonic() + 240
            while not self.has_data(port, "pelton_gateway_stream_gap_seconds_count"):
                self.assertLess(time.monotonic(), end, "nothing is scraped")
                time.sleep(0.2)
            self.lose_the_worker_amid_a_stream()
            status, text = ask(self.gateway.port, "POST", "/v1/chat/completions", {**chat(1, 20, 1), "model": "pair"})
            self.assertEqual(status, 200, text)
            while missing and time.monotonic() < end:
                check_stream(self.gateway.port, number, 20, number)
                number += 1
                for expression in sorted(missing):
                    if self.has_data(port, expression):
                        missing.discard(expression)
                time.sleep(0.5)
            process.terminate()
        self.assertEqual(missing, set())


if __name__ == "__main__":
    gateway_fixture.BINARY = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
