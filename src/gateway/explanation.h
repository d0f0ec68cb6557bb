// Why a request goes where it goes, as JSON for an operator: each worker of its pool with what the
// router knows of it and the terms of its cost, in seconds. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gateway/block_view.h"
#include "gateway/fleet.h"

namespace pelton::gateway {

struct Explanation {
  std::string_view pool;
  const RoutedPrompt& prompt;
  int64_t output_tokens = 0;  // expected
  const Fleet::Decision& decision;
};

// {"pool":…,"prompt_tokens":…,"blocks":…,"output_tokens":…,"chosen":…,"candidates":[{"name":…,
// "terms":{"first_s":…,"rest_s":…,"harm_s":…,"room_s":…},"bias":…,"rest_bias":…,"cost_s":…}]},
// and, where its prompt may be split, "pair":{"prefill":…,"decode":…,"chosen":…,"terms":{…},
// "cost_s":…}; where cost_s = bias first_s + rest_bias rest_s + harm_s + room_s.
std::string explanation_body(const Explanation& explanation);

}  // namespace pelton::gateway
