// What was answered before, and what stood in it behind the end of a text: the memory of
// suffix_shared (SuffixDecoding, Oliaro et al. 2024). Answers lie one after the other in a ring of
// tokens; the oldest fall out. Every three tokens in a row are found by a hash, the latest place
// first, and each place knows the one before it.
//
// Only answers of the same origin are found (kv's: one salt, one adapter): who has another must not
// learn by timing what was said here. Memory is taken at once, the work of a search is bounded.
// Owned by one proposer; its thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "kv/block_hash.h"

namespace pelton::speculative {

class AnswerPool {
 public:
  struct Options {
    int tokens_max = 1 << 18;  // of all answers
    int answers_max = 10'000;
  };
  // Of a text's end, so many tokens must stand in an answer; longer matches than this are not
  // distinguished.
  static constexpr int kMatchMin = 3;
  static constexpr int kMatchMax = 24;
  // Places that a search looks at, the latest first.
  static constexpr int kPlacesMax = 64;

  explicit AnswerPool(const Options& options);
  static int64_t bytes_for(const Options& options);
  int64_t bytes() const;

  // An answer, or a part of one; one shorter than a match is not kept, of a longer one than there
  // is room for the end.
  void add(std::span<const TokenId> answer, const kv::BlockHash& origin);

  // The places where the longest end of the text stands, the latest first.
  struct Found {
    int matched = 0;  // tokens; 0: none
    std::vector<int64_t> ends;
  };
  void find(std::span<const TokenId> text, const kv::BlockHash& origin, Found& found) const;

  // The token `ahead` tokens behind an end (0: the next one), or kNone where the answer is over.
  static constexpr TokenId kNone = -1;
  TokenId behind(int64_t end, int ahead) const;

 private:
  // Positions count all tokens that were ever added.
  struct Answer {
    int64_t begin = 0;
    int64_t end = 0;
    kv::BlockHash origin;
  };

  size_t at(int64_t position) const { return static_cast<size_t>(position % options_.tokens_max); }
  size_t bucket_of(const TokenId* three, const kv::BlockHash& origin) const;
  const Answer* answer_of(int64_t position) const;
  void drop_oldest();
  int matched_at(const Answer& answer, int64_t last, std::span<const TokenId> text) const;

  const Options options_;
  int64_t end_ = 0;                // of all tokens so far
  std::vector<TokenId> tokens_;    // by position
  std::vector<int64_t> previous_;  // by position of a third token: another place of the bucket
  std::vector<int64_t> latest_;    // by bucket
  std::vector<Answer> answers_;    // a ring
  size_t first_ = 0, count_ = 0;   // of it
};

}  // namespace pelton::speculative
