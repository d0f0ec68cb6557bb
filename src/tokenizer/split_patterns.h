// The split patterns of published byte-level vocabularies by the names that GGUF files have for
// them (tokenizer.ggml.pre). A tokenizer.json carries its own. Constants; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace pelton::tokenizer {

struct NamedSplit {
  std::string_view name;
  std::span<const std::string_view> patterns;  // each cuts the pieces of the one before
  // A piece that is a token is that token, whatever the merges say ("ignore_merges").
  bool whole_pieces_first = false;
};

// Null: not known here.
const NamedSplit* find_split(std::string_view name);
// "gpt-4o, llama-bpe, ..." for messages.
std::string split_names();

}  // namespace pelton::tokenizer
