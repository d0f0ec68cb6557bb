"""Checkpoints with random weights in the published layout, and their tensors as exact numbers.

A weight is a function of (seed, tensor's name, element's index), the formula of src/checkpoint/family_golden.cc, so that a
test of the engine makes the same file from config.json and seed:
  hash i  = mix(mix(fnv1a(name) ^ mix(seed)) + (i + 1) * 0x9E3779B97F4A7C15), mix: SplitMix64's
  value i = (sum of the hash's four 16-bit numbers - 131070) * deviation / sqrt(4 (2^32 - 1) / 12) + mean
"""
import json
import pathlib
import struct

import numpy as np

STEP = 0x9E3779B97F4A7C15
FP8_BLOCK = 128


def mixed(z):
    """SplitMix64's finaliser, of uint64 arrays."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def normals(seed, name, shape, deviation, mean=0.0):
    hashed = 0xCBF29CE484222325
    for byte in name.encode():
        hashed = ((hashed ^ byte) * 0x100000001B3) % 2**64
    with np.errstate(over="ignore"):
        key = mixed(np.uint64(hashed) ^ mixed(np.uint64(seed)))
        hashes = mixed(np.arange(1, np.prod(shape) + 1, dtype=np.uint64) * np.uint64(STEP) + key)
    sums = sum(((hashes >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.int64) for shift in (0, 16, 32, 48))
    values = (sums - 131070).astype(np.float64) * (deviation / np.sqrt(4.0 * (65536.0 * 65536.0 - 1.0) / 12.0))
    return (values + mean if mean else values).reshape(shape)


def bf16_bits(values):
    """The nearest bf16, ties to even, by way of float32."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def e4m3_values():
    """What the 256 codes of FP8 E4M3 stand for: no infinities, two NaNs, bias 7."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    size = np.where(exponent == 0, mantissa / 512, (1 + mantissa / 8) * 2.0**(exponent - 7))
    size[(code & 127) == 127] = np.nan
    return np.where(code < 128, size, -size)


E4M3 = e4m3_values()


def e4m3_codes(values):
    """The nearest codes, ties to the even one; |value| <= 448."""
    sizes = E4M3[:127]
    above = np.clip(np.searchsorted(sizes, np.abs(values)), 1, 126)
    middle = (sizes[above] + sizes[above - 1]) / 2
    up = (np.abs(values) > middle) | ((np.abs(values) == middle) & (above % 2 == 0))
    return (np.where(up, above, above - 1) | np.where(np.signbit(values), 128, 0)).astype(np.uint8)


def spread(scales, shape):
    """Scales of blocks of 128 x 128 as a matrix; those at the edges are cut."""
    return np.repeat(np.repeat(scales, FP8_BLOCK, 0), FP8_BLOCK, 1)[:shape[0], :shape[1]].astype(np.float64)


class Maker:
    """Tensors in the formula's order, under published names."""

    def __init__(self, config, seed):
        self.config, self.seed, self.tensors = config, seed, []
        self.adds_one = config["model_type"].startswith("gemma")
        self.norm_mean = 0.0 if self.adds_one else 1.0
        self.is_fp8 = "quantization_config" in config

    def bf16(self, name, shape, deviation, mean=0.0):
        self.tensors.append((name, "BF16", bf16_bits(normals(self.seed, name, shape, deviation, mean))))

    def product(self, name, rows, cols, deviation):
        if not self.is_fp8:
            return self.bf16(name, (rows, cols), deviation)
        exact = normals(self.seed, name, (rows, cols), deviation)
        blocks = tuple(-(-size // FP8_BLOCK) for size in exact.shape)
        padded = np.zeros((blocks[0] * FP8_BLOCK, blocks[1] * FP8_BLOCK))
        padded[:rows, :cols] = np.abs(exact)
        largest = padded.reshape(blocks[0], FP8_BLOCK, blocks[1], FP8_BLOCK).max((1, 3))
        scales = (largest / 448).astype(np.float32)
        codes = e4m3_codes(np.clip(exact / spread(scales, exact.shape), -448, 448))
        self.tensors += [(name, "F8_E4M3", codes), (name + "_scale_inv", "F32", scales)]

    def mlp(self, prefix, inner, names=("gate_proj", "up_proj", "down_proj")):
        hidden = self.config["hidden_size"]
        self.product(prefix + names[0] + ".weight", inner, hidden, 1.5 / np.sqrt(hidden))
        self.product(prefix + names[1] + ".weight", inner, hidden, 1.5 / np.sqrt(hidden))
        self.product(prefix + names[2] + ".weight", hidden, inner, 0.8 / np.sqrt(inner))

    def attention(self, prefix):
        config = self.config
        hidden, heads, size = config["hidden_size"], config["num_attention_heads"], config["head_dim"]
        q, kv = heads * size, config["num_key_value_heads"] * size
        has_norms = config["model_type"].startswith(("qwen3", "gemma3"))
        gain = 1.0 if has_norms else 1.5
        self.product(prefix + "q_proj.weight", q, hidden, gain / np.sqrt(hidden))
        self.product(prefix + "k_proj.weight", kv, hidden, gain / np.sqrt(hidden))
        self.product(prefix + "v_proj.weight", kv, hidden, 1.2 / np.sqrt(hidden))
        self.product(prefix + "o_proj.weight", hidden, q, 1.2 / np.sqrt(q))
        if config["model_type"] == "qwen2" or config.get("attention_bias"):
            self.bf16(prefix + "q_proj.bias", (q,), 0.7)
            self.bf16(prefix + "k_proj.bias", (kv,), 0.7)
            self.bf16(prefix + "v_proj.bias", (kv,), 0.5)
        if config.get("attention_bias"):
            self.bf16(prefix + "o_proj.bias", (hidden,), 0.2)
        if has_norms:
            self.bf16(prefix + "q_norm.weight", (size,), 0.3, 1.6 + self.norm_mean - 1.0)
            self.bf16(prefix + "k_norm.weight", (size,), 0.3, 1.6 + self.norm_mean - 1.0)

    def latent_attention(self, prefix):
        config = self.config
        hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
        nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
        if config.get("q_lora_rank"):
            compressed = config["q_lora_rank"]
            self.product(prefix + "q_a_proj.weight", compressed, hidden, 1.0 / np.sqrt(hidden))
            self.bf16(prefix + "q_a_layernorm.weight", (compressed,), 0.2, 1.0)
            self.product(prefix + "q_b_proj.weight", heads * (nope + rope), compressed, 1.4 / np.sqrt(compressed))
        else:
            self.product(prefix + "q_proj.weight", heads * (nope + rope), hidden, 1.4 / np.sqrt(hidden))
        self.product(prefix + "kv_a_proj_with_mqa.weight", rank + rope, hidden, 1.4 / np.sqrt(hidden))
        self.bf16(prefix + "kv_a_layernorm.weight", (rank,), 0.2, 1.0)
        self.product(prefix + "kv_b_proj.weight", heads * (nope + value), rank, 1.2 / np.sqrt(rank))
        self.product(prefix + "o_proj.weight", hidden, heads * value, 1.2 / np.sqrt(heads * value))

    def experts(self, prefix):
        config, hidden = self.config, self.config["hidden_size"]
        kind = config["model_type"]
        router, count = "mlp.gate", config.get("num_experts") or config.get("n_routed_experts")
        names, inner = ("gate_proj", "up_proj", "down_proj"), config.get("moe_intermediate_size")
        if kind == "mixtral":
            router, count = "block_sparse_moe.gate", config["num_local_experts"]
            names, inner = ("w1", "w3", "w2"), config["intermediate_size"]
        gain = 1.5 if kind.startswith("deepseek") else 2.0
        self.bf16(f"{prefix}{router}.weight", (count, hidden), gain / np.sqrt(hidden))
        if kind == "deepseek_v3":
            name = prefix + "mlp.gate.e_score_correction_bias"
            self.tensors.append((name, "F32", normals(self.seed, name, (count,), 0.1, 0.5).astype(np.float32)))
        for expert in range(count):
            self.mlp(f"{prefix}{router.split('.')[0]}.experts.{expert}.", inner, names)
        if config.get("n_shared_experts"):
            self.mlp(prefix + "mlp.shared_experts.", inner * config["n_shared_experts"])

    def layer(self, index, has_experts):
        config, prefix = self.config, f"model.layers.{index}."
        hidden = (config["hidden_size"],)
        self.bf16(prefix + "input_layernorm.weight", hidden, 0.2, self.norm_mean)
        if "kv_lora_rank" in config:
            self.latent_attention(prefix + "self_attn.")
        else:
            self.attention(prefix + "self_attn.")
        self.bf16(prefix + "post_attention_layernorm.weight", hidden, 0.2, self.norm_mean)
        if self.adds_one:
            self.bf16(prefix + "pre_feedforward_layernorm.weight", hidden, 0.2, self.norm_mean)
            self.bf16(prefix + "post_feedforward_layernorm.weight", hidden, 0.2, self.norm_mean)
        if has_experts:
            return self.experts(prefix)
        self.mlp(prefix + "mlp.", config["intermediate_size"])
        if config.get("mlp_bias"):
            self.bf16(prefix + "mlp.gate_proj.bias", (config["intermediate_size"],), 0.5)
            self.bf16(prefix + "mlp.up_proj.bias", (config["intermediate_size"],), 0.5)
            self.bf16(prefix + "mlp.down_proj.bias", hidden, 0.2)

    def draft(self, index):
        """Multi-token prediction's layer, which logits need nothing of."""
        self.layer(index, True)
        prefix, hidden, vocab = f"model.layers.{index}.", self.config["hidden_size"], self.config["vocab_size"]
        for name in ("enorm.weight", "hnorm.weight", "shared_head.norm.weight"):
            self.bf16(prefix + name, (hidden,), 0.2, 1.0)
        self.product(prefix + "eh_proj.weight", hidden, 2 * hidden, 1.0 / np.sqrt(2.0 * hidden))
        self.bf16(prefix + "embed_tokens.weight", (vocab, hidden), 0.1)
        self.bf16(prefix + "shared_head.head.weight", (vocab, hidden), 0.1)

    def make(self):
        config = self.config
        hidden, vocab, layers = config["hidden_size"], config["vocab_size"], config["num_hidden_layers"]
        is_tied = config.get("tie_word_embeddings", self.adds_one)
        embedding = 0.03 if self.adds_one else 0.1
        self.bf16("model.embed_tokens.weight", (vocab, hidden), embedding)
        for index in range(layers):
            self.layer(index, has_experts(config, index))
        for index in range(config.get("num_nextn_predict_layers") or 0):
            self.draft(layers + index)
        gain = 2.5 / (embedding * np.sqrt(hidden)) if is_tied else 1.0
        self.bf16("model.norm.weight", (hidden,), 0.15 * gain, gain + self.norm_mean - 1.0)
        if not is_tied:
            self.bf16("lm_head.weight", (vocab, hidden), 2.5 / np.sqrt(hidden))
        return self.tensors


def has_experts(config, layer):
    kind = config["model_type"]
    if kind == "qwen3_moe":
        return layer not in config.get("mlp_only_layers", []) and (layer + 1) % config.get("decoder_sparse_step", 1) == 0
    if kind.startswith("deepseek"):
        return layer >= config["first_k_dense_replace"]
    return kind == "mixtral"


def write(folder, config, seed):
    """Makes config.json and model.safetensors."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    header, bodies, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, kind, values in Maker(config, seed).make():
        bodies.append(np.ascontiguousarray(values).tobytes())
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [offset, offset + len(bodies[-1])]}
        offset += len(bodies[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for body in bodies:
            file.write(body)


class Checkpoint:
    """config.json and the tensors of model.safetensors as float64, exactly what they stand for."""

    TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1"}

    def __init__(self, folder):
        self.config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        self.file = pathlib.Path(folder) / "model.safetensors"
        with open(self.file, "rb") as file:
            self.begin = 8 + struct.unpack("<Q", file.read(8))[0]
            self.header = json.loads(file.read(self.begin - 8))

    def has(self, name):
        return name in self.header

    def stored(self, name):
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        values = np.fromfile(self.file, "u1", end - begin, offset=self.begin + begin)
        return values.view(self.TYPES[entry["dtype"]]).reshape(entry["shape"])

    def tensor(self, name):
        values, kind = self.stored(name), self.header[name]["dtype"]
        if kind == "BF16":
            return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        if kind == "F8_E4M3":
            return E4M3[values] * spread(self.stored(name + "_scale_inv"), values.shape)
        return values.astype(np.float64)
