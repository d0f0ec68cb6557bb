// What a leader sends its followers of a step, in bytes: resolved tokens, each sequence's place,
// and of its block tables what has changed since the message before; copies of blocks; that the
// first step's result is to be compared, and what each rank holds. A leader has a RankStepWriter,
// each follower a RankStepReader that remembers the same tables. Their executor's thread.
//
// Slot 3 decodes at position 16, whose block is the second, number 7: its slot, start and count,
// then "2 entries, 1 changed: entry 1 is 7". At position 17: "2 entries, 0 changed".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/step_plan.h"
#include "kv/group.h"
#include "models/forward.h"

namespace pelton::executor {

enum class RankMessage : int32_t { kStep = 1, kCopies = 2, kCompare = 3, kBytes = 4 };

// Of each slot and group, the table as the last message left it.
using RankTables = std::vector<kv::PerGroup<std::vector<int32_t>>>;

class RankStepWriter {
 public:
  explicit RankStepWriter(int block_tokens) : block_tokens_(block_tokens) {}

  // Good until the next message.
  std::string_view step(const models::ForwardInput& input);
  std::string_view copies(const std::vector<engine::BlockCopy>& copies);
  std::string_view compare();
  std::string_view bytes();

 private:
  void begin(RankMessage kind);
  void put(int32_t value);
  void put_table(std::vector<int32_t>& sent, const int32_t* table, int32_t entries);

  const int block_tokens_;
  int32_t number_ = 0;
  std::string bytes_;
  RankTables sent_;
};

class RankStepReader {
 public:
  // What the messages may name at most.
  struct Limits {
    int tokens = 0;
    int logit_rows = 0;
    int slots = 1 << 16;
    kv::PerGroup<int> blocks;  // of each group, on the device
    int block_tokens = 16;
    int vocab = 0;
  };

  explicit RankStepReader(const Limits& limits) : limits_(limits) {}

  // Which message this is; then its content is one of the two below. Error: kInvalidArgument where
  // it is none, or not the one that follows the one before.
  Result<RankMessage> read(std::string_view bytes);

  // Its tables point into this reader. Good until the next read.
  const models::ForwardInput& step() const { return step_; }
  const std::vector<engine::BlockCopy>& copies() const { return copies_; }

 private:
  Result<void> read_step();
  Result<void> read_sequence();
  Result<void> read_copies();
  Result<int32_t> take(int32_t least, int32_t most);

  const Limits limits_;
  std::string_view rest_;
  int32_t number_ = 0;
  models::ForwardInput step_;
  std::vector<engine::BlockCopy> copies_;
  RankTables tables_;
};

}  // namespace pelton::executor
