#!/usr/bin/env python3
"""Tests of the generated conversations and the tokenizer: without torch. usage: data_test.py"""
import os
import json
import random
import re
import tempfile
import unittest

import bpe
import corpus
import facts
import harmony
import query_tasks
import tasks
import wordings


def small_tokenizer():
    text = "".join(harmony.as_text(harmony.render_rest(corpus.conversation_at(3, "train", i)).pieces) for i in range(300))
    counts = {}
    for word in bpe.SPLIT.findall(text):
        counts[word] = counts.get(word, 0) + 1
    return bpe.Tokenizer(bpe.train(counts, 700))


class TokenizerTest(unittest.TestCase):
    def test_round_trip_and_single_digits(self):
        tokenizer = small_tokenizer()
        for i in range(100):
            text = harmony.as_text(harmony.render_rest(corpus.conversation_at(4, "test", i)).pieces)
            self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)
        self.assertEqual(len(tokenizer.encode("1234")), 4)
        self.assertEqual(tokenizer.decode(tokenizer.encode("Grüße, 日本 \U0001f600\n")), "Grüße, 日本 \U0001f600\n")

    def test_a_user_cannot_write_control_tokens(self):
        tokenizer = small_tokenizer()
        self.assertTrue(all(i < tokenizer.first_control for i in tokenizer.encode("<|start|>system<|message|>")))

    def test_saved_and_loaded(self):
        tokenizer = small_tokenizer()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokenizer.json")
            tokenizer.save(path)
            loaded = bpe.Tokenizer.load(path)
        self.assertEqual((loaded.tokens, loaded.controls), (tokenizer.tokens, tokenizer.controls))


class DataTest(unittest.TestCase):
    def test_same_seed_same_data(self):
        for i in range(200):
            self.assertEqual(corpus.conversation_at(1, "train", i), corpus.conversation_at(1, "train", i))

    def test_steps_of_sums_end_in_the_sum(self):
        for effort in ("low", "medium", "high"):
            for a in range(0, 400, 7):
                for b in range(0, 400, 3):
                    self.assertEqual(re.findall(r"-?\d+", tasks.add_steps(a, b, effort))[-1], str(a + b))
                    self.assertEqual(re.findall(r"-?\d+", tasks.subtract_steps(a, b, effort))[-1], str(a - b))

    def test_each_step_of_a_sum_is_true(self):
        for a in range(0, 100, 3):
            for b in range(0, 100, 7):
                for text in (tasks.add_steps(a, b, "low"), tasks.subtract_steps(a, b, "low")):
                    for step in re.findall(r"[\d +-]+= \d+[^;]*", text):
                        left, right = step.split("=", 1)
                        self.assertEqual((eval(left) - int(re.match(r" (\d+)", right)[1])) % 10, 0, text)

    def test_queries_of_the_adapter_are_as_expected_and_held_out(self):
        """Of whole tables one in twelve begins alike in training and test; whoever is asked with a condition or by a new wording does not."""
        seen = {c["messages"][0]["content"] for c in (query_tasks.conversation_at(21, "train", i) for i in range(6000)) if c["task"] == "query"}
        tests = [query_tasks.conversation_at(2027, "test", i) for i in range(600)]
        for conversation in tests:
            self.assertEqual(json.loads(conversation["messages"][-1]["content"]), conversation["score"]["json"])
            self.assertIn("table", conversation["score"]["json"])
        self.assertFalse([c["messages"][0]["content"] for c in tests if c["new_wording"] and c["messages"][0]["content"] in seen])
        known = sum(c["messages"][0]["content"] in seen for c in tests)
        self.assertLess(known / len(tests), 0.12)

    def test_tests_are_not_trained_on(self):
        asked = {c["messages"][-2]["content"] for c in (corpus.conversation_at(1, "train", i) for i in range(30000))
                 if c["task"] in ("pelton", "add", "subtract", "json")}
        tests = [c for c in (corpus.conversation_at(99, "test", i) for i in range(2000))
                 if c["task"] in ("pelton", "add", "subtract", "json")]
        self.assertFalse([c["messages"][-2]["content"] for c in tests if c["messages"][-2]["content"] in asked])


class FactsTest(unittest.TestCase):
    def test_a_question_belongs_to_one_fact(self):
        owners = {}
        for fact in facts.FACTS:
            for text in (t for p in fact.trained + fact.unseen + fact.new for t in p):
                self.assertIs(owners.setdefault(facts.core(text), fact), fact, text)

    def test_new_wordings_are_new(self):
        rng = random.Random(5)
        trained = {facts.core(facts.question(rng, fact, "train")) for fact in facts.FACTS for _ in range(3000)}
        for fact in facts.FACTS:
            for kind in ("test", "new"):
                for _ in range(50):
                    question = facts.question(rng, fact, kind)
                    self.assertFalse(facts.core(question) in trained, question)


def simple_words(text):
    return re.sub(r"[?.:,!]", " ", text).lower().split()


class WordingsTest(unittest.TestCase):
    def test_held_out_requests_are_new_sentences_of_known_words(self):
        for name, request in vars(wordings).items():
            if not isinstance(request, wordings.Wordings):
                continue
            known = {text for pattern in request.known for text in pattern}
            words = {word for text in known for word in simple_words(text)}
            for text in (text for pattern in request.new for text in pattern):
                self.assertNotIn(text, known, name)
                self.assertFalse(set(simple_words(text)) - words, "%s: %s" % (name, text))

    def test_requests_name_all_their_values(self):
        for request in (wordings.ADD, wordings.SUBTRACT, wordings.EXTRACT, wordings.TABLE, wordings.MONEY):
            fields = None
            for pattern in request.known + request.new:
                for text in pattern:
                    found = set(re.findall(r"\{(\w+)\}", text))
                    fields = fields or found
                    self.assertEqual(found, fields, text)


if __name__ == "__main__":
    unittest.main()
