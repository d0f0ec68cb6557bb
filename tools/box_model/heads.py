"""Heads that guess the next tokens from the box model's residual stream.

Eagle: EAGLE-3 in the layout of the published heads for gpt-oss (LlamaForCausalLMEagle3): `fc` fuses three
taps of the residual stream, one Llama layer (`midlayer`) reads [embedding of the token, feature], its
output is the next feature. It speaks a smaller vocabulary; d2t maps back (target id = draft id + d2t).
Medusa: head k guesses token t+2+k from the last stream at t; residual blocks, then the model's own lm_head.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

from model import linear, rms, rotate, rotary_table

TAPS = (0, 2, 3)  # behind these blocks
DRAFTED = 3


def matrix(rows, columns, scale=None):
    return nn.Parameter(torch.randn(rows, columns) * (columns ** -0.5 if scale is None else scale))


class Eagle(nn.Module):
    def __init__(self, config, draft_ids, intermediate=384):
        super().__init__()
        c, h = config, config.hidden
        self.c, self.draft_vocabulary, self.intermediate = c, len(draft_ids), intermediate
        self.register_buffer("draft_ids", draft_ids)  # ascending target ids
        self.fc = matrix(h, 3 * h)
        self.input_layernorm, self.hidden_norm = nn.Parameter(torch.ones(h)), nn.Parameter(torch.ones(h))
        self.post_attention_layernorm, self.norm = nn.Parameter(torch.ones(h)), nn.Parameter(torch.ones(h))
        self.q_proj, self.k_proj = matrix(c.heads * c.head_dim, 2 * h), matrix(c.kv_heads * c.head_dim, 2 * h)
        self.v_proj, self.o_proj = matrix(c.kv_heads * c.head_dim, 2 * h), matrix(h, c.heads * c.head_dim, 0.02)
        self.gate_proj, self.up_proj = matrix(intermediate, h), matrix(intermediate, h)
        self.down_proj = matrix(h, intermediate, 0.02)
        self.lm_head = matrix(self.draft_vocabulary, h, 0.02)

    def fused(self, taps):
        return linear(torch.cat(taps, -1).bfloat16(), self.fc).float()

    def step(self, embedded, feature, positions, mask, cache):
        """One draft step at all positions at once. `cache` holds keys and values of the steps before:
        of the first step a position sees all before it, of later ones only its own."""
        c, (rows, length, _) = self.c, feature.shape
        norm = lambda x, gain: rms(x, gain, c.epsilon, False)
        x = torch.cat((norm(embedded, self.input_layernorm), norm(feature, self.hidden_norm)), -1)
        cos, sin = (t.unsqueeze(1).bfloat16() for t in rotary_table(c, positions))
        heads = lambda y, n: y.view(rows, length, n, c.head_dim).transpose(1, 2)
        q = rotate(heads(linear(x, self.q_proj), c.heads), cos, sin)
        group = c.heads // c.kv_heads
        k = rotate(heads(linear(x, self.k_proj), c.kv_heads), cos, sin).repeat_interleave(group, 1)
        v = heads(linear(x, self.v_proj), c.kv_heads).repeat_interleave(group, 1)
        cache = cache + [(k, v)]
        scale = c.head_dim ** -0.5
        scores = [torch.matmul(q, cache[0][0].transpose(-1, -2)) * scale + mask]
        scores += [(q * keys).sum(-1, keepdim=True) * scale for keys, _ in cache[1:]]
        weights = torch.cat(scores, -1).float().softmax(-1).to(v.dtype)
        out = torch.matmul(weights[..., :length], cache[0][1])
        for i, (_, values) in enumerate(cache[1:]):
            out = out + weights[..., length + i:length + i + 1] * values
        feature = feature + linear(out.transpose(1, 2).reshape(rows, length, -1), self.o_proj)
        y = norm(feature, self.post_attention_layernorm)
        feature = feature + linear(F.silu(linear(y, self.gate_proj)) * linear(y, self.up_proj), self.down_proj)
        return feature, cache

    def logits(self, feature):
        return linear(rms(feature, self.norm, self.c.epsilon, False), self.lm_head)

    def tensors(self):
        """Names as published; d2t is an offset, t2d a mask (as bytes)."""
        out = {"midlayer.self_attn.%s.weight" % n: getattr(self, n) for n in ("q_proj", "k_proj", "v_proj", "o_proj")}
        out.update({"midlayer.mlp.%s.weight" % n: getattr(self, n) for n in ("gate_proj", "up_proj", "down_proj")})
        out.update({"midlayer.%s.weight" % n: getattr(self, n)
                    for n in ("input_layernorm", "hidden_norm", "post_attention_layernorm")})
        out.update({"fc.weight": self.fc, "norm.weight": self.norm, "lm_head.weight": self.lm_head})
        out = {name: value.detach().bfloat16() for name, value in out.items()}
        out["d2t"] = self.draft_ids - torch.arange(self.draft_vocabulary)
        out["t2d"] = torch.zeros(self.c.vocab_size, dtype=torch.bool)
        out["t2d"][self.draft_ids] = True
        return out

    def config_json(self):
        c = self.c
        return {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": c.hidden,
                "num_hidden_layers": 1, "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads,
                "head_dim": c.head_dim, "intermediate_size": self.intermediate, "hidden_act": "silu",
                "vocab_size": c.vocab_size, "draft_vocab_size": self.draft_vocabulary, "rms_norm_eps": c.epsilon,
                "max_position_embeddings": c.context, "rope_theta": int(c.theta),
                "rope_scaling": {"beta_fast": c.beta_fast, "beta_slow": c.beta_slow, "factor": c.factor,
                                 "original_max_position_embeddings": c.original_context, "rope_type": "yarn",
                                 "truncate": False},
                "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": [t + 1 for t in TAPS], "use_aux_hidden_state": True}}


class Medusa(nn.Module):
    def __init__(self, config, layers=2):
        super().__init__()
        h = config.hidden
        self.c, self.layers = config, layers
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(h, h)) for _ in range(DRAFTED * layers))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(h)) for _ in range(DRAFTED * layers))

    def states(self, x):
        """x: the stream behind the final norm [N, hidden] -> one for each head."""
        out = []
        for head in range(DRAFTED):
            y = x
            for i in range(head * self.layers, (head + 1) * self.layers):
                y = y + F.silu(linear(y, self.weights[i], self.biases[i]))
            out.append(y)
        return out

    def tensors(self):
        out = {}
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            name = "%d.%d.linear." % divmod(i, self.layers)
            out[name + "weight"], out[name + "bias"] = weight.detach().bfloat16(), bias.detach().bfloat16()
        return out

    def config_json(self):
        return {"architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": self.c.hidden,
                "vocab_size": self.c.vocab_size, "medusa_num_heads": DRAFTED, "medusa_num_layers": self.layers,
                "shared_lm_head": True}
