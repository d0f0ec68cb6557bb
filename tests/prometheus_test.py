#!/usr/bin/env python3
"""Debian's Prometheus, unmodified, scrapes `pelton serve` and answers questions about it.

usage: prometheus_test.py BINARY

Exit code 77 (skipped) where there is no Prometheus; an error under PELTON_FULL=1. Everything is on the
loopback, bounded in time, and ended by its own process id.
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

import gateway_fixture
from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None
# What dashboards, scalers and pickers look at: gauges and counters, then histograms.
NAMES = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
         "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total",
         "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total",
         "vllm:cache_config_info", "http_requests_total", "http_request_size_bytes_sum",
         "http_response_size_bytes_count",
         "vllm:kv_block_lifetime_seconds_count", "vllm:kv_block_idle_before_evict_seconds_count",
         "process_cpu_seconds_total", "pelton_ready"]
HISTOGRAMS = ["vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
              "vllm:e2e_request_latency_seconds", "vllm:request_queue_time_seconds",
              "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds",
              "vllm:request_inference_time_seconds", "vllm:request_prompt_tokens",
              "vllm:request_generation_tokens", "vllm:request_params_n", "vllm:request_params_max_tokens",
              "vllm:request_max_num_generation_tokens", "vllm:iteration_tokens_total",
              "vllm:kv_block_reuse_gap_seconds", "http_request_duration_seconds", "pelton_token_delivery_seconds"]
QUESTIONS = 3


def get(url):
    with urllib.request.urlopen(url, timeout=10) as reply:
        return reply.read()


@contextlib.contextmanager
def running(command, **options):
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Prometheus(unittest.TestCase):
    def ask(self, query):
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        return json.loads(get(url))["data"]["result"]

    def value(self, query):
        result = self.ask(query)
        return float(result[0]["value"][1]) if result else None

    def wait_for(self, query, accept):
        deadline = time.monotonic() + 40
        value = None
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                value = self.value(query)
                if value is not None and accept(value):
                    return value
            time.sleep(0.2)
        self.fail(f"{query} stayed at {value}")

    def test_scrapes(self):
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            subprocess.run([BINARY, "synth", "--like", str(ROOT / "testdata/demo_model.json"), str(folder / "model")],
                           check=True, capture_output=True)
            (folder / "script.json").write_text(json.dumps({"step_ms": 1, "rules": [
                {"when": "", "then": ["<|channel|>final<|message|>", {"text": "and on ", "times": 20}]}]}))
            server = stack.enter_context(running(
                [BINARY, "serve", str(folder / "model"), "--port", "0", "--executor",
                 f"modelled:{folder}/script.json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
            url = server.stdout.readline().split()[-1]
            for _ in range(QUESTIONS):
                body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "stream": True}).encode()
                request = urllib.request.Request(url + "/v1/chat/completions", body,
                                                 {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=30) as reply:
                    self.assertIn(b"[DONE]", reply.read())

            self.scrape(stack, folder, {"pelton": [urllib.parse.urlsplit(url).netloc]})
            self.wait_for('sum(vllm:request_success_total{finished_reason="stop"})', lambda n: n == QUESTIONS)
            for name in NAMES:
                self.assertTrue(self.ask(name), name)
            for name in HISTOGRAMS:
                self.assertGreater(self.value(f"sum({name}_count)"), 0, name)
                self.assertTrue(self.ask(f'{name}_bucket{{le="+Inf"}}'), name)
            self.assertEqual(self.value("sum(vllm:request_prompt_tokens_count)"), QUESTIONS)
            labels = self.ask("vllm:num_requests_running")[0]["metric"]
            self.assertEqual(labels["model_name"], "model")
            self.assertGreater(float(self.ask("vllm:cache_config_info")[0]["metric"]["block_size"]), 0)
            # As dashboards ask: quantiles, and tokens by second.
            quantile = self.value("histogram_quantile(0.5, sum by (le) (vllm:inter_token_latency_seconds_bucket))")
            self.assertGreater(quantile, 0)
            self.assertLess(quantile, 1)
            self.wait_for("rate(vllm:generation_tokens_total[10s])", lambda rate: rate >= 0)


    def scrape(self, stack, folder, jobs):
        """Prometheus over these addresses by job, until all of them are up."""
        self.port = free_port()
        text = "global: {scrape_interval: 500ms, scrape_timeout: 400ms}\nscrape_configs:\n"
        for job, addresses in jobs.items():
            text += f"- job_name: {job}\n  static_configs:\n  - targets: {json.dumps(addresses)}\n"
        (folder / "prometheus.yml").write_text(text)
        stack.enter_context(running(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=error"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.wait_for("sum(up)", lambda up: up == sum(map(len, jobs.values())))

    def test_a_gateways_sums_are_its_workers(self):
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            fleet = gateway_fixture.Fleet(folder, 2)
            stack.callback(fleet.close)
            for number in range(12):
                body = gateway_fixture.chat(number, 20, number, stream=number % 2 == 0)
                if number % 3 == 0:
                    body["max_tokens"] = 10
                status = gateway_fixture.ask(fleet.gateway.port, "POST", "/v1/chat/completions", body)[0]
                self.assertEqual(status, 200)
            self.scrape(stack, folder, {
                "gateway": [f"127.0.0.1:{fleet.admin}"],
                "workers": [f"127.0.0.1:{worker.port}" for worker in fleet.workers]})
            self.wait_for('sum(vllm:request_success_total{job="workers"})', lambda n: n == 12)
            names = ["vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:prefix_cache_hits_total",
                     "vllm:num_requests_running", "vllm:num_requests_waiting",
                     "vllm:time_to_first_token_seconds_count", "vllm:e2e_request_latency_seconds_count",
                     *(f'vllm:request_success_total{{finished_reason="{why}"}}' for why in ("stop", "length", "abort", "error"))]
            for name in names:
                of = {job: self.value(f"sum({name} and on (job) up{{job='{job}'}})") for job in ("gateway", "workers")}
                self.assertIsNotNone(of["gateway"], name)
                self.assertEqual(of["gateway"], of["workers"], name)
            for why, count in (("stop", 8), ("length", 4)):
                self.assertEqual(self.value(f'vllm:request_success_total{{job="gateway",finished_reason="{why}"}}'), count)
            self.assertEqual(self.value('inference_pool_ready_pods{name="box"}'), 2)
            self.assertEqual(self.value('inference_pool_average_queue_size{name="box"}'), 0)
            self.assertIsNotNone(self.value('inference_pool_average_kv_cache_utilization{name="box"}'))
            labels = self.ask('vllm:generation_tokens_total{job="gateway"}')[0]["metric"]
            self.assertEqual((labels["model_name"], labels["pool"]), ("pelton-box", "box"))
            self.assertGreater(float(self.ask('vllm:generation_tokens_total{job="gateway"}')[0]["value"][1]), 12 * 10)


if __name__ == "__main__":
    BINARY = gateway_fixture.BINARY = os.path.abspath(sys.argv.pop())
    if shutil.which("prometheus") is None:
        print("prometheus is not installed")
        sys.exit(1 if os.environ.get("PELTON_FULL") == "1" else 77)
    unittest.main()
