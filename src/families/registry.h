// The families that this engine computes. Constants; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "families/family.h"

namespace pelton::families {

std::span<const Family* const> all_families();

// Null if there is none.
const Family* find_family(std::string_view architecture, std::string_view model_type);
const Family* find_gguf_family(std::string_view architecture, bool has_experts,
                               int64_t expert_gating);

// "GptOssForCausalLM (gpt_oss), ...", for messages.
std::string supported_families();

}  // namespace pelton::families
