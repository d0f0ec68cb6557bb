// How far roll-outs have come, as text: what a gateway keeps over a new start, and what several
// say to each other. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gateway/rollout.h"

namespace pelton::gateway {

struct SavedRollout {
  std::string name;
  std::string identity;  // of what is rolled out where: another one begins anew
  std::string tests;     // what evidence is evidence of: with other tolerances it is none
  RolloutState state;
  RolloutEvidence evidence;

  friend bool operator==(const SavedRollout&, const SavedRollout&) = default;
};

std::string encode(const std::vector<SavedRollout>& rollouts);
// kInvalidArgument.
Result<std::vector<SavedRollout>> decode_rollouts(std::string_view text);

}  // namespace pelton::gateway
