// The rows of a step as a device draws from them (cuda/row_sampling.h), and its
// answers as a Sampler's: the same to the bit, but for the last one of a log-probability's. Owned
// by the executor; its thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/row_sampling.h"
#include "sampling/sampler.h"

namespace pelton::sampling {

class DeviceRows {
 public:
  static constexpr size_t kEditsMax = cuda::kEditsMax;  // biases, bans and penalties of all

  // The most that a row with this history adds to the edits on its account.
  static size_t penalties_of(size_t history_size) { return history_size + 1; }

  // Whether rows with these parameters are the host's, whatever else.
  static bool are_hosts(const request::SamplingParams& params);

  // Tokens from `vocab` on are never drawn.
  void clear(int vocab);

  // Adds the next row. pending_row: of the step before, where the sequence's last token is still
  // being drawn, so that `input.history` lacks it; negative: there is none. False: the row is the
  // host's to draw from (too many edits, or more of its best wanted than a device reports).
  bool add(const DrawInput& input, int32_t pending_row);
  // Adds a row that is the host's.
  void skip();

  // Good until the next change.
  const cuda::Sampling& sampling();
  cuda::Sampled sampled();

  SampledChoice choice(size_t row) const;

 private:
  struct Edits {
    int32_t first = 0;
    int32_t count = 0;
  };
  Edits add_penalties(const DrawInput& input, int32_t pending_row);
  Edits add_biases(const DrawInput& input);
  Edits add_banned(const DrawInput& input);
  int32_t add_mask(std::span<const uint64_t> allowed);
  bool has_room(const DrawInput& input) const;

  int vocab_ = 0;
  cuda::Sampling sampling_{};
  std::vector<cuda::RowSampling> rows_;
  std::vector<cuda::LogitEdit> edits_;
  std::vector<uint64_t> masks_;
  std::vector<cuda::SampledRow> results_;
  std::vector<cuda::ReportedToken> reported_;
};

}  // namespace pelton::sampling
