#!/usr/bin/python3
"""Tests of what needs torch: the model, its data type, its batches and its adapter. usage: box_model_test.py"""
import tempfile
import unittest

import torch

import adapter
import mxfp4
from batches import Stream
from data_test import small_tokenizer
from model import Attention, Config, Model, exact_attention, masks_of

TINY = dict(hidden=64, layers=2, heads=2, kv_heads=1, head_dim=32, experts=4, intermediate=32, window=16)


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


class AdapterTest(unittest.TestCase):
    def test_a_written_adapter_adds_what_was_trained(self):
        torch.manual_seed(4)
        model = Model(Config(vocab_size=100, **TINY)).requires_grad_(False)
        plain = Model(Config(vocab_size=100, **TINY))
        plain.load_state_dict(model.state_dict())
        trained = adapter.Adapter(model, 3, 6)
        for b in trained.b.values():
            b.data.normal_()
        for part in (*trained.a.values(), *trained.b.values()):
            part.data = part.data.bfloat16().float()  # as the file keeps it
        trained.put_on(model)
        with tempfile.TemporaryDirectory() as folder:
            trained.save(folder, "tiny")
            adapter.load_onto(plain, folder)
        for block, other in zip(model.blocks, plain.blocks):
            for name in adapter.ATTENTION + adapter.EXPERTS:
                self.assertLess((getattr(block, name) - getattr(other, name)).abs().max().item(), 1e-4, name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
