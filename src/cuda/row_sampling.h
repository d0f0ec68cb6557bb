// What a device gets for drawing a token from each row of logits, and what it answers. Weights
// are the whole numbers of kernels/logit_rows.h, whose sums are the same in any order: so a row
// gives the same token here as on the host (sampling/sampler.h). Plain data; offsets count
// elements.
#pragma once

#include <compare>
#include <cstdint>
#include <span>

namespace pelton::cuda {

inline constexpr int kReportedMax = 32;  // likeliest tokens of a row that are reported

// Edits of all rows of a step; a row with more is the host's.
inline constexpr int kEditsMax = 1 << 16;

struct RowSampling {
  uint64_t random;       // of the draw: 64 bits
  uint64_t top_p_share;  // of 2^53, kept by top_p; 0: all
  uint64_t least_mass;   // what a token must weigh (min_p)
  float sharpness;       // log2(e) / temperature; 0: the highest, of equals the lowest id
  float repetition_penalty;
  float frequency_penalty;
  float presence_penalty;
  int32_t on_host;   // 1: its logits are copied out, nothing else happens
  int32_t top_k;     // 0: all
  int32_t reported;  // likeliest tokens wanted of the row as it came; -1: nothing of it
  int32_t mask;      // of what may be chosen: its first word in `masks`; negative: everything
  // Its edits, in this order: what was there before, what is biased (each token once in both), what
  // is banned. The last of what was there may be a token that is not known yet (LogitEdit).
  int32_t penalties;
  int32_t penalty_count;
  int32_t biases;
  int32_t bias_count;
  int32_t banned;
  int32_t banned_count;
};

// A penalty's token below 0 is the one that row ~token of the logits of the step before was given:
// one more of it is there than the row's other penalties say.
struct LogitEdit {
  int32_t token;
  union {
    int32_t in_output;  // of penalties: how often it was said
    float bias;
  };
};

struct Sampling {
  const RowSampling* rows;  // one for each row of logits
  const LogitEdit* edits;
  const uint64_t* masks;  // bit t % 64 of word t / 64 is token t's
  int32_t edit_count;
  int32_t mask_words;
  int32_t vocab;  // tokens from here on are never drawn
};

struct SampledRow {
  uint64_t raw_mass;  // of the row as it came, at temperature 1
  float raw_highest;
  float raw_logit;  // the token's
  int32_t token;    // negative: the row holds a NaN or an infinity, or nothing that may be chosen
  int32_t reported;
};
struct ReportedToken {
  int32_t token;
  float logit;
};

// On the device: rows, vocab, nothing; then RowSampling of each row.
inline constexpr int64_t kSamplingHeaderBytes = 16;
// What comes back of a row.
constexpr int64_t sampled_row_bytes() {
  return sizeof(SampledRow) + kReportedMax * sizeof(ReportedToken);
}

// The caller's memory, filled by a step.
struct Sampled {
  SampledRow* rows;         // as many as there are rows of logits
  ReportedToken* reported;  // (rows, kReportedMax), in no order
};

// What any row of a step needs: launches for the others are left out.
struct SamplingNeeds {
  bool reports = false;  // wants to know something of the row as it came
  bool reports_best = false;
  bool edits = false;
  int32_t cuts = 0;    // top_k and top_p of one row: 2
  bool draws = false;  // not just the highest
  bool any = false;    // a row is the device's at all

  bool operator==(const SamplingNeeds&) const = default;
  auto operator<=>(const SamplingNeeds&) const = default;
};
SamplingNeeds sampling_needs(const Sampling& sampling, int row_count);

// What is wrong with it: null, or a number that would have the device read from anywhere. drawn: of
// each row of logits of the step before, whether the device drew its token (not 0).
const char* wrong_sampling(const Sampling& sampling, int row_count, int vocab,
                           std::span<const uint8_t> drawn);

}  // namespace pelton::cuda
