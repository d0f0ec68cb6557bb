// A workload in a file: what is asked, and when. The load generator, the planner and the simulator
// read the same file and get the same requests. JSON, every key optional but those that its dataset
// needs; a key that nobody knows is an error, because it would silently be another workload. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "workload/arrivals.h"
#include "workload/conversation.h"
#include "workload/recorded.h"
#include "workload/synthetic.h"
#include "workload/vocabulary.h"

namespace pelton::workload {

struct WorkloadSpec {
  enum class Dataset { kRandom, kPrefixRepetition, kShareGpt, kCustom, kTrace };

  std::string name;
  Dataset dataset = Dataset::kRandom;
  std::string file;  // of recorded ones; relative to where the program runs
  RandomLengths lengths;
  Turns turns;
  PrefixRepetition prefixes;
  double trace_speed = 1;
  int64_t count = 200;  // conversations; of a trace 0 is all
  Arrivals arrivals;    // of conversations; a trace brings its own
  std::optional<int> concurrency_max;
  uint64_t seed = 0;
};

// {"dataset": "random", "preset": "prefill-heavy", "input_tokens": N, "output_tokens": N,
//  "range_ratio": R, "prefix_tokens": N, "turns": N, "think_s": S,          (random)
//  "prefix_count": N, "suffix_tokens": N,                                   (prefix_repetition)
//  "file": "...", "speed": X,                                               (recorded, trace)
//  "count": N, "rate": X or "inf", "burstiness": X, "concurrency_max": N, "seed": N,
//  "ramp": {"shape": "linear", "start_rps": X, "end_rps": X}, "day": {"swing": X, "period_s": X},
//  "spikes": [{"at_s": X, "for_s": X, "rps": X}]}
// kInvalidArgument names the key.
Result<WorkloadSpec> parse_spec(const Json& json, const std::string& origin);

// A preset's name or a file.
Result<WorkloadSpec> read_spec(const std::string& preset_or_file);

struct Workload {
  std::vector<Conversation> conversations;
  std::vector<double> at_s;  // when each begins, rising
  std::string note;          // of how its file was read, for whoever runs it; empty: nothing
};
Result<Workload> make_workload(const WorkloadSpec& spec, const Vocabulary& vocabulary);

// Words without text: ids from 0 to count - 1 alone, for whoever needs no text.
Vocabulary ids_vocabulary(int count);

}  // namespace pelton::workload
