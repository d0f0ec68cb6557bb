#!/usr/bin/python3
"""Tests of the parts that could be wrong without anybody noticing. usage: box_model_test.py"""
import random
import unittest

import torch

import bpe
import corpus
import facts
import harmony
import mxfp4
import score
import tasks
from batches import Stream
from model import Attention, Config, Model, exact_attention, masks_of

TINY = dict(hidden=64, layers=2, heads=2, kv_heads=1, head_dim=32, experts=4, intermediate=32, window=16)


def small_tokenizer():
    text = "".join(harmony.as_text(harmony.render_rest(corpus.conversation_at(3, "train", i)).pieces) for i in range(300))
    counts = {}
    for word in bpe.SPLIT.findall(text):
        counts[word] = counts.get(word, 0) + 1
    return bpe.Tokenizer(bpe.train(counts, 700))


class Mxfp4Test(unittest.TestCase):
    def test_block_of_the_reference(self):
        """shared/reference/gpt-oss/checkpoints.md section 4.4."""
        blocks = torch.tensor([list(bytes.fromhex("bf2ce03753c9bdfa0ff0169dc9575674"))], dtype=torch.uint8)
        values = mxfp4.unpacked(blocks, torch.tensor([0x6e], dtype=torch.uint8))
        codes = [15, 11, 12, 2, 0, 14, 7, 3, 3, 5, 9, 12, 13, 11, 10, 15, 15, 0, 0, 15, 6, 1, 13, 9, 9, 12, 7, 5, 6, 5, 4, 7]
        self.assertEqual(values.tolist(), (mxfp4.VALUES[codes] * 2.0 ** -17).tolist())
        self.assertEqual(values[0].item(), -4.57763671875e-05)

    def test_packing_keeps_rounded_values(self):
        torch.manual_seed(1)
        weights = torch.randn(3, 8, 96) * torch.logspace(-6, 3, 8).view(1, 8, 1)
        rounded = mxfp4.rounded(weights)
        self.assertTrue(torch.equal(mxfp4.unpacked(*mxfp4.packed(weights)), rounded))
        self.assertTrue(torch.equal(mxfp4.rounded(rounded), rounded))
        self.assertLess(((rounded - weights).norm() / weights.norm()).item(), 0.13)


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
        tokenizer.save("/tmp/box_model_test_tokenizer.json")
        loaded = bpe.Tokenizer.load("/tmp/box_model_test_tokenizer.json")
        self.assertEqual((loaded.tokens, loaded.controls), (tokenizer.tokens, tokenizer.controls))


class DataTest(unittest.TestCase):
    def test_same_seed_same_data(self):
        for i in range(200):
            self.assertEqual(corpus.conversation_at(1, "train", i), corpus.conversation_at(1, "train", i))

    def test_expected_answers_are_scored_right(self):
        for i in range(2000):
            conversation = corpus.conversation_at(2, "test", i)
            target = next(m for m in conversation["messages"] if m.get("train"))
            answer = {"content": target.get("content"), "call": target.get("call")}
            self.assertTrue(score.is_right(conversation, answer, conversation["date"]), conversation)

    def test_steps_of_sums_end_in_the_sum(self):
        for a in range(0, 400, 7):
            for b in range(0, 400, 3):
                self.assertIn(" %d." % (a + b), tasks.add_steps(a, b, "medium"))
                if a >= b:
                    self.assertIn("Result %d." % (a - b), tasks.subtract_steps(a, b, "medium"))

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
                    self.assertNotIn(facts.core(question), trained, question)


class ModelTest(unittest.TestCase):
    def test_packed_conversations_are_computed_as_if_alone(self):
        torch.manual_seed(2)
        model = Model(Config(vocab_size=700, **TINY))
        for block in model.blocks:
            block.sinks.data.normal_()
        tokenizer = small_tokenizer()
        batch = Stream(tokenizer, 1, "train", False, 1, 640).next()
        ids, segments, positions = (batch[k] for k in ("ids", "segments", "positions"))
        with torch.no_grad():
            together, _, _ = model.hidden_states(ids, segments, positions, exact=True)
            for segment in range(1, int(segments.max()) + 1):
                chosen = (segments[0] == 0) | (segments[0] == segment)
                alone, _, _ = model.hidden_states(ids[:, chosen], torch.ones(1, int(chosen.sum()), dtype=torch.long),
                                                  positions[:, chosen], exact=True)
                difference = (alone[0] - together[0, chosen]).abs().max() / alone.abs().max()
                self.assertLess(difference.item(), 1e-5)

    def test_attention_and_its_gradients(self):
        torch.manual_seed(3)
        make = lambda *shape: torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        q, k, v, sinks = make(2, 3, 5, 4), make(2, 3, 5, 4), make(2, 3, 5, 4), make(3)
        mask = masks_of(torch.ones(2, 5, dtype=torch.long), torch.arange(5).expand(2, 5), 3)[1].double()
        weights = torch.randn(2, 3, 5, 4, dtype=torch.float64)
        results = []
        for attention in (Attention.apply, exact_attention):
            out = attention(q, k, v, sinks, mask, 0.5)
            results.append([out] + list(torch.autograd.grad((out * weights).sum(), (q, k, v, sinks))))
        for ours, theirs in zip(*results):
            self.assertLess((ours - theirs).abs().max().item(), 1e-5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
