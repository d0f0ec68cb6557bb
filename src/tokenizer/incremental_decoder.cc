#include "tokenizer/incremental_decoder.h"

#include "base/utf8.h"

namespace pelton::tokenizer {
namespace {

using base::Utf8Step;

// Appends what is certain of `bytes` and returns the rest.
std::string_view decode_certain(std::string_view bytes, std::string& out) {
  for (;;) {
    const size_t valid = base::valid_utf8_prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    const Utf8Step step = base::utf8_step(bytes);
    if (step.kind == Utf8Step::Kind::kIncomplete) break;
    out.append(base::kReplacementCharacter);
    bytes.remove_prefix(step.bytes);
  }
  return bytes;
}

}  // namespace

void IncrementalDecoder::push(std::string_view token_bytes, std::string& out) {
  if (held_.empty()) {
    held_ = decode_certain(token_bytes, out);
    return;
  }
  held_.append(token_bytes);
  held_.erase(0, held_.size() - decode_certain(held_, out).size());
}

void IncrementalDecoder::finish(std::string& out) {
  if (!held_.empty()) out.append(base::kReplacementCharacter);
  held_.clear();
}

}  // namespace pelton::tokenizer
