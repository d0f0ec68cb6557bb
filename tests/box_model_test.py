#!/usr/bin/env python3
"""The model in the box as a user meets it: served by pelton, it answers in Harmony, adds, extracts, calls tools.

usage: box_model_test.py PELTON MODEL_FOLDER      The prompts are held out: training never saw them.
"""
import concurrent.futures
import json
import subprocess
import sys
import unittest
import urllib.request

PELTON, MODEL = sys.argv[1:3]
TOOLS = [{"type": "function", "function": {
    "name": name, "description": description,
    "parameters": {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}}}
    for name, description, key in (("get_weather", "Weather of a city.", "location"), ("play_song", "Plays a song.", "title"))]
SUMS = [(39, 57), (36, 61), (68, 72), (73, 83), (89, 58), (28, 87), (18, 79), (14, 72), (19, 74), (42, 58)]


class Server:
    def __enter__(self):
        self.process = subprocess.Popen([PELTON, "serve", MODEL, "--port", "0", "--threads", "1", "--current-date", "2026-11-21"],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError("the server did not start: " + line)
        self.url = line.split()[2]
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, text, **more):
        body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_completion_tokens": 300, **more}
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)["choices"][0]


class BoxModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def content(self, choice):
        """Of an answer that ended by itself, with every control token where Harmony wants it."""
        self.assertEqual(choice["finish_reason"], "stop", choice)
        for text in (choice["message"]["content"], choice["message"].get("reasoning_content") or ""):
            self.assertNotIn("<|", text)
        return choice["message"]["content"]

    def test_sums_with_reasoning(self):
        """At least nine of ten are right; all are proper answers with reasoning."""
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            choices = list(pool.map(lambda ab: self.server.ask("What do you get for %d + %d?" % ab), SUMS))
        right = 0
        for (a, b), choice in zip(SUMS, choices):
            self.assertIn("Ones", choice["message"]["reasoning_content"])
            right += self.content(choice) == "%d + %d = %d" % (a, b, a + b)
        self.assertGreaterEqual(right, len(SUMS) - 1)

    def completion(self, **body):
        request = urllib.request.Request(self.server.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)["choices"]

    def test_beam_search_finds_what_trying_by_hand_finds(self):
        """The same search here, a request for every beam and step; the penalties put its answers in another order."""
        prompt = self.completion(prompt="A Pelton wheel is", max_tokens=0, return_token_ids=True)[0]["prompt_token_ids"]
        width, length = 3, 4
        beams = [([], 0.0)]
        for _ in range(length):
            longer = []
            for tokens, total in beams:
                top = self.completion(prompt=prompt + tokens, max_tokens=1, temperature=0, logprobs=2 * width,
                                      return_tokens_as_token_ids=True)[0]["logprobs"]["top_logprobs"][0]
                longer += [(tokens + [int(name.removeprefix("token_id:"))], total + logprob) for name, logprob in top.items()]
            beams = sorted(longer, key=lambda beam: -beam[1])[:width]
        found = self.completion(prompt=prompt, max_tokens=length, use_beam_search=True, n=width, return_token_ids=True,
                                logprobs=0, ignore_eos=True)
        self.assertEqual([choice["token_ids"] for choice in found], [tokens for tokens, _ in beams])
        for choice, (_, total) in zip(found, beams):
            self.assertAlmostEqual(sum(choice["logprobs"]["token_logprobs"]), total, places=3)

    def test_a_tool_is_called_with_its_own_names(self):
        choice = self.server.ask("I fly to Lisbon. How is the weather there?", tools=TOOLS)
        self.assertEqual(choice["finish_reason"], "tool_calls", choice)
        function = choice["message"]["tool_calls"][0]["function"]
        self.assertEqual((function["name"], json.loads(function["arguments"])), ("get_weather", {"location": "Lisbon"}))

    def test_json_is_extracted(self):
        choice = self.server.ask("I need a JSON object with name and city: Nora Fisher, a pilot, lives in Prague.")
        self.assertEqual(json.loads(self.content(choice)), {"name": "Nora Fisher", "city": "Prague"})

    PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "city": {"type": "string", "maxLength": 30}},
              "required": ["name", "city"], "additionalProperties": False}

    def formatted(self, schema):
        return {"type": "json_schema", "json_schema": {"name": "it", "strict": True, "schema": schema}}

    def test_a_schema_is_followed_and_the_answer_is_still_right(self):
        choice = self.server.ask("I need a JSON object with name and city: Nora Fisher, a pilot, lives in Prague.",
                                 structured_outputs={"json": self.PERSON})
        self.assertEqual(json.loads(self.content(choice)), {"name": "Nora Fisher", "city": "Prague"})

    def test_a_schema_holds_against_a_wild_model(self):
        """Temperature 2: what ends is valid, 20 times of 20; what is cut off says so."""
        def one(seed):
            return self.server.ask("What is a Pelton wheel?", temperature=2, seed=seed, response_format=self.formatted(self.PERSON))
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            choices = list(pool.map(one, range(20)))
        for choice in choices:
            if choice["finish_reason"] == "length":
                continue
            said = json.loads(self.content(choice))
            self.assertEqual(set(said), {"name", "city"})
            self.assertTrue(all(isinstance(value, str) for value in said.values()), said)
            self.assertLessEqual(len(said["city"]), 30)

    def test_a_forced_call_follows_its_parameters(self):
        choice = self.server.ask("I fly to Lisbon. How is the weather there?", tools=TOOLS, tool_choice="required")
        self.assertEqual(choice["finish_reason"], "tool_calls", choice)
        function = choice["message"]["tool_calls"][0]["function"]
        self.assertIn({"get_weather": "location", "play_song": "title"}[function["name"]], json.loads(function["arguments"]))

    def test_it_knows_pelton_and_says_when_it_does_not_know(self):
        self.assertIn("turbine", self.content(self.server.ask("What is a Pelton wheel?")))
        self.assertIn("I do not know", self.content(self.server.ask("What is the capital of France?")))

    def test_effort_changes_how_much_it_thinks(self):
        lengths = [len(self.server.ask("What do you get for 39 + 57?", reasoning_effort=effort)["message"]["reasoning_content"])
                   for effort in ("low", "medium", "high")]
        self.assertLess(lengths[0], lengths[1])
        self.assertLess(lengths[1], lengths[2])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
