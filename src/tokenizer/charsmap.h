// SentencePiece's compiled normalisation ("precompiled_charsmap"): which byte sequences of a text
// are replaced by what, as a double-array trie and its values. Foreign bytes: every place in them
// is checked. Immutable; any thread.
//
// Source: sentencepiece's src/normalizer.cc; darts-clone's double-array units.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::tokenizer {

class Charsmap {
 public:
  static constexpr size_t kBytesMax = size_t{16} << 20;

  // `bytes`: the size of the trie (32 bits, little-endian), the trie, the values, each with a NUL
  // behind it. Error kInvalidArgument: the sizes do not fit.
  static Result<Charsmap> parse(std::string_view bytes);

  // The longest replacement that begins at `text`; nothing if none does.
  struct Match {
    size_t length;  // of the text
    std::string_view with;
  };
  std::optional<Match> match(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string values_;
};

}  // namespace pelton::tokenizer
