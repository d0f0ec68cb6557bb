// From bytes to the token that stands for them: a flat open-addressed table. Immutable once filled;
// any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "tokenizer/token_bytes.h"

namespace pelton::tokenizer {

inline constexpr TokenId kNoToken = -1;

class TokenLookup {
 public:
  // Room for at most `tokens` entries.
  explicit TokenLookup(size_t tokens);

  // kNoToken if entered, or else the id that has these bytes already. `tokens[id]` must stay as it
  // is for as long as this table is asked.
  TokenId insert(const TokenBytes& tokens, TokenId id);

  // kNoToken if there is none. `tokens` is the one that was given to insert.
  TokenId find(const TokenBytes& tokens, std::string_view bytes) const;

  // As find for each of a few pieces of one text, none empty. Their slots are asked for before the
  // first is read: the table is larger than the caches near the core. `text_end`: up to there what
  // follows a piece may be read too.
  static constexpr size_t kTogether = 32;
  void find_together(const TokenBytes& tokens, std::span<const std::string_view> pieces,
                     const char* text_end, TokenId* ids) const;

  // Equal for equal bytes; they are not empty.
  static uint64_t key_of(std::string_view bytes);

  size_t bytes_max() const { return bytes_max_; }

 private:
  struct Slot {
    uint64_t key = 0;  // the bytes themselves if there are at most 8, or a hash
    TokenId id = kNoToken;
    uint32_t length = 0;
  };

  TokenId find_from(const TokenBytes& tokens, std::string_view bytes, uint64_t key,
                    size_t slot) const;

  std::vector<Slot> slots_;
  size_t mask_;
  size_t bytes_max_ = 0;
};

}  // namespace pelton::tokenizer
