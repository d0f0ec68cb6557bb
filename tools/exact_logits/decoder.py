"""What a checkpoint of the families computes, in float64 throughout, from config.json and the tensors alone.

Written from the families' published code and from nothing of this project's: a slip of the engine's is not made here again.
"""
import math
import sys

import numpy as np

from checkpoint import Checkpoint, has_experts
from shapes import CLASSES

INNER_EPSILON = 1e-6  # of the two norms within latent attention


def normed(x, weight, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def capped(x, cap):
    return cap * np.tanh(x / cap) if cap else x


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Rotation:
    """The first `size` elements of a head turn: pairs (i, i + size / 2), or neighbours."""

    def __init__(self, theta, size, scaling, context, original=None, neighbours=False):
        self.size, self.neighbours, self.gain = size, neighbours, 1.0
        self.frequency = theta**(-np.arange(0, size, 2) / size)
        scaling = scaling or {}
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        if kind not in ("default", "dynamic"):  # the latter begins behind the model's context
            original = scaling.get("original_max_position_embeddings", original or context)
            getattr(self, kind)(theta, scaling, context, original)

    def linear(self, theta, scaling, context, original):
        self.frequency = self.frequency / scaling["factor"]

    def llama3(self, theta, scaling, context, original):
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = original * self.frequency / (2 * math.pi)
        kept = np.clip((turns - low) / (high - low), 0, 1)
        self.frequency = self.frequency * (kept + (1 - kept) / scaling["factor"])

    def yarn(self, theta, scaling, context, original):
        factor = scaling["factor"]

        def pair_of(turns):
            return self.size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

        low, high = pair_of(scaling.get("beta_fast") or 32), pair_of(scaling.get("beta_slow") or 1)
        if scaling.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.size - 1)
        ramp = np.clip((np.arange(self.size // 2) - low) / max(high - low, 1e-3), 0, 1)
        self.frequency = self.frequency * (1 - ramp) + self.frequency / factor * ramp
        self.gain = scaling.get("attention_factor")
        if self.gain is None:
            mscale, of_all = scaling.get("mscale"), scaling.get("mscale_all_dim")
            self.gain = grown(factor, mscale) / grown(factor, of_all) if mscale and of_all else grown(factor, 1)

    def longrope(self, theta, scaling, context, original):
        times = context / original
        self.frequency = self.frequency / np.array(scaling["long_factor" if times > 1 else "short_factor"])
        self.gain = scaling.get("attention_factor")
        if self.gain is None:
            self.gain = math.sqrt(1 + math.log(times) / math.log(original)) if times > 1 else 1.0

    def turn(self, heads):
        """heads: (positions, heads, head size), the first at position 0."""
        angles = np.arange(len(heads))[:, None, None] * self.frequency
        cosine, sine = self.gain * np.cos(angles), self.gain * np.sin(angles)
        out, half = heads.copy(), self.size // 2
        a, b = (slice(0, self.size, 2), slice(1, self.size, 2)) if self.neighbours else (slice(half), slice(half, self.size))
        out[..., a] = heads[..., a] * cosine - heads[..., b] * sine
        out[..., b] = heads[..., b] * cosine + heads[..., a] * sine
        return out


def grown(factor, mscale):
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0


def attend(q, k, v, scale, window, cap=None):
    """q (positions, heads, size), k and v (positions, kv heads, ...) -> (positions, heads * value size)."""
    count, heads, _ = q.shape
    mixed = np.empty((count, heads, v.shape[-1]))
    for begin in range(0, count, 512):
        end = min(count, begin + 512)
        first = max(0, begin - window + 1) if window else 0
        distance = np.arange(begin, end)[:, None] - np.arange(first, end)
        hidden = (distance < 0) | (distance >= window if window else False)
        for head in range(heads):
            kv = head // (heads // k.shape[1])
            scores = capped(q[begin:end, head] @ k[first:end, kv].T * scale, cap)
            mixed[begin:end, head] = softmax(np.where(hidden, -np.inf, scores)) @ v[first:end, kv]
    return mixed.reshape(count, -1)


class Decoder:
    def __init__(self, folder):
        self.checkpoint = Checkpoint(folder)
        config = self.config = self.checkpoint.config
        self.kind = config["model_type"]
        if self.kind not in CLASSES:
            sys.exit(f"{folder}: model_type {self.kind} is not evaluated here: write what it computes into decoder.py, and its class into shapes.py")
        self.is_gemma = self.kind.startswith("gemma")
        self.epsilon = config.get("rms_norm_eps", 1e-6)
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.head_size = config.get("head_dim") or config["hidden_size"] // self.heads
        self.scale = self.score_scale()
        self.margin = None  # of each position: the smallest between a chosen and another expert

    def score_scale(self):
        config = self.config
        if self.is_gemma:
            return config.get("query_pre_attn_scalar", 256)**-0.5
        if self.kind == "granite":
            return config.get("attention_multiplier", 1.0)
        if "kv_lora_rank" not in config:
            return self.head_size**-0.5
        scale = (config["qk_nope_head_dim"] + config["qk_rope_head_dim"])**-0.5
        scaling = config.get("rope_scaling") or {}
        is_yarn = scaling.get("rope_type", scaling.get("type")) == "yarn"
        if is_yarn and scaling.get("mscale_all_dim"):
            scale *= grown(scaling["factor"], scaling["mscale_all_dim"])**2
        return scale

    def slides(self, layer):
        config, window = self.config, self.config.get("sliding_window")
        if not window or self.kind.startswith("qwen") and not config.get("use_sliding_window"):
            return False
        if config.get("layer_types"):
            return config["layer_types"][layer] == "sliding_attention"
        if self.is_gemma:
            return (layer + 1) % config.get("sliding_window_pattern", 6) != 0
        if self.kind.startswith("qwen"):
            return layer >= config.get("max_window_layers", 28)
        return self.kind in ("mistral", "mixtral")

    def rotation(self, layer):
        config, context = self.config, self.config["max_position_embeddings"]
        if "kv_lora_rank" in config:
            return Rotation(config["rope_theta"], config["qk_rope_head_dim"], config.get("rope_scaling"), context,
                            neighbours=True)
        if self.is_gemma and self.slides(layer):
            return Rotation(config.get("rope_local_base_freq", 1e4), self.head_size, None, context)
        size = int(self.head_size * config.get("partial_rotary_factor", 1.0))
        return Rotation(config["rope_theta"], size, config.get("rope_scaling"), context,
                        config.get("original_max_position_embeddings"))

    def weight(self, name):
        values = self.checkpoint.tensor(name)
        return values + 1 if self.is_gemma and name.endswith("norm.weight") else values

    def linear(self, x, name):
        out = x @ self.checkpoint.tensor(name + ".weight").T
        return out + self.checkpoint.tensor(name + ".bias") if self.checkpoint.has(name + ".bias") else out

    def attention(self, x, prefix, layer):
        def heads_of(name, count):
            heads = self.linear(x, prefix + name + "_proj").reshape(len(x), count, self.head_size)
            norm = f"{prefix}{name}_norm.weight"
            return normed(heads, self.weight(norm), self.epsilon) if self.checkpoint.has(norm) else heads

        rotation = self.rotation(layer)
        q, k = rotation.turn(heads_of("q", self.heads)), rotation.turn(heads_of("k", self.kv_heads))
        window = self.config["sliding_window"] if self.slides(layer) else 0
        mixed = attend(q, k, heads_of("v", self.kv_heads), self.scale, window, self.config.get("attn_logit_softcapping"))
        return self.linear(mixed, prefix + "o_proj")

    def latent_attention(self, x, prefix, layer):
        config = self.config
        nope, value, rank = config["qk_nope_head_dim"], config["v_head_dim"], config["kv_lora_rank"]
        if config.get("q_lora_rank"):
            compressed = normed(self.linear(x, prefix + "q_a_proj"), self.weight(prefix + "q_a_layernorm.weight"), INNER_EPSILON)
            q = self.linear(compressed, prefix + "q_b_proj")
        else:
            q = self.linear(x, prefix + "q_proj")
        q = q.reshape(len(x), self.heads, -1)
        both = self.linear(x, prefix + "kv_a_proj_with_mqa")
        latent = normed(both[:, :rank], self.weight(prefix + "kv_a_layernorm.weight"), INNER_EPSILON)
        kv = self.linear(latent, prefix + "kv_b_proj").reshape(len(x), self.heads, nope + value)
        rotation = self.rotation(layer)
        rotated = np.repeat(rotation.turn(both[:, None, rank:]), self.heads, 1)
        q = np.concatenate([q[..., :nope], rotation.turn(q[..., nope:])], -1)
        k = np.concatenate([kv[..., :nope], rotated], -1)
        return self.linear(attend(q, k, kv[..., nope:], self.scale, 0), prefix + "o_proj")

    def mlp(self, x, prefix, names=("gate_proj", "up_proj", "down_proj")):
        activation = gelu_tanh if self.is_gemma else silu
        inner = activation(self.linear(x, prefix + names[0])) * self.linear(x, prefix + names[1])
        return self.linear(inner, prefix + names[2])

    def choices(self, logits):
        """(chosen experts, their weights), each (positions, k)."""
        config, k = self.config, self.config["num_experts_per_tok"]
        scores = 1 / (1 + np.exp(-logits)) if self.kind == "deepseek_v3" else softmax(logits)
        by = scores
        if self.kind == "deepseek_v3":
            by = scores + self.bias
        method = config.get("topk_method")
        if method in ("noaux_tc", "group_limited_greedy"):
            groups = np.sort(by.reshape(len(by), config["n_group"], -1), -1)
            of_group = groups[..., -2:].sum(-1) if method == "noaux_tc" else groups[..., -1]
            kept = np.argsort(-of_group, -1, kind="stable")[:, :config["topk_group"]]
            mask = np.full(of_group.shape, -np.inf)
            np.put_along_axis(mask, kept, 0.0, -1)
            by = by + np.repeat(mask, by.shape[1] // config["n_group"], 1)
            self.note_margin(of_group, config["topk_group"])
        self.note_margin(by, k)
        chosen = np.argsort(-by, -1, kind="stable")[:, :k]
        weights = np.take_along_axis(scores, chosen, -1)
        if self.kind == "mixtral" or config.get("norm_topk_prob"):
            weights = weights / (weights.sum(-1, keepdims=True) + (1e-20 if self.kind == "deepseek_v3" else 0))
        return chosen, weights * config.get("routed_scaling_factor", 1.0)

    def note_margin(self, scores, k):
        if k >= scores.shape[1]:
            return
        ordered = -np.sort(-scores, -1)
        margin = ordered[:, k - 1] - ordered[:, k]
        self.margin = margin if self.margin is None else np.minimum(self.margin, margin)

    def experts(self, x, prefix):
        block, names = "mlp", ("gate_proj", "up_proj", "down_proj")
        if self.kind == "mixtral":
            block, names = "block_sparse_moe", ("w1", "w3", "w2")
        if self.kind == "deepseek_v3":
            self.bias = self.checkpoint.tensor(prefix + "mlp.gate.e_score_correction_bias")
        chosen, weights = self.choices(self.linear(x, f"{prefix}{block}.gate"))
        out = np.zeros_like(x)
        for expert in np.unique(chosen):
            rows, places = np.nonzero(chosen == expert)
            out[rows] += weights[rows, places][:, None] * self.mlp(x[rows], f"{prefix}{block}.experts.{expert}.", names)
        if self.config.get("n_shared_experts"):
            out += self.mlp(x, prefix + "mlp.shared_experts.")
        return out

    def logits(self, tokens, watch=lambda stream: None):
        """(positions, vocabulary); `watch` sees the residual stream after the embedding and each block."""
        config = self.config
        table = self.weight("model.embed_tokens.weight")
        x = table[np.asarray(tokens)] * (math.sqrt(config["hidden_size"]) if self.is_gemma else config.get("embedding_multiplier", 1))
        residual = config.get("residual_multiplier", 1.0)
        watch(x)
        attention = self.latent_attention if "kv_lora_rank" in config else self.attention
        for layer in range(config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."

            def norm(name, of):
                return normed(of, self.weight(prefix + name + "_layernorm.weight"), self.epsilon)

            normed_x = normed(x, self.weight(prefix + "input_layernorm.weight"), self.epsilon)
            added = attention(normed_x, prefix + "self_attn.", layer)
            x = x + (norm("post_attention", added) if self.is_gemma else added * residual)
            watch(x)
            normed_x = norm("pre_feedforward" if self.is_gemma else "post_attention", x)
            experts = has_experts(config, layer)
            added = self.experts(normed_x, prefix) if experts else self.mlp(normed_x, prefix + "mlp.")
            x = x + (norm("post_feedforward", added) if self.is_gemma else added * residual)
            watch(x)
        x = normed(x, self.weight("model.norm.weight"), self.epsilon)
        head = table if config.get("tie_word_embeddings", self.is_gemma) else self.weight("lm_head.weight")
        return capped(x @ head.T / config.get("logits_scaling", 1.0), config.get("final_logit_softcapping"))
