// Whether a pool's requests are split: one worker computes the prompt and says the first token,
// another one goes on with the answer. Values; docs/split.md lists the keys.
#pragma once

#include <string_view>

#include "base/result.h"

namespace pelton::gateway {

class ConfigTable;

struct SplitConfig {
  enum class Mode {
    kOff,
    kAuto,    // where the best two workers are predicted to be sooner than the best one
    kAlways,  // where there are two
  };
  // When the first worker ends.
  enum class Handoff {
    kWarm,   // when the second one has computed what was said; until then it goes on
    kFirst,  // with the first token
  };
  Mode mode = Mode::kOff;
  Handoff handoff = Handoff::kWarm;

  friend bool operator==(const SplitConfig&, const SplitConfig&) = default;
};

std::string_view split_mode_name(SplitConfig::Mode mode);
std::string_view handoff_name(SplitConfig::Handoff handoff);

// What the rest of the configuration says.
struct SplitMeans {
  bool is_foreign = false;
  bool pairs = false;  // and two of that kind may answer a request together
  bool has_tokenizer = false;
  bool has_key = false;         // the fleet's
  bool scales = false;          // its replicas come and go
  bool scales_by_both = false;  // by an objective for each role
};
// "split" and "handoff" of a [[pool]]. Errors: kBadConfig.
Result<void> read_split(const ConfigTable& table, const SplitMeans& means, SplitConfig& split);

}  // namespace pelton::gateway
