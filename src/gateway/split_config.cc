#include "gateway/split_config.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "gateway/config_table.h"

namespace pelton::gateway {
namespace {

using Mode = SplitConfig::Mode;
using Handoff = SplitConfig::Handoff;

constexpr std::array<std::pair<Mode, std::string_view>, 3> kModes = {
    {{Mode::kOff, "off"}, {Mode::kAuto, "auto"}, {Mode::kAlways, "always"}}};
constexpr std::array<std::pair<Handoff, std::string_view>, 2> kHandoffs = {
    {{Handoff::kWarm, "warm"}, {Handoff::kFirst, "first"}}};

template <typename Names, typename Value>
bool read_name(const Names& names, const std::string& text, Value& into) {
  const auto found = std::ranges::find(names, text, [](const auto& one) { return one.second; });
  if (found == names.end()) return false;
  into = found->first;
  return true;
}

}  // namespace

std::string_view split_mode_name(Mode mode) {
  return kModes[static_cast<size_t>(mode)].second;
}

std::string_view handoff_name(Handoff handoff) {
  return kHandoffs[static_cast<size_t>(handoff)].second;
}

Result<void> read_split(const ConfigTable& table, const SplitMeans& means, SplitConfig& split) {
  std::string mode(split_mode_name(split.mode));
  TRY(table.read("split", mode));
  if (!read_name(kModes, mode, split.mode)) {
    return table.bad("split", "must be off, auto or always");
  }
  std::string handoff;
  TRY(table.read("handoff", handoff));
  if (!handoff.empty() && !read_name(kHandoffs, handoff, split.handoff)) {
    return table.bad("handoff", "must be warm or first");
  }
  if (split.mode == Mode::kOff) {
    if (handoff.empty()) return {};
    return table.bad("handoff", "means nothing without 'split'");
  }
  if (means.is_foreign) {
    if (!means.pairs) {
      return table.bad("split", "is for workers of our own, and of the kinds vllm and sglang");
    }
    if (split.mode == Mode::kAuto) {
      return table.bad("split",
                       "is off or always for workers of other kinds: what they compute and fetch "
                       "takes is not known");
    }
    if (!handoff.empty()) return table.bad("handoff", "is for workers of our own");
    return {};
  }
  if (!means.has_tokenizer) {
    return table.bad("split",
                     "means nothing without 'tokenizer', by which prompts' blocks are known");
  }
  if (means.scales && !means.scales_by_both) {
    return table.bad("split",
                     "of a pool whose replicas come and go wants policy = \"slo\" of [pool.scale] "
                     "with 'ttft' and 'itl', without 'standby', and not of pods");
  }
  if (means.has_key) return {};
  return table.bad("split",
                   "means nothing without 'fleet_key_file': workers fetch from each other by its "
                   "tickets");
}

}  // namespace pelton::gateway
