"""Random configurations of each family, small, of shapes and scalings that published models have or may have."""

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral", "gemma3_text", "deepseek_v2", "deepseek_v3",
            "granite")

CLASSES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
           "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "mixtral": "MixtralForCausalLM",
           "gemma3_text": "Gemma3ForCausalLM", "deepseek_v2": "DeepseekV2ForCausalLM",
           "deepseek_v3": "DeepseekV3ForCausalLM", "granite": "GraniteForCausalLM"}


def scaling(random, kind, pairs, context):
    """rope_scaling of that kind, and keys that stand beside it."""
    original = random.choice([32, 64, 100, 256])
    if kind == "linear":
        return {"factor": random.choice([2.0, 8.0]), random.choice(["rope_type", "type"]): kind}, {}
    if kind == "llama3":
        low = random.choice([1.0, 2.0])
        return {"factor": random.choice([8.0, 32.0]), "low_freq_factor": low, "high_freq_factor": low * 4,
                "original_max_position_embeddings": original, "rope_type": kind}, {}
    if kind == "yarn":
        found = {"factor": random.choice([2.0, 4.0, 40.0]), "original_max_position_embeddings": original,
                 random.choice(["rope_type", "type"]): kind}
        if random.random() < 0.3:
            found |= {"beta_fast": 16.0, "beta_slow": 2.0}
        if random.random() < 0.3:
            found["truncate"] = False
        if random.random() < 0.2:
            found["attention_factor"] = 1.25
        return found, {}
    if kind == "longrope":
        factors = {name: [round(random.uniform(1, most), 3) for _ in range(pairs)]
                   for name, most in (("short_factor", 2), ("long_factor", 40))}
        return factors | {"type": kind}, {"original_max_position_embeddings": random.choice([original, context])}
    return None, {}


def attention(random, kind):
    kv = random.choice([1, 1, 2, 3, 4])
    heads = kv * random.choice([1, 2, 3, 4, 7, 8])
    return {"num_attention_heads": heads, "num_key_value_heads": kv,
            "head_dim": random.choice([16, 32, 48, 64, 72, 80, 90, 96, 100, 112, 120, 128, 192, 256])}


def window(random, kind, config):
    layers = config["num_hidden_layers"]
    width = random.choice([1, 2, 7, 16, 33, 100])
    if kind in ("mistral", "mixtral"):
        config["sliding_window"] = random.choice([None, width])
        if kind == "mistral" and config["sliding_window"] and random.random() < 0.4:
            config["layer_types"] = [random.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]
    elif kind.startswith("qwen"):
        config |= {"sliding_window": width, "use_sliding_window": random.random() < 0.6,
                   "max_window_layers": random.randint(0, layers)}
    elif kind == "gemma3_text":
        config |= {"sliding_window": width, "sliding_window_pattern": random.choice([2, 3, 6])}
        if random.random() < 0.3:
            config["layer_types"] = [random.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]


def mixture(random, kind, config):
    k = random.choice([1, 2, 3, 4, 8])
    if kind == "qwen3_moe":
        config |= {"num_experts": k + random.randint(1, 20), "num_experts_per_tok": k,
                   "moe_intermediate_size": random.choice([32, 40, 48, 96, 160]), "norm_topk_prob": random.random() < 0.6,
                   "decoder_sparse_step": random.choice([1, 1, 2]),
                   "mlp_only_layers": [0] if random.random() < 0.3 else []}
    elif kind == "mixtral":
        config |= {"num_local_experts": k + random.randint(1, 8), "num_experts_per_tok": k}
    elif kind.startswith("deepseek"):
        groups = random.choice([1, 2, 4, 8])
        kept = random.randint(1, groups)
        each = max(2, -(-k // kept)) + random.randint(0, 3)
        config |= {"n_routed_experts": groups * each, "num_experts_per_tok": k, "n_group": groups, "topk_group": kept,
                   "n_shared_experts": random.choice([1, 1, 2]), "moe_intermediate_size": random.choice([32, 40, 48, 96, 160]),
                   "first_k_dense_replace": random.randint(0, config["num_hidden_layers"]), "moe_layer_freq": 1,
                   "routed_scaling_factor": random.choice([1.0, 2.5]), "norm_topk_prob": True,
                   "scoring_func": "sigmoid", "topk_method": "noaux_tc"}
        if kind == "deepseek_v2":
            config |= {"norm_topk_prob": False, "scoring_func": "softmax",
                       "topk_method": random.choice(["greedy", "group_limited_greedy"])}


def latent(random, config):
    config |= {"q_lora_rank": random.choice([None, 40, 64, 96]), "kv_lora_rank": random.choice([32, 48, 64, 96, 128]),
               "qk_nope_head_dim": random.choice([16, 32, 48, 64]), "qk_rope_head_dim": random.choice([8, 16, 20, 32]),
               "v_head_dim": random.choice([16, 24, 32, 48, 64])}
    config["num_attention_heads"] = config["num_key_value_heads"] = random.choice([1, 2, 3, 5, 8])
    del config["head_dim"]
    if random.random() < 0.4:
        config["num_nextn_predict_layers"] = 1
    if random.random() < 0.4:
        config["quantization_config"] = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                         "weight_block_size": [128, 128]}


def rotation(random, kind, config):
    context = random.choice([512, 4096, 131072])
    kinds = ["none", "linear", "llama3", "yarn", "longrope", "dynamic"]
    if kind in ("gemma3_text", "deepseek_v2", "deepseek_v3"):
        kinds = ["none", "linear"] if kind == "gemma3_text" else ["none", "yarn"]
    config |= {"max_position_embeddings": context, "rope_theta": random.choice([10000.0, 150000.0, 1e6, 1e7])}
    size = config.get("head_dim", 0)
    if kind in ("llama", "mistral") and random.random() < 0.25:
        part = random.choice([0.25, 0.5, 0.75])
        if int(part * size) % 2 == 0:
            config["partial_rotary_factor"], size = part, int(part * size)
    chosen = random.choice(kinds)
    found, beside = scaling(random, chosen, size // 2, context)
    config["rope_scaling"] = {"type": "dynamic", "factor": 2.0} if chosen == "dynamic" else found
    config |= beside
    if kind.startswith("deepseek") and found:
        mscale = random.choice([0.707, 1.0])
        found |= {"mscale": random.choice([mscale, 1.2]), "mscale_all_dim": mscale}


def random_config(random, kind):
    """random: a random.Random."""
    config = {"architectures": [CLASSES[kind]], "model_type": kind, "num_hidden_layers": random.randint(1, 3),
              "hidden_size": random.choice([64, 72, 96, 100, 128, 160, 192, 320]), "hidden_act": "silu", "bos_token_id": 1,
              "intermediate_size": random.choice([64, 96, 100, 144, 160, 352, 416]), "eos_token_id": 2,
              "vocab_size": random.choice([200, 500, 512, 1031]), "rms_norm_eps": random.choice([1e-5, 1e-6]),
              "tie_word_embeddings": random.random() < 0.5, "torch_dtype": "bfloat16"} | attention(random, kind)
    if kind.startswith("deepseek"):
        latent(random, config)
    rotation(random, kind, config)
    window(random, kind, config)
    mixture(random, kind, config)
    if kind in ("llama", "qwen3", "qwen3_moe", "gemma3_text", "granite") and random.random() < 0.4:
        config["attention_bias"] = True
    if kind in ("llama", "granite") and random.random() < 0.4:
        config["mlp_bias"] = True
    if kind == "granite":
        config |= {"embedding_multiplier": random.choice([1.0, 12.0]), "residual_multiplier": random.choice([0.22, 0.7, 1.0]),
                   "attention_multiplier": random.choice([0.0078125, 0.1, 0.25]), "logits_scaling": random.choice([1.0, 6.0, 16.0])}
    if kind == "gemma3_text":
        del config["hidden_act"]
        config |= {"hidden_activation": "gelu_pytorch_tanh", "rope_local_base_freq": random.choice([1e4, 5e4]),
                   "query_pre_attn_scalar": random.choice([config["head_dim"], 168, 42]),
                   "attn_logit_softcapping": random.choice([None, None, 50.0]),
                   "final_logit_softcapping": random.choice([None, None, 30.0])}
    return config


def sized(config):
    """The same with the sizes that are left out because they follow from others."""
    heads = config["num_attention_heads"]
    return {"head_dim": config["hidden_size"] // heads, "num_key_value_heads": heads} | config
