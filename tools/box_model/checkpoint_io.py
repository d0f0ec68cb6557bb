"""safetensors files and a model folder in the layout of openai/gpt-oss-20b."""
import json
import os
import struct

import torch

import mxfp4
from model import Config, Model


KINDS = {torch.bfloat16: "BF16", torch.uint8: "U8", torch.int64: "I64", torch.bool: "BOOL"}


def raw(tensor):
    tensor = tensor.contiguous()
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy().tobytes()


def write_safetensors(path, tensors):
    """tensors: name -> tensor of one of KINDS."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": KINDS[tensor.dtype],
                        "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(raw(tensor))


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        kind = {"BF16": torch.int16, "U8": torch.uint8}[entry["dtype"]]
        tensor = torch.frombuffer(bytearray(data[begin:end]), dtype=kind).reshape(entry["shape"])
        out[name] = tensor.view(torch.bfloat16) if entry["dtype"] == "BF16" else tensor
    return out


# Ours -> theirs, per layer.
NAMES = {"norm1": "input_layernorm.weight", "norm2": "post_attention_layernorm.weight",
         "q": "self_attn.q_proj.weight", "k": "self_attn.k_proj.weight", "v": "self_attn.v_proj.weight",
         "o": "self_attn.o_proj.weight", "q_bias": "self_attn.q_proj.bias", "k_bias": "self_attn.k_proj.bias",
         "v_bias": "self_attn.v_proj.bias", "o_bias": "self_attn.o_proj.bias", "sinks": "self_attn.sinks",
         "router": "mlp.router.weight", "router_bias": "mlp.router.bias",
         "gate_up_bias": "mlp.experts.gate_up_proj_bias", "down_bias": "mlp.experts.down_proj_bias"}
MATRICES = {"gate_up": "mlp.experts.gate_up_proj", "down": "mlp.experts.down_proj"}
WHOLE = {"embedding": "model.embed_tokens.weight", "norm": "model.norm.weight", "head": "lm_head.weight"}


def to_tensors(state):
    out = {}
    for name, value in state.items():
        if name in WHOLE:
            out[WHOLE[name]] = value.bfloat16()
            continue
        _, layer, key = name.split(".")
        prefix = "model.layers.%s." % layer
        if key in MATRICES:
            blocks, scales = mxfp4.packed(value)
            out[prefix + MATRICES[key] + "_blocks"] = blocks
            out[prefix + MATRICES[key] + "_scales"] = scales
        else:
            out[prefix + NAMES[key]] = value.bfloat16()
    return dict(sorted(out.items()))


def from_tensors(tensors, layers):
    state = {ours: tensors[theirs].float() for ours, theirs in WHOLE.items()}
    for layer in range(layers):
        prefix = "model.layers.%d." % layer
        for ours, theirs in NAMES.items():
            state["blocks.%d.%s" % (layer, ours)] = tensors[prefix + theirs].float()
        for ours, theirs in MATRICES.items():
            state["blocks.%d.%s" % (layer, ours)] = mxfp4.unpacked(
                tensors[prefix + theirs + "_blocks"], tensors[prefix + theirs + "_scales"])
    return state


def config_json(c, first_control):
    return {
        "architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0,
        "eos_token_id": first_control + 4, "experts_per_token": c.experts_per_token, "head_dim": c.head_dim,
        "hidden_act": "silu", "hidden_size": c.hidden, "initial_context_length": c.original_context,
        "initializer_range": 0.02, "intermediate_size": c.intermediate,
        "layer_types": ["full_attention" if i % 2 else "sliding_attention" for i in range(c.layers)],
        "max_position_embeddings": c.context, "model_type": "gpt_oss", "num_attention_heads": c.heads,
        "num_experts_per_tok": c.experts_per_token, "num_hidden_layers": c.layers, "num_key_value_heads": c.kv_heads,
        "num_local_experts": c.experts, "output_router_logits": False, "pad_token_id": first_control + 1,
        "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                           "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"},
        "rms_norm_eps": c.epsilon,
        "rope_scaling": {"beta_fast": c.beta_fast, "beta_slow": c.beta_slow, "factor": c.factor,
                         "original_max_position_embeddings": c.original_context, "rope_type": "yarn", "truncate": False},
        "rope_theta": int(c.theta), "router_aux_loss_coef": 0.01, "sliding_window": c.window, "swiglu_limit": c.limit,
        "tie_word_embeddings": False, "use_cache": True, "vocab_size": c.vocab_size}


def config_of(j):
    return Config(vocab_size=j["vocab_size"], hidden=j["hidden_size"], layers=j["num_hidden_layers"],
                  heads=j["num_attention_heads"], kv_heads=j["num_key_value_heads"], head_dim=j["head_dim"],
                  experts=j["num_local_experts"], experts_per_token=j["num_experts_per_tok"],
                  intermediate=j["intermediate_size"], window=j["sliding_window"],
                  context=j["max_position_embeddings"], original_context=j["initial_context_length"],
                  theta=float(j["rope_theta"]), factor=j["rope_scaling"]["factor"])


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def save_folder(folder, config, state, tokenizer):
    os.makedirs(folder, exist_ok=True)
    first = tokenizer.first_control
    write_json(os.path.join(folder, "config.json"), config_json(config, first))
    write_json(os.path.join(folder, "generation_config.json"),
               {"bos_token_id": first, "do_sample": True, "eos_token_id": [first + 4, first + 1, first + 14],
                "pad_token_id": first + 1})
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    write_safetensors(os.path.join(folder, "model.safetensors"), to_tensors(state))


def load_folder(folder):
    """The model as it is in the files: bf16 weights and MXFP4 experts, held in float32."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = config_of(json.load(file))
    model = Model(config)
    model.load_state_dict(from_tensors(read_safetensors(os.path.join(folder, "model.safetensors")), config.layers))
    return model.eval()
