// What one copy of a model takes of each device of a group, and what it leaves for keys and values:
// how long, how many at once. For hardware the engine does not run on too; on this machine
// cost_model/footprint.h has the engine's own numbers, to the byte. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost_model/hardware.h"
#include "cost_model/parameters.h"
#include "cost_model/step_time.h"

namespace pelton::planner {

struct MemoryOptions {
  cost_model::Hardware hardware;
  families::ModelConfig shape;
  cost_model::Layout layout;
  double utilization = 0.9;  // of the device's memory; the rest is the driver's and a margin
  double kv_element_bytes = 2;
  int block_tokens = 16;
  int sequences_max = 256;
  int batch_tokens_max = 8192;
};

struct MemoryLine {
  std::string name;
  double bytes = 0;     // on the device that has most
  std::string formula;  // with the numbers filled in
};

struct MemoryPlan {
  std::vector<MemoryLine> lines;  // what is taken before keys and values
  double taken_bytes = 0;
  double allowed_bytes = 0;
  double kv_bytes = 0;           // what is left, of one device; negative: it does not fit
  double kv_token_bytes = 0;     // of one token beyond windows, on one device
  double kv_sequence_bytes = 0;  // of one sequence's windows, on one device
  int sequence_groups = 1;       // devices that hold different sequences (expert parallel)

  // False: an encoder; what is left is for others.
  bool keeps_kv() const { return kv_token_bytes + kv_sequence_bytes > 0; }
  bool fits() const { return kv_bytes > 0; }
  // Tokens of context that fit in the whole group, in whole blocks, with so many sequences'
  // windows.
  int64_t kv_tokens(int64_t sequences) const;
  // Sequences of `tokens` each that fit at once, whatever the slots.
  int64_t sequences_at(int64_t tokens, const MemoryOptions& options) const;
  int64_t longest_context(const MemoryOptions& options) const;
};

// kInvalidArgument: a layout that cannot be.
Result<MemoryPlan> plan_memory(const MemoryOptions& options);

}  // namespace pelton::planner
