#!/usr/bin/env python3
"""Speculation as a user meets it: with any method the model in the box says the same as without, and usage and metrics count.

usage: speculation_test.py PELTON MODEL_FOLDER
"""
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.request

PELTON, MODEL = sys.argv[1:3]
DRAFT_MODEL = {"method": "draft_model", "model": MODEL + "/draft", "num_speculative_tokens": 3, "adaptive": False}
EAGLE3 = {"method": "eagle3", "model": MODEL + "/eagle3", "num_speculative_tokens": 3, "adaptive": False}
MEDUSA = {**EAGLE3, "method": "medusa", "model": MODEL + "/medusa"}
METHODS = ({"method": "suffix", "adaptive": False}, {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1},
           {"method": "suffix"}, {"method": "suffix_shared", "adaptive": False},
           {"method": "lookahead", "num_speculative_tokens": 4, "adaptive": False},
           DRAFT_MODEL, EAGLE3, {**EAGLE3, "method": "suffix+eagle3"}, {**EAGLE3, "method": "auto"}, MEDUSA)
SCHEMA = {"type": "object", "properties": {"words": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3}},
          "required": ["words"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "count", "parameters": {"type": "object", "properties": {
    "what": {"type": "string", "maxLength": 9}, "often": {"type": "integer", "maximum": 99}}, "required": ["what", "often"]}}}
WAYS = ({"temperature": 0, "logprobs": True}, {"temperature": 1.2, "seed": 7, "top_p": 0.95},
        {"temperature": 0.7, "seed": 2, "stop": ["an", "9"]},
        {"temperature": 1, "seed": 9, "frequency_penalty": 0.5, "presence_penalty": 0.4, "min_tokens": 12, "logit_bias": {"100": 2}},
        {"temperature": 0.8, "seed": 3, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
        {"temperature": 0, "tools": [TOOL], "tool_choice": "required"}, {"temperature": 0, "reasoning_effort": "high"},
        {"temperature": 1.1, "seed": 5, "n": 3, "logprobs": True, "top_logprobs": 2}, {"temperature": 1, "seed": 4, "thinking_token_budget": 7},
        {"temperature": 1, "seed": 8, "structured_outputs": {"regex": "([a-d]{3} ){2,9}end"}, "repetition_penalty": 1.1, "min_p": 0.02},
        {"temperature": 0.9, "seed": 6, "tools": [TOOL], "top_k": 30, "bad_words": ["the"]})
QUESTIONS = ("What do you get for 39 + 57?", "Spell the word banana, then spell the word banana again.")


class Server:
    def __init__(self, config=None, *flags):
        self.flags = [*(["--speculative-config", json.dumps(config)] if config else []), *flags]

    def __enter__(self):
        self.process = subprocess.Popen([PELTON, "serve", MODEL, "--port", "0", "--threads", "1", "--device", "cpu",
                                         "--current-date", "2026-11-21", "--max-model-len", "2048", *self.flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError("the server did not start: " + line)
        self.url = line.split()[2]
        self.admin_url = self.process.stdout.readline().split()[2] if "--admin-port" in self.flags else None
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, text, **more):
        body = {"messages": [{"role": "user", "content": text}], "max_completion_tokens": 120, **more}
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def answers(self, at_once=1):
        """Calls are named anew each time."""
        asked = [(text, more) for text in QUESTIONS for more in WAYS]
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            said = pool.map(lambda one: json.dumps(self.ask(one[0], **one[1])["choices"]), asked)
            return [re.sub(r"call_\w+", "call", text) for text in said]

    def streamed(self):
        """The text of an answer that comes in chunks, and its usage."""
        body = {"messages": [{"role": "user", "content": QUESTIONS[1]}], "max_completion_tokens": 120, "temperature": 1, "seed": 11,
                "stream": True, "stream_options": {"include_usage": True}, "stop": ["then"]}
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            chunks = [json.loads(line[6:]) for line in reply if line.startswith(b"data: {")]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        usage = chunks[-1]["usage"]
        return ("".join(delta.get("reasoning", "") for delta in deltas), "".join(delta.get("content") or "" for delta in deltas),
                usage["prompt_tokens"], usage["completion_tokens"])

    def metric(self, name):
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as reply:
            found = re.findall(r"^%s\{.*\} (\S+)$" % re.escape(name), reply.read().decode(), re.M)
        return sum(map(float, found))


def find(value, key):
    """Whatever has that key, anywhere in a document."""
    for name, part in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        if name == key:
            yield part
        yield from find(part, key)


class Speculation(unittest.TestCase):
    def test_the_same_answers(self):
        with Server() as server:
            expected, streamed = server.answers(), server.streamed()
        for config in METHODS:
            with self.subTest(config=config), Server(config) as server:
                self.assertEqual(server.answers(), expected)
                self.assertEqual(server.answers(at_once=8), expected)
                self.assertEqual(server.streamed(), streamed)
                drafted = server.metric("vllm:spec_decode_num_draft_tokens_total")
                accepted = server.metric("vllm:spec_decode_num_accepted_tokens_total")
                if config.get("adaptive") is False:  # else other work may stop it before the first guess
                    self.assertGreater(drafted, 0)
                self.assertLessEqual(accepted, drafted)
                self.assertEqual(server.metric("vllm:spec_decode_num_accepted_tokens_per_pos_total"), accepted)
                self.assertEqual(server.metric("pelton_spec_decode_draft_tokens_total"), drafted)  # by proposer
                self.assertEqual(server.metric("pelton_spec_decode_accepted_tokens_total"), accepted)
                self.assertLessEqual(server.metric("pelton_spec_decode_proposer_seconds_total"),
                                     server.metric("pelton_spec_decode_draft_seconds_total"))
                self.assertLess(server.metric("pelton_spec_decode_draft_seconds_total"), server.metric("pelton_spec_decode_step_seconds_total"))

    def test_drafters_think_alike(self):
        """On what they were trained on: most of three guesses are right, drawn with the target's noise too. Behind a hit in the prefix
        cache a head knows less."""
        for config, least in ((DRAFT_MODEL, 3.2), (EAGLE3, 2.5), (MEDUSA, 2.0)):
            for more in ({"temperature": 0}, {"temperature": 1, "seed": 3}):
                with Server(config, "--no-enable-prefix-caching") as server:
                    for a in range(20, 30):
                        server.ask("What do you get for %d + 35?" % a, **more)
                    drafts = server.metric("vllm:spec_decode_num_drafts_total")
                    accepted = server.metric("vllm:spec_decode_num_accepted_tokens_total")
                self.assertGreater(1 + accepted / drafts, least, (config, more))

    def test_the_plan_says_what_is_taken(self):
        for config in ({"method": "suffix"}, DRAFT_MODEL, EAGLE3, MEDUSA):
            with self.subTest(config=config):
                command = [PELTON, "plan", MODEL, "--memory", "--json", "--threads", "1", "--max-model-len", "2048"]
                plain, planned = (json.loads(subprocess.run(command + more, capture_output=True, text=True, check=True).stdout)
                                  for more in ([], ["--speculative-config", json.dumps(config)]))
                self.assertEqual(plain["workspace_detail"]["drafting"], 0)
                self.assertGreater(planned["workspace_detail"]["drafting"], 10_000)

    def test_what_a_drafter_says_is_written(self):
        """The logits of guesses behind every token: of each kind, and none behind the first token of an EAGLE-3 head."""
        with tempfile.TemporaryDirectory() as folder:
            ids = pathlib.Path(folder) / "ids.json"
            ids.write_text(json.dumps([100, 200, 300, 400, 500]))
            for drafter, vocabulary in (("draft", 4096), ("eagle3", 2048), ("medusa", 4096)):
                sizes = []
                for chunk in ("2", "256"):
                    out = pathlib.Path(folder) / ("%s_%s.npy" % (drafter, chunk))
                    subprocess.run([PELTON, "logits", MODEL, "--tokens", str(ids), "--draft", MODEL + "/" + drafter, "--draft-chain", "3",
                                    "--chunk", chunk, "--out", str(out)], check=True, capture_output=True, timeout=60)
                    sizes.append(out.read_bytes())
                self.assertEqual(sizes[0], sizes[1])
                self.assertIn(b"(5, 3, %d)" % vocabulary, sizes[0][:128])
                first = sizes[0][-5 * 3 * vocabulary * 4:][:3 * vocabulary * 4]
                self.assertEqual(drafter == "eagle3", first == bytes(len(first)))

    def test_a_predicted_output_is_counted(self):
        with Server({"method": "suffix", "adaptive": False}) as server:
            plain = server.ask(QUESTIONS[0], temperature=0)
            self.assertNotIn("accepted_prediction_tokens", plain["usage"]["completion_tokens_details"])
            content = plain["choices"][0]["message"]["content"]
            predicted = server.ask(QUESTIONS[0], temperature=0, prediction={"type": "content", "content": content})
            self.assertEqual(predicted["choices"], plain["choices"])
            self.assertGreater(predicted["usage"]["completion_tokens_details"]["accepted_prediction_tokens"], 0)

    def test_what_is_known_is_reported(self):
        """The controller in /debug/ledger, and an answer's own figures where they are asked for."""
        with Server(DRAFT_MODEL, "--admin-port", "0") as server:
            timings = server.ask(QUESTIONS[0], temperature=0, timings=True)["timings"]
            with urllib.request.urlopen(server.admin_url + "/debug/ledger", timeout=60) as reply:
                said = next(iter(find(json.load(reply), "speculation")))
        histogram = timings["draft_accepted_histogram"]
        self.assertGreater(timings["draft_n"], timings["draft_n_accepted"] - 1)
        # The prompt's row gives the first token, each row with guesses one more than were right; none lies behind the end.
        self.assertLessEqual(sum((i + 1) * count for i, count in enumerate(histogram)), timings["predicted_n"] - 1)
        self.assertEqual(timings["draft_n_accepted"], sum(i * count for i, count in enumerate(histogram)))
        self.assertAlmostEqual(timings["draft_mean_length"], 1 + timings["draft_n_accepted"] / sum(histogram))
        self.assertEqual(said["proposers"]["draft_model"]["accepted_tokens"], timings["draft_n_accepted"])
        self.assertGreater(min(said["proposers"]["draft_model"]["acceptance"][0], said["proposers"]["draft_model"]["draft_ms"]), 0)
        self.assertIn(said["state"], ("on", "idle"))
        self.assertGreater(min(said["acceptance"][0], said["draft_ms"], said["drafted_share"]), 0)
        self.assertIsNone(said["gain"])  # nobody forecasts it where nobody chooses

    def test_what_keeps_no_answers_is_said(self):
        for flags, is_said in (([], False), (["--no-enable-prefix-caching"], True)):
            command = [PELTON, "serve", MODEL, "--port", "0", "--device", "cpu", "--speculative-config", '{"method":"suffix_shared"}', *flags]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                self.assertTrue(process.stdout.readline().startswith("listening on "))
                process.terminate()
                log = process.stderr.read()
            self.assertEqual("suffix_shared keeps no answer" in log, is_said, log)

    def test_generate_says_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            ids = pathlib.Path(folder) / "ids.json"
            ids.write_text(json.dumps([100, 200, 300, 400] * 5))
            command = [PELTON, "generate", MODEL, "--tokens", str(ids), "--ids", "--max-tokens", "60", "--device", "cpu"]
            plain = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
            suffix = subprocess.run([*command, "--speculative-config", '{"method":"suffix"}'], capture_output=True, text=True,
                                    timeout=120, check=True).stdout
        self.assertEqual(suffix, plain)

    def test_a_draft_model_with_other_tokens_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            draft = pathlib.Path(folder)
            for file in (pathlib.Path(MODEL) / "draft").iterdir():
                (draft / file.name).write_bytes(file.read_bytes())
            tokenizer = json.loads((draft / "tokenizer.json").read_text())
            vocabulary = tokenizer["model"]["vocab"]
            one, other = sorted(vocabulary, key=vocabulary.get)[:2]
            vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
            (draft / "tokenizer.json").write_text(json.dumps(tokenizer))
            config = {"method": "draft_model", "model": folder, "num_speculative_tokens": 3}
            result = subprocess.run([PELTON, "serve", MODEL, "--port", "0", "--speculative-config", json.dumps(config)],
                                    capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("other tokens", result.stderr)

    def test_a_head_of_another_model_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            head = pathlib.Path(folder)
            for file in (pathlib.Path(MODEL) / "eagle3").iterdir():
                (head / file.name).write_bytes(file.read_bytes())
            config = json.loads((head / "config.json").read_text())
            for change, said, code in (({"hidden_size": 128}, "hidden_size", 2), ({"hidden_act": "gelu"}, "hidden_act", 4),
                                       ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5]}}, "the target's layers", 4)):
                (head / "config.json").write_text(json.dumps({**config, **change}))
                asked = {"method": "eagle3", "model": folder, "num_speculative_tokens": 3}
                result = subprocess.run([PELTON, "serve", MODEL, "--port", "0", "--speculative-config", json.dumps(asked)],
                                        capture_output=True, text=True, timeout=60)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(said, result.stderr)

    def test_what_is_refused(self):
        for config, said, code in (('{"method":"eagle9"}', "method", 2), (json.dumps({**MEDUSA, "num_speculative_tokens": 4}), "3 Medusa heads", 2),
                                   ('{"method":"mtp"}', '"mtp" is not supported', 4), ('{"method":"suffix","quantization":"x"}', "quantization", 4),
                                   ("suffix", "JSON object", 2)):
            result = subprocess.run([PELTON, "serve", MODEL, "--port", "0", "--speculative-config", config],
                                    capture_output=True, text=True, timeout=60)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(said, result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
