#!/usr/bin/env python3
"""A7: no verb takes a flag that it does not use: every flag of every verb is tried in every way the verb can be
used, and is either read (the binary itself ends with 2 otherwise) or refused by its name. Of the ways of one verb each
flag meets one, and of the flags a sixth is tried, drawn by $PELTON_SEED; all of them with $PELTON_FULL.

usage: flags_test.py BINARY
"""
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from tiers import FULL

ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY = ROOT / "testdata" / "golden" / "tiny"
BOX = ROOT / "models" / "pelton-box"
BINARY = None

# A value that each flag takes; where the way of use matters, under "verb flag".
VALUES = {
    "--chunk-ms": "50", "--delay-max": "3",
    "--transport": "tcp", "--ranks": "2", "--bytes": "4096",
    "--voice": "tara", "--rounds": "2", "--buffer": "0.1", "--input-file": "text.txt",
    "--tasks": "arithmetic", "--num-tasks": "1", "--limit": "1", "--serve-flag": "--offline", "--window": "64", "--stride": "2",
    "--against-weights": "shipped", "--against-kv-cache-dtype": "int8", "--against-kernels": "reference", "--query": "q", "--label-tokens": "1,2",
    "--prompt-name": "query", "--dimensions": "4", "--language": "en", "--task": "translate", "--mel-out": "m.npy",
    "--encoder-out": "e.npy", "--language-out": "n.npy", "--logits-out": "l2.npy", "--codes": "ids.json",
    "--speech-decoder": ROOT / "testdata" / "golden" / "audio" / "snac", "--speech-voices": "tara", "--speech-threads": "1",
    "--rerank-by": "cosine", "--rerank-documents": "2", "--console": "off", "--gateway": "front", "--batches": "kept_batches", "--tool-server": "python=http://127.0.0.1:9/mcp", "--tool-timeout": "5", "--http2": "off", "--max-tool-calls": "3", "--batches-bytes": "1MiB", "--batches-age": "3600",
    "--chains": ROOT / "chains", "--chain-hosts": "127.0.0.1", "--url": "http://127.0.0.1:1", "--input": "{}",
    "--max-batch-requests": "2", "--max-batch-lines": "10", "--max-batch-line-bytes": "64KiB",
    "--access-log": "json", "--admin-host": "127.0.0.1", "--admin-port": "0", "--admin-api-key": "a", "--api-key": "k",
    "--cors-origin": "https://a.example", "--drain-delay-seconds": "0", "--drain-seconds": "1",
    "--generation-config": "auto", "--grpc-port": "0", "--http-threads": "2", "--log-level": "info",
    "--max-connections": "100", "--numerical-errors-max": "3", "--otlp-endpoint": "http://127.0.0.1:1/v1/traces",
    "--pooling": "mean", "--reasoning-field": "reasoning", "--response-store": "memory",
    "--response-store-age": "60", "--response-store-bytes": "1MiB", "--response-store-entries": "5",
    "--sampled-turn-tokens": "1000", "--trace-share": "0.5", "--watchdog-action": "exit", "--watchdog-seconds": "30",
    "--weight-scrub-hours": "1",
    "--decision-interval": "30", "--fidelity": "fluid", "--seeds": "2", "--days": "0.02", "--pools": "2", "--fluid-tick": "20",
    "--swap-bandwidth": "20GB", "--swap-latency": "20", "--kv-disk-bandwidth": "2GB", "--kv-disk-latency": "200",
    "--kv-link-bandwidth": "10GB", "--kv-link-latency": "60", "--split": "always", "--handoff": "first", "--prefill-replicas": "1",
    "--embed-share": "0.25", "--failure-zones": "2", "--failure-regions": "2", "--failover-seconds": "3", "--without": "replica", "--search": "halving",
    "--start-phases": "provision:2,weights:3~6", "--patience": "30", "--client-retries": "1", "--client-back-off": "0.5", "--late-seconds": "1", "--late-share": "1", "--late-price": "0.01", "--scenario": "spike", "--set": "max=3", "--vary": "max-num-seqs=2,4", "--objectives": "ttft:500", "--last": "60", "--hardware": "l4", "--best-by": "device", "--confirm": "http://127.0.0.1:1", "--confirm-best": "1", "--confirm-rounds": "1", "--confirm-seconds": "5",
    "--assumed-service-seconds": "5", "--start-tier": "disk", "--start-bandwidth": "2GB", "--start-shared-bandwidth": "4GB",
    "--autoscale": "concurrency", "--min-replicas": "1", "--max-replicas": "4", "--start-seconds": "5",
    "--scale-down-delay": "60", "--concurrency-target": "4", "--target-utilization": "0.7",
    "--admin": "http://127.0.0.1:1", "--fleet-host": "127.0.0.1", "--fleet-name": "w", "--fleet-role": "both", "--fleet-port": "0", "--fleet-zone": "z", "--fleet-region": "eu", "--kv-events-endpoint": "tcp://127.0.0.1:*", "--kv-events-form": "array", "--fleet-etcd": "127.0.0.1:1", "--fleet-etcd-prefix": "/x", "--fleet-etcd-user": "u", "--fleet-etcd-password-file": "words", "--fleet-etcd-ca": "words", "--fleet-etcd-cert": "words", "--fleet-etcd-key": "words", "--fleet-pool": "p", "--fleet-address": "127.0.0.1:1", "--if-match": "x",
    "--activations": "int8", "--backend": "openai-chat", "--base-url": "http://127.0.0.1:1", "--batch": "8",
    "--batch-size": "2", "--block-size": "16", "--buffer-size": "1MiB", "--burstiness": "2", "--chunk": "16",
    "--client-threads": "2", "--compute": "bf16", "--concurrencies": "1,2", "--connections": "2", "--count": "3",
    "--current-date": "2026-11-23", "--custom-output-len": "5", "--dataset-name": "random", "--day-period": "60",
    "--watch": "0", "--grace": "5", "--failed-max": "1",
    "--reasoning-parser": "think", "--tool-call-parser": "hermes",
    "--day-swing": "0.5", "--depth": "8", "--device": "cpu", "--device-memory": "80GiB", "--devices": "2", "--draft": "model", "--lora": "adapter", "--draft-chain": "2", "--drafter": "eagle3", "--speculative-tokens": "3", "--speculative-acceptance": "0.5", "--speculative-draft-ms": "0.1", "--router": "cost",
    "--duration": "5", "--answer-seconds": "30", "--transcription-batch": "2", "--transcription-beams": "2", "--beam-size": "2", "--best-of": "2", "--length-penalty": "1", "--seconds": "1", "--endpoint": "/v1/completions", "--executor": "local", "--extra-body": "{}",
    "--fail-if": "failed>1000", "--format": "hf", "--frequency-penalty": "0.1", "--gguf-type": "q8_0",
    "--goodput": "ttft:500", "--gpu": "h100", "--headroom": "0.1", "--header": "a=b", "--host": "127.0.0.1",
    "--allowed-host": "pelton.example",
    "--include": "*.json", "--exclude": "*.txt", "--input-len": "20", "--instance": "p5.48xlarge",
    "--jump-ahead-tokens": "4", "--kernel-choice": "default", "--kernels": "auto", "--kv-cache-dtype": "int8",
    "--kv-cache-memory": "32MiB", "--kv-disk": ".", "--kv-disk-size": "1MiB", "--kv-disk-write": "all", "--kv-port": "0", "--tenant": "t", "--label": "x", "--layers": "1", "--layout": "tp2", "--load-mode": "mmap",
    "--logprobs": "1", "--lora-assignment": "round-robin", "--lora-modules": "model", "--lora-folder": ".", "--lora-loads-per-second": "5",
    "--against-model": "m", "--network-latency": "2", "--network-loss": "0.01", "--facts-delay": "1", "--facts-lost": "0.1", "--adapters": "20", "--adapter-skew": "0.5", "--adapter-base-share": "0.2", "--adapter-load-ms": "5", "--lora-targets": "attention", "--lora-rank": "4", "--lora-alpha": "8", "--lora-experts-rank": "2", "--lora-experts-alpha": "8", "--lora-skew": "1", "--lora-mix": "same", "--max-loras": "2", "--max-cpu-loras": "4", "--max-lora-rank": "8", "--max-concurrency": "2", "--max-logprobs": "5", "--root-path": "/a", "--sleep-after": "5m", "--uds": "serve.sock", "--tokenizer": "model", "--sonnet-input-len": "40", "--sonnet-output-len": "4", "--sonnet-prefix-len": "5", "--hf-output-len": "4", "--download-dir": "hub",
    "--max-model-len": "2048", "--max-num-batched-tokens": "256", "--max-num-queued-reqs": "10",
    "--max-num-queued-tokens": "10K", "--max-audio-bytes": "1MiB", "--max-audio-seconds": "60", "--audio-seconds": "20", "--audio-tokens-per-second": "3", "--audio-hours": "2", "--live-streams": "2", "--live-delay": "4", "--max-num-transcriptions": "4", "--max-num-seqs": "4", "--max-queue-seconds": "5", "--max-tokens": "4",
    "--memory-utilization": "0.8", "--metadata": "k=v", "--metric-percentiles": "50", "--min-p": "0.1", "--model": "model",
    "--blocks": "2", "--num-prompts": "2", "--num-warmups": "1", "--output-len": "4", "--percentile-metrics": "ttft",
    "--port": "1", "--positions": "0:2", "--prefix-repetition-num-prefixes": "1",
    "--prefix-repetition-output-len": "4", "--prefix-repetition-prefix-len": "4", "--prefix-repetition-suffix-len": "4",
    "--presence-penalty": "0.1", "--preset": "conversation", "--price": "3", "--prompt": "Hello",
    "--prompt-size": "100", "--streams": "2", "--token-interval": "1", "--direct-port": "0",
    "--prompt-tokens-beside-decodes": "8", "--ramp-up-end-rps": "100", "--ramp-up-start-rps": "50",
    "--ramp-up-strategy": "linear", "--random-input-len": "10", "--random-output-len": "4",
    "--random-prefix-len": "2", "--random-range-ratio": "0.1", "--rates": "50", "--ready-check-timeout-sec": "1",
    "--reasoning": "low", "--regex": "[a-z]+", "--repetition-penalty": "1.1", "--replicas": "2", "--gateways": "2", "--report-interval": "50", "--zones": "2", "--zone-distance": "20",
    "--path": "/v1/completions", "--request-id-prefix": "r", "--request-rate": "50", "--requests-per-unit": "1", "--result-filename": "r.json",
    "--revision": "main", "--runs": "1", "--scheduling-policy": "decode-first", "--seed": "3",
    "--alias": "x=model", "--served-model-name": "model", "--shared": "4", "--sharegpt-output-len": "4", "--slo": "itl=500ms",
    "--speculative-config": '{"method":"suffix"}', "--steps-in-flight": "1", "--swap-space": "1MiB", "--system": "be brief", "--temperature": "0.5", "--rank-transport": "tcp", "--nnodes": "1", "--node-rank": "0", "--master-addr": "127.0.0.1", "--master-port": "29501", "--rank-token-file": "secret", "--rank-wait-seconds": "5", "--rank-launcher": "own", "--rank-restarts": "1", "--expert-histogram": "chosen.json", "--num-redundant-experts": "1", "--tensor-parallel-size": "2", "--text": "Hi",
    "--think-time": "0.01", "--threads": "1", "--timeout-sec": "30", "--tokenizer-mode": "auto", "--top-k": "5",
    "--top-p": "0.9", "--trace-speed": "2", "--turns": "2", "--weights": "int8", "--weights-cache": "packed", "--weights-from": "http://127.0.0.1:1", "--weights-key": "k", "--weights-endpoint": "http://127.0.0.1:1", "--weights-connections": "2", "--weights-share-port": "0", "--weights-share-host": "127.0.0.1", "--peer": "http://127.0.0.1:1/m", "--rate": "1MiB", "--chunk-size": "64KiB", "--pack": "packed", "--wait": "1", "--chat-template-kwargs": "{}", "--workload": "conversation",
}


class Flags(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pelton_flags_"))
        f = cls.folder
        (f / "ids.json").write_text("[1, 2, 3, 4]")
        (f / "schema.json").write_text('{"type": "integer"}')
        (f / "rules.ebnf").write_text('root ::= "a"+\n')
        (f / "batch").mkdir()
        (f / "batch" / "one.json").write_text('{"schema": {}, "tests": []}')
        (f / "seven.json").write_text("7")
        (f / "tasks.jsonl").write_text('{"prompt": "x", "expect": {"text": "a wheel"}}\n')
        (f / "text.txt").write_text("Hello")
        (f / "trace.jsonl").write_text('{"timestamp": 0, "input_length": 8, "output_length": 4}\n')
        (f / "share.json").write_text(json.dumps([{"conversations": [{"from": "human", "value": "hi there you all out there today"},
                                                                     {"from": "gpt", "value": "hello to you and to all of them"}]}]))
        (f / "custom.jsonl").write_text('{"prompt": "hello", "output_tokens": 3}\n')
        (f / "faults.json").write_text("[]")
        (f / "lines.jsonl").write_text(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions",
                                                   "body": {"prompt": "x", "max_tokens": 2}}) + "\n")
        (f / "scaled.toml").write_text('[autoscaler]\ngateways = ["http://127.0.0.1:1"]\n[[pool]]\nname = "box"\nmodel = "m"\n[pool.scale]\n'
                                       '[pool.launch]\nserve = ["m"]\n')
        shutil.copy(ROOT / "src" / "autoscaler" / "testdata" / "facts_log_fuzz" / "begin", f / "facts.jsonl")
        (f / "gateway.toml").write_text('[[pool]]\nname = "a"\nmodel = "m"\n[[worker]]\npool = "a"\nurl = "http://127.0.0.1:1"\n')
        (f / "chain.toml").write_text('name = "c"\noutput = {text = "${a.text}", stream_from = "a"}\n[[step]]\nname = "a"\nuse = "model:*"\n'
                                      'with = {prompt = "hello", max_tokens = 4}\n')
        (f / "steps.jsonl").write_text("".join(
            json.dumps({"ns": 1_000_000 + 250_000 * rows, "rows": [n for _ in range(rows) for n in (context, 1, 1)]})
            + "\n" for rows in range(1, 9) for context in (50, 400, 900)))
        # A model of the synthetic shape has chat's tokens and answers in no time.
        cls.model = f / "model"
        cls.run_binary("synth", "--like", ROOT / "testdata/demo_model.json", cls.model)
        (f / "script.json").write_text(json.dumps({"step_ms": 1, "rules": [
            {"when": "", "then": "<|channel|>final<|message|>a wheel<|return|>"}]}))
        cls.calibration = f / "calibration.json"
        cls.run_binary("calibrate", BOX, "--step-log", f / "steps.jsonl", "--out", cls.calibration)
        cls.hour = f / "hour.jsonl"
        cls.requests = f / "came.jsonl"
        cls.requests.write_text('{"timestamp":1,"input_length":20,"output_length":5}\n' * 3)
        cls.run_binary("simulate", BOX, "--num-prompts", "20", "--autoscale", "concurrency", "--request-rate", "1", "--record-facts", cls.hour)
        cls.server = subprocess.Popen([BINARY, "serve", cls.model, "--port", "0", "--executor",
                                       f"modelled:{f}/script.json"], stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True)
        cls.url = cls.server.stdout.readline().split()[-1]
        load = ["bench", "serve", "--base-url", cls.url, "--num-prompts", "2", "--input-len", "5", "--output-len", "4"]
        cls.run_binary(*load, "--save-result", "--result-dir", f, "--result-filename", "result.json", "--save-detailed",
                       "--history", f / "bench.db")

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.server.wait(10)
        cls.server.stdout.close()
        shutil.rmtree(cls.folder)

    @classmethod
    def run_binary(cls, *words, stdin="", env=None):
        return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=120, check=False,
                              input=stdin, cwd=cls.folder,
                              env={**os.environ, "PELTON_BENCH_LOCK_HELD": "1", "COLUMNS": "100",
                                   "PELTON_CACHE": str(cls.folder / "cache"), "HF_HOME": str(cls.folder / "hub"), **(env or {})})

    def ways(self):
        """Each verb: how it is used, whole command lines without the flag that is tried."""
        f, m = self.folder, self.model
        box = ["--kv-cache-memory", "16MiB"]
        scripted = ["--executor", f"modelled:{f}/script.json"]
        load = ["--base-url", self.url, "--num-prompts", "2"]
        return {
            "chat": [["chat", m, "hello", *scripted]],
            "generate": [["generate", m, "--prompt", "x", "--max-tokens", "3", *box],
                         ["generate", m, "--tokens", f / "ids.json", "--max-tokens", "3", *box],
                         ["generate", m, "--prompt", "x", "--temperature", "1", "--max-tokens", "3", *box]],
            "run-batch": [["run-batch", m, "--input", f / "lines.jsonl", "--output", "{new}", *scripted]],
            "logits": [["logits", TINY, "--tokens", f / "ids.json", "--out", f / "l.npy"]],
            "tokenize": [["tokenize", m, "--text", "hi"], ["tokenize", m, "--decode", "--file", f / "ids.json"]],
            "grammar": [["grammar", "--tokenizer", m, *one] for one in
                        (["--schema", f / "schema.json"], ["--regex", "a+"], ["--ebnf", f / "rules.ebnf"],
                         ["--batch", f / "batch"], ["--schema", f / "schema.json", "--instance", f / "seven.json"])],
            "inspect": [["inspect", TINY]],
            "pack": [["pack", TINY, "{new}"]],
            "plan": [["plan", "gpt-oss-20b"], ["plan", "gpt-oss-20b", "--gpu", "h100"],
                     ["plan", "gpt-oss-20b", "--gpu", "h100", "--memory"],
                     ["plan", "gpt-oss-20b", "--instance", "p4de.24xlarge", "--slo", "itl=900ms", "--rps", "1"],
                     ["plan", "--published"]],
            "calibrate": [["calibrate", BOX, "--step-log", f / "steps.jsonl"]],
            "simulate": [["simulate", BOX, "--num-prompts", "2"],
                         ["simulate", BOX, "--num-prompts", "2", "--calibration", self.calibration],
                         ["simulate", BOX, "--num-prompts", "2", "--autoscale", "concurrency"],
                         ["simulate", "gpt-oss-20b", "--gpu", "h100", "--num-prompts", "2"],
                         ["simulate", "--scenario", "spike", "--num-prompts", "2"],
                         ["simulate", "--scenario", "two-zones-year", "--days", "0.02"], ["simulate", "--list"]],
            "whatif": [["whatif", "--facts", self.hour]],
            "tune": [["tune", "gpt-oss-20b", "--gpu", "h100", "--num-prompts", "2", "--vary", "max-num-seqs=4,8"],
                     ["tune", BOX, "--num-prompts", "2", "--vary", "max-num-batched-tokens=64"]],
            "autoscale recommend": [["autoscale", "recommend", "gpt-oss-20b", "--gpu", "h100", "--num-prompts", "2", "--vary", "max=2,4", "--late-share", "1"],
                                    ["autoscale", "recommend", BOX, "--num-prompts", "2", "--vary", "min=0,1", "--late-share", "1", "--max-replicas", "2"]],
            "verify": [["verify", TINY]],
            "eval": [["eval", "--base-url", self.url, "--tasks", "arithmetic", "--num-tasks", "1", "--max-tokens", "8"],
                     ["eval", "--base-url", self.url, "--tasks", f / "tasks.jsonl"]],
            "perplexity": [["perplexity", TINY, "--tokens", f / "ids.json"], ["perplexity", m, "--text", f / "text.txt"]],
            "embed": [["embed", TINY, "--tokens", f / "ids.json"], ["embed", m, "--text", "hi"]],
            "transcribe": [["transcribe", f / "nowhere", f / "text.txt"]],  # no such model is here
            "snac": [["snac", f / "nowhere", "--codes", f / "ids.json", "--out", f / "o.wav"]],
            "synth": [["synth", "--like", TINY / "config.json", "{new}"],
                      ["synth", "--like", TINY / "config.json", "--format", "gguf", "{new}"]],
            "bench latency": [["bench", "latency", TINY, "--input-len", "4", "--output-len", "2", "--runs", "1",
                               "--buffer-size", "1MiB"],
                              ["bench", "latency", TINY, "--input-len", "4", "--output-len", "2", "--runs", "1",
                               "--tensor-parallel-size", "2"]],
            "bench prefix": [["bench", "prefix", m, "--input-len", "64", "--shared", "32", "--runs", "1", *box]],
            "bench serve": [["bench", "serve", *load],
                            ["bench", "serve", *load, "--dataset-name", "prefix_repetition"],
                            ["bench", "serve", *load, "--dataset-name", "trace", "--dataset-path", f / "trace.jsonl"],
                            ["bench", "serve", *load, "--dataset-name", "sharegpt", "--dataset-path", f / "share.json"],
                            ["bench", "serve", *load, "--dataset-name", "custom", "--dataset-path", f / "custom.jsonl"],
                            ["bench", "serve", *load, "--backend", "openai-embeddings"],
                            ["bench", "serve", *load, "--backend", "vllm-rerank"],
                            ["bench", "serve", *load, "--preset", "conversation"]],
            "bench sweep": [["bench", "sweep", *load, "--concurrencies", "1", "--requests-per-unit", "1"],
                            ["bench", "sweep", *load, "--rates", "50"]],
            "bench throughput": [["bench", "throughput", m, "--num-prompts", "2", *box]],
            "bench compare": [["bench", "compare", f / "result.json"]],
            "bench history": [["bench", "history", f / "bench.db"]],
            "bench exchange": [["bench", "exchange", "--rounds", "10"]],
            "bench bandwidth": [["bench", "bandwidth", "--buffer-size", "1MiB", "--runs", "1"]],
            "bench gateway": [["bench", "gateway", "--runs", "1", "--duration", "0.1", "--streams", "2", "--output-len", "4"]],
            "bench kv": [["bench", "kv", "--from", "http://127.0.0.1:1", "--to", "http://127.0.0.1:1", "--fleet-key-file", f / "nowhere"]],
            "bench speech": [["bench", "speech", "--base-url", "http://127.0.0.1:1", "--model", "m", "--voice", "v"]],
            "bench transcribe": [["bench", "transcribe", f / "text.txt"]],  # no sound
            "pull": [["pull", "someone/tiny", "--endpoint", "http://127.0.0.1:1"]],
            "cache list": [["cache", "list"]],
            "cache purge": [["cache", "purge", "--all"], ["cache", "purge", "some/one"]],
            "list": [["list"]],
            "rm": [["rm", "some/one"]],
            "ps": [["ps"]],
            "stop": [["stop", "nobody"]],  # never --all alone: others' servers run here
            "gateway": [["gateway", "--config", f / "gateway.toml", "--check"], ["gateway", "--new-key", "{new}"]],
            "autoscale": [["autoscale", "--config", f / "scaled.toml", "--check"], ["autoscale", "--replay", f / "facts.jsonl"],
                          ["autoscale", "--explain", "box", "--admin", "http://127.0.0.1:1"]],
            "quickstart fleet": [["quickstart", "fleet", f / "nowhere"]],  # no such model is here
            "fleet explain": [["fleet", "explain", f / "schema.json", "--admin", "http://127.0.0.1:1"],
                              ["fleet", "explain", f / "schema.json"]],
            "fleet config get": [["fleet", "config", "get", "--admin", "http://127.0.0.1:1"]],
            "fleet config put": [["fleet", "config", "put", f / "gateway.toml", "--admin", "http://127.0.0.1:1"]],
            "fleet limits": [["fleet", "limits", "--tenant", "a", "--admin", "http://127.0.0.1:1"], ["fleet", "limits", "--json"]],
            "fleet apply": [["fleet", "apply", f / "gateway.toml", "--admin", "http://127.0.0.1:1"]],
            "fleet stage": [["fleet", "stage", f / "schema.json", "--to", "eu=http://127.0.0.1:1"]],
            "fleet diff": [["fleet", "diff", f / "gateway.toml", "--admin", "http://127.0.0.1:1"]],
            "fleet get": [["fleet", "get", "pool", "a", "--admin", "http://127.0.0.1:1"], ["fleet", "get", "all"]],
            "fleet delete": [["fleet", "delete", "pool", "a", "--admin", "http://127.0.0.1:1"], ["fleet", "delete", "etcd"]],
            "fleet patch": [["fleet", "patch", f / "schema.json", "--admin", "http://127.0.0.1:1"], ["fleet", "patch", f / "schema.json", "pool", "a"]],
            "fleet history": [["fleet", "history", "--admin", "http://127.0.0.1:1"], ["fleet", "history", "3"]],
            "fleet revert": [["fleet", "revert", "3", "--admin", "http://127.0.0.1:1"]],
            "posture": [["posture", f"gateway --config {f / 'gateway.toml'}"], ["posture", f"serve {BOX}"]],
            "audit verify": [["audit", "verify", f / "nowhere", "--key-file", f / "secret"]],
            "audit show": [["audit", "show", f / "nowhere", "--key-file", f / "secret"]],
            "fleet rollouts": [["fleet", "rollouts", "--admin", "http://127.0.0.1:1"]],
            "fleet rollout": [["fleet", "rollout", "v2"], ["fleet", "rollout", "v2", "pause", "--admin", "http://127.0.0.1:1"]],
            "fleet role": [["fleet", "role", "w", "both"]],
            "fleet erase": [["fleet", "erase", "--admin", "http://127.0.0.1:1"]],
            "fleet init": [["fleet", "init", "one", "--out", "{new}"]],
            "fleet ls": [["fleet", "ls", "--admin", "http://127.0.0.1:1"], ["fleet", "ls"]],
            **{f"fleet {word}": [["fleet", word, "w"]] for word in ("show", "drain", "move", "undrain", "eject", "restore")},
            **{f"kv {word}": [["kv", word, f / "batch"], ["kv", word, f / "nowhere", "--tenant", "a"]] for word in ("ls", "erase")},
            "store ls": [["store", "ls", f / "nowhere"], ["store", "ls", f / "words"]],
            "store erase": [["store", "erase", f / "nowhere", "--tenant", "a"]],
            "kv check": [["kv", "check", f / "batch", "--kv-disk-key-file", f / "words"]],
            "weights serve": [["weights", "serve", f / "nowhere"]],  # would serve until it is ended
            "weights mirror": [["weights", "mirror", f"{self.url}/m", "{new}"]],  # no such model is there
            "weights manifest": [["weights", "manifest", TINY]],
            "weights ls": [["weights", "ls", f]],
            "weights erase": [["weights", "erase", f / "batch"]],  # no copy
            "capacity plan": [["capacity", "plan", "--config", ROOT / "deploy" / "capacity.toml"]],
            "availability": [["availability", "--config", ROOT / "deploy" / "capacity.toml"]],
            "chain check": [["chain", "check", ROOT / "chains" / "retrieve.toml"]],
            "chain graph": [["chain", "graph", ROOT / "chains" / "retrieve.toml"]],
            "chain run": [["chain", "run", f / "chain.toml", "--url", self.url], ["chain", "run", f / "chain.toml"]],
            "completion": [["completion", "bash"]],
            "manual": [["manual"], ["manual", "serve"]],
        }

    def value_of(self, verb, flag):
        files = {"--tokens": self.folder / "ids.json", "--schema": self.folder / "schema.json",
                 "--ebnf": self.folder / "rules.ebnf", "--instance": self.folder / "seven.json",
                 "--tokenizer": self.model, "--faults": self.folder / "faults.json",
                 "--calibration": self.calibration, "--step-log": self.folder / "steps.jsonl",
                 "--idle-result": self.folder / "result.json", "--dataset-path": self.folder / "trace.jsonl",
                 "--ca-file": "/etc/ssl/certs/ca-certificates.crt", "--file": self.folder / "text.txt",
                 "--chat-template": self.folder / "text.txt", "--tls-cert": self.folder / "cert.pem", "--tls-key": self.folder / "key.pem",
                 "--tls-client-ca": self.folder / "cert.pem",
                 "--like": TINY / "config.json", "--result-dir": self.folder, "--history": self.folder / "b.db",
                 "--out": self.folder / "out.npy", "--hidden": self.folder / "hidden.npy",
                 "--output-json": self.folder / "o.json", "--kv-disk-key-file": self.folder / "words", "--admin-key-file": self.folder / "secret", "--html": self.folder / "p.html"}
        special = {("grammar", "--batch"): self.folder / "batch", ("verify", "--tokens"): "2",
                   ("grammar", "--instance"): self.folder / "seven.json", ("manual", "--out"): self.folder / "man",
                   ("pull", "--endpoint"): "http://127.0.0.1:1", ("simulate", "--goodput"): "ttft:500",
                   ("bench gateway", "--duration"): "0.1", ("bench gateway", "--beside"): self.url, ("bench gateway", "--tokenizer"): self.model,
                   ("bench serve", "--endpoint"): "/v1/completions", ("plan", "--model"): "gpt-oss-20b",
                   ("gateway", "--config"): self.folder / "gateway.toml", ("gateway", "--new-key"): self.folder / "k", ("fleet init", "--name"): "box", ("fleet stage", "--to"): "eu=http://127.0.0.1:1",
                   ("capacity plan", "--config"): ROOT / "deploy" / "capacity.toml",
                   ("availability", "--config"): ROOT / "deploy" / "capacity.toml", ("capacity plan", "--without"): "north/eu/2",
                   ("simulate", "--gpu"): "rtx-4080", ("simulate", "--scale-config"): self.folder / "scaled.toml", ("simulate", "--pool"): "box", ("simulate", "--facts"): self.hour,
                   ("simulate", "--record-facts"): self.folder / "facts3", ("whatif", "--facts"): self.hour, ("whatif", "--pool"): "simulated",
                   ("tune", "--history"): self.folder / "tune.db", ("tune", "--calibration-out"): self.folder / "fitted.json", ("tune", "--scale-config"): self.folder / "scaled.toml", ("tune", "--pool"): "box", ("tune", "--facts"): self.hour,
                   ("autoscale recommend", "--scale-config"): self.folder / "scaled.toml", ("autoscale recommend", "--pool"): "box", ("autoscale recommend", "--facts"): self.hour,
                   ("autoscale recommend", "--vary"): "max=3,5",
                   ("gateway", "--record-facts"): self.folder / "facts", ("posture", "--profile"): "local", ("gateway", "--capacity"): ROOT / "deploy" / "capacity.toml", ("gateway", "--record-requests"): self.folder / "requests", ("gateway", "--audit-log"): self.folder / "audit.jsonl", ("gateway", "--audit-key-file"): self.folder / "secret",
                   **{("serve", flag): self.folder / "secret" for flag in ("--audit-log", "--audit-key-file")}, **{(f"audit {word}", "--key-file"): self.folder / "secret" for word in ("verify", "show")}, **{(f"audit {word}", "--noted"): "0" * 64 for word in ("verify", "show")},
                   ("simulate", "--requests"): self.requests, ("tune", "--requests"): self.requests, ("autoscale recommend", "--requests"): self.requests, ("autoscale", "--config"): self.folder / "scaled.toml",
                   ("autoscale", "--record-facts"): self.folder / "facts2", ("autoscale", "--replay"): self.folder / "facts.jsonl", ("autoscale", "--explain"): "box",
                   ("plan", "--json"): None, ("plan", "--workload"): "conversation", ("eval", "--fail-if"): "errors>1000",
                   ("eval", "--model"): "model", ("serve", "--lora-modules"): "x=model", ("synth", "--lora"): "attention", ("bench latency", "--lora-modules"): "x=model", ("eval", "--against"): self.folder / "before.json",
                   ("perplexity", "--against"): TINY, ("perplexity", "--fail-if"): "perplexity>1e9", ("transcribe", "--format"): "srt", ("embed", "--out"): self.folder / "e.npy",
                   ("run-batch", "--step-log"): self.folder / "batch.steps", ("run-batch", "--pin-prefix"): self.folder / "text.txt"}
        if (verb, flag) in special:
            return special[(verb, flag)]
        return files.get(flag, VALUES.get(flag))

    def flags_of(self, verb):
        help_text = self.run_binary(*verb.split(), "--help").stdout
        listed = help_text.split("\nFlags\n")[1].split("\nEvery flag")[0]
        return re.findall(r"(?m)^  (--[a-z-]+)(?: ([A-Z][^ ]*|[a-z=,A-Z]+=T\S*))?(?:  |$)", listed)

    def draw(self):
        seed = int(os.environ.get("PELTON_SEED") or random.randrange(1 << 30))
        print(f"PELTON_SEED={seed}")
        return random.Random(seed)

    def some_of(self, all_of_them, draw):
        return all_of_them if FULL else draw.sample(all_of_them, len(all_of_them) // 6)

    def try_one(self, verb, way, index, flag, takes):
        words = [str(self.folder / f"new_{abs(hash((verb, index, flag)))}") if str(word) == "{new}" else word
                 for word in way]
        words.append(flag)
        if takes:
            value = self.value_of(verb, flag) if flag != "--json" else self.folder / f"j{abs(hash((verb, index)))}"
            if value is None:
                return f"{verb} {flag}: the test knows no value for it"
            words.append(value)
        done = self.run_binary(*words)
        said = done.stderr
        if "done, but without" in said:
            return f"{' '.join(map(str, words))}: taken, and not used: {said}"
        named = flag in said or flag.lstrip("-") in said
        if done.returncode == 2 and not named and not re.search(
                r"give (one|MODEL|either)|no such|pull|was measured on|has a100-80|at least 4 are|'prompt' is missing",
                said):
            return f"{' '.join(map(str, words))}: refused without its name: {said}"
        return None

    def test_A7_every_flag_is_used_or_refused(self):
        verbs = re.findall(r"(?m)^  ((?:[a-z][a-z-]* )+)", self.run_binary("--help").stdout.split("\nVerbs\n")[1]
                           .split("\n\n")[0])
        ways = self.ways()
        self.assertEqual({verb.strip() for verb in verbs} - set(ways), {"serve"})  # below
        draw = self.draw()
        jobs = []
        for verb, all_ways in ways.items():
            for flag, takes in self.flags_of(verb):
                fitting = [(index, way) for index, way in enumerate(all_ways)
                           if flag != "--help" and flag not in map(str, way)]
                if fitting and not FULL:
                    fitting = [draw.choice(fitting)]
                jobs += [(verb, way, index, flag, takes) for index, way in fitting]
        self.assertGreater(len(jobs), 300)
        jobs = self.some_of(jobs, draw)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            faults = [fault for fault in pool.map(lambda job: self.try_one(*job), jobs) if fault]
        self.assertEqual(faults, [], "\n".join(faults))

    def try_serve(self, flag, takes):
        """Started with that flag and stopped: 0, or refused by name at once."""
        f = self.folder
        files = {"--access-log-file": f / "access.log", "--api-key-file": f / "keys", "--step-log": f / "serve.steps",
                 "--pin-prefix": f / "text.txt", "--reasoning-key-file": f / "secret", "--store-key-file": f / "secret", "--tls-cert": f / "cert.pem", "--tls-key": f / "key.pem",
                 "--tls-client-ca": f / "cert.pem", "--config": f / "pelton.toml", "--executor": None,
                 "--fleet-key-file": f / "keys"}
        words = [flag]
        if takes:
            value = files.get(flag, self.value_of("serve", flag))
            if value is None:
                return None if flag == "--executor" else f"serve {flag}: the test knows no value for it"
            words.append(str(value))
        scripted = flag not in ("--enable-lora", "--kernels", "--threads", "--block-size", "--weights", "--weights-cache", "--device", "--kernel-choice")
        process = subprocess.Popen(
            [BINARY, "serve", self.model, *words, *([] if flag == "--port" else ["--port", "0"]),
             *(["--executor", f"modelled:{f}/script.json"] if scripted else ["--max-model-len", "512"])],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=f,
            env={**os.environ, "PELTON_CACHE": str(f / "cache")})
        try:
            listening = process.stdout.readline()
            process.terminate()
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
        if "done, but without" in said:
            return f"serve {flag}: taken, and not used: {said[-300:]}"
        if listening and process.returncode != 0:
            return f"serve {flag}: ends with {process.returncode}: {said[-300:]}"
        if not listening and flag.lstrip("-") not in said and flag not in ("--port", "--print-config"):
            return f"serve {flag}: refused without its name: {said[-300:]}"
        return None

    def test_A7_serve_too(self):
        (self.folder / "keys").write_text("k tenant\n")
        (self.folder / "secret").write_text("s" * 40)
        (self.folder / "secret").chmod(0o600)
        (self.folder / "pelton.toml").write_text("log-level = \"info\"\n")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2",
                        "-keyout", self.folder / "key.pem", "-out", self.folder / "cert.pem"], check=True, capture_output=True)
        flags = [(flag, takes) for flag, takes in self.flags_of("serve") if flag not in ("--help", "--print-config")]
        self.assertGreater(len(flags), 50)
        flags = self.some_of(flags, self.draw())
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            faults = [fault for fault in pool.map(lambda one: self.try_serve(*one), flags) if fault]
        self.assertEqual(faults, [], "\n".join(faults))

    def test_A7_words_go_before_variables_that_they_do_not_go_with(self):
        f = self.folder
        generate = ["generate", self.model, "--max-tokens", "3", "--executor", f"modelled:{f}/script.json"]
        for words, env, said in (
                (["plan", BOX], {"PELTON_MODEL": "/nowhere"}, "pelton-box"),
                (["plan", "gpt-oss-20b", "--instance", "p4de.24xlarge"], {"PELTON_GPU": "h100"}, "a100"),
                (["plan", "gpt-oss-20b", "--gpu", "h100"], {"PELTON_INSTANCE": "p4de.24xlarge"}, "h100"),
                ([*generate, "--prompt", "x"], {"PELTON_FILE": "/nowhere"}, ""),
                ([*generate, "--prompt", "x"], {"PELTON_TOKENS": "/nowhere"}, ""),
                ([*generate, "--tokens", f / "ids.json"], {"PELTON_PROMPT": "x", "PELTON_FILE": "/nowhere"}, ""),
                (["tokenize", self.model, "--text", "hi"], {"PELTON_FILE": "/nowhere"}, '"h'),
                (["grammar", "--tokenizer", self.model, "--regex", "a+"], {"PELTON_SCHEMA": "/nowhere"}, "a+"),
                (["bench", "serve", "--port", self.url.split(":")[2], "--num-prompts", "1", "--input-len", "5",
                  "--output-len", "3"], {"PELTON_BASE_URL": "http://127.0.0.1:1"}, ""),
                (["bench", "sweep", "--base-url", self.url, "--num-prompts", "1", "--input-len", "5", "--output-len", "3",
                  "--concurrencies", "1", "--requests-per-unit", "1"], {"PELTON_RATES": "7"}, "")):
            done = self.run_binary(*words, env=env)
            self.assertEqual(done.returncode, 0, (words, env, done.stderr))
            self.assertIn(said, done.stdout)
        done = self.run_binary(*generate, env={"PELTON_PROMPT": "x", "PELTON_FILE": "y"})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("$PELTON_PROMPT and $PELTON_FILE exclude each other", done.stderr)

    def test_A7_what_was_ignored_is_refused(self):
        f = self.folder
        for words, named in (
                (["plan", BOX, "--workload", "conversation"], "--gpu or --instance"),
                (["plan", BOX, "--slo", "itl=5ms"], "--slo"), (["plan", BOX, "--request-rate", "4"], "--request-rate"),
                (["plan", BOX, "--calibration", self.calibration], "--calibration"),
                (["plan", BOX, "--layout", "tp2"], "--layout"), (["plan", BOX, "--html", f / "x.html"], "--html"),
                (["plan", "gpt-oss-20b", "--gpu", "h100", "--kv-cache-memory", "4GiB"], "--kv-cache-memory"),
                (["plan", "gpt-oss-20b", "--published"], "--published"),
                (["simulate", "gpt-oss-20b", "--gpu", "h100", "--threads", "2"], "--threads"),
                (["simulate", BOX, "--layout", "tp2"], "--layout"),
                (["simulate", BOX, "--no-noise"], "--no-noise"),
                (["simulate", "--scenario", "two-zones-year", "--days", "0.02", "--max-replicas", "4"], "--max-replicas 4: the pool has at least 16"),
                (["simulate", BOX, "--autoscale", "concurrency", "--min-replicas", "9"], "--min-replicas 9: the pool has at least 9"),
                (["generate", self.model, "--tokens", f / "ids.json", "--special"], "--special"),
                (["generate", self.model, "--prompt", "x", "--top-p", "0.5"], "--top-p"),
                (["bench", "serve", "--base-url", self.url, "--port", "80"], "--port"),
                (["bench", "serve", "--base-url", self.url, "--trace-speed", "2"], "--trace-speed"),
                (["bench", "serve", "--base-url", self.url, "--preset", "conversation", "--random-input-len", "9"],
                 "--random-input-len"),
                (["bench", "sweep", "--base-url", self.url, "--max-concurrency", "4"], "--max-concurrency"),
                (["tokenize", self.model, "--decode", "--ids"], "--ids"),
                (["grammar", "--tokenizer", self.model, "--regex", "a", "--compact"], "--compact"),
                (["synth", "--like", TINY / "config.json", f / "n", "--gguf-type", "q8_0"], "--gguf-type"),
                (["manual", "serve", "--out", f / "man2"], "--out")):
            done = self.run_binary(*words)
            self.assertEqual(done.returncode, 2, (words, done.stderr))
            self.assertIn(named, done.stderr)
        done = self.run_binary("bench", "serve", "--base-url", self.url, "--num-prompts", "1", "--output-len", "3",
                               "--trust-remote-code")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--trust-remote-code means nothing here", done.stderr)


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
