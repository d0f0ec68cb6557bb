// OpenAI's own layout of gpt-oss (the folder original/ of the published repositories): the same
// tensors in the same types and byte order under other names, with q, k and v in one matrix. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "families/model_config.h"

namespace pelton::families {

// An original config.json has no architecture but num_experts.
bool is_original_config(const Json& config);

// What a Hugging Face config.json would say.
Json config_from_original(const Json& config);
Json config_to_original(const Json& config);

// Some first rows of a stored tensor, under our name.
struct RowPart {
  std::string name;
  int64_t row_count = 0;  // 0: all there are
};

// The parts of the original tensor, in the order in which they lie; empty if the name is unknown.
std::vector<RowPart> parts_of_original(std::string_view original_name, const ModelConfig& config);

// Whether models of its family can be written so.
bool has_original_layout(const ModelConfig& config);

// All tensors of the layout: layers by the text of their number, then the three global ones.
std::vector<std::string> original_names(const ModelConfig& config);

}  // namespace pelton::families
