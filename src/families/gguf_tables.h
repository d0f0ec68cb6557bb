// llama.cpp's names and numbers that Llama's descendants share (GgufNames). A name that a family's
// files do not hold does no harm: what is expected is said elsewhere (expected_tensors.h).
#pragma once

#include "families/family.h"

namespace pelton::families {

inline constexpr NamePair kGgufDecoderTensors[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_gate.bias", "mlp.gate_proj.bias"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_up.bias", "mlp.up_proj.bias"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_down.bias", "mlp.down_proj.bias"},
    {"ffn_gate_inp.weight", "mlp.router.weight"},
    {"ffn_gate_exps.weight", "mlp.experts.gate_exps"},
    {"ffn_up_exps.weight", "mlp.experts.up_exps"},
    {"ffn_down_exps.weight", "mlp.experts.down_exps"},
};

inline constexpr GgufInteger kGgufDecoderNumbers[] = {
    {"feed_forward_length", "intermediate_size", true}};

}  // namespace pelton::families
