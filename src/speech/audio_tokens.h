// How an Orpheus model (Canopy Labs 2025: a Llama with 28 683 tokens behind its vocabulary) writes
// sound. Token <custom_token_N> has the id `base` + N; N from 10 on are the codes of three books in
// frames of seven, and the slot i mod 7 of the answer's i-th token has a range of its own:
//
//   slot   0  1  2  3  4  5  6      code = N - 10 - book_size * slot
//   book   0  1  2  2  1  2  2
//
// With books of 4096 and base 128256, token 128266 is code 0 of book 0, token 132362 + 5 is code 5
// of book 1 in slot 1. Immutable; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "grammar/grammar_state.h"
#include "tokenizer/tokenizer.h"

namespace pelton::speech {

inline constexpr size_t kFrameTokens = 7;
inline constexpr size_t kBooks = 3;
// The book of each of a frame's tokens, in the order in which they are said.
inline constexpr std::array<size_t, kFrameTokens> kBookOfSlot = {0, 1, 2, 2, 1, 2, 2};
// Latent frames for each code of a book, as SNAC calls it: a frame has 1, 2 and 4 of them.
inline constexpr std::array<int, kBooks> kStrideOfBook = {4, 2, 1};

// What Orpheus' own program samples with.
struct OrpheusSampling {
  static constexpr double kTemperature = 0.6;
  static constexpr double kTopP = 0.8;
  static constexpr double kRepetitionPenalty = 1.3;
};

class AudioTokens {
 public:
  // `book_size`: codes of a book. `vocab_size`: tokens that the model can sample. Errors:
  // kUnsupported, naming the token that the vocabulary lacks.
  static Result<AudioTokens> of(const tokenizer::Tokenizer& tokenizer, int book_size,
                                int vocab_size);

  // begin of human, "VOICE: TEXT" as the model's files tokenise a prompt, end of text, end of
  // human, begin of the model, begin of speech. Neither voice nor text becomes a control token.
  std::vector<TokenId> prompt(const tokenizer::Tokenizer& tokenizer, std::string_view voice,
                              std::string_view text) const;

  // What the `index`-th token of an answer means; nothing: it is no code of that slot.
  std::optional<int> code(TokenId token, size_t index) const;

  // End of speech, end of text.
  const std::vector<TokenId>& stop_tokens() const { return stops_; }
  bool is_stop(TokenId token) const;

  // Before the i-th token it allows the codes of slot i mod 7 and the stop tokens, nothing else.
  // A mask is 4096 bits and costs some microseconds.
  std::shared_ptr<const grammar::GrammarFsm> grammar() const;

 private:
  TokenId base_ = 0;
  TokenId end_of_text_ = 0;
  int book_size_ = 0;
  int vocab_size_ = 0;
  std::vector<TokenId> stops_;
};

}  // namespace pelton::speech
