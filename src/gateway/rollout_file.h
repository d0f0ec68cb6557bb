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

// A gateway's.
struct SavedRollouts {
  std::string id;  // drawn once for its file: what it has said before its last start is its own
  std::vector<SavedRollout> rollouts;

  friend bool operator==(const SavedRollouts&, const SavedRollouts&) = default;
};
std::string encode(const SavedRollouts& all);
// kInvalidArgument.
Result<SavedRollouts> decode_rollouts(std::string_view text);

}  // namespace pelton::gateway
