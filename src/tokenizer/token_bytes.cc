#include "tokenizer/token_bytes.h"

#include <cstddef>
#include <cstring>

#include "base/check.h"

namespace pelton::tokenizer {

bool TokenBytes::set(TokenId id, std::string_view bytes) {
  CHECK(id >= 0 && id < kTokenIdsMax && !bytes.empty());
  CHECK(blob_.size() + bytes.size() <= UINT32_MAX);
  const size_t index = static_cast<size_t>(id);
  if (index >= places_.size()) places_.resize(index + 1);
  if (places_[index].length != 0) return false;
  places_[index] = {static_cast<uint32_t>(blob_.size()), static_cast<uint32_t>(bytes.size())};
  blob_.append(bytes);
  return true;
}

// Most tokens are short: where there is room for it, sixteen bytes are copied whatever the length,
// and the next token lies over what was too much.
void TokenBytes::append_to(std::string& out, std::span<const TokenId> ids) const {
  constexpr size_t kCopied = 16;
  size_t total = 0;
  for (const TokenId id : ids) total += (*this)[id].size();
  size_t at = out.size();
  out.resize(at + total);
  const char* const blob_end = blob_.data() + blob_.size();
  for (const TokenId id : ids) {
    const std::string_view bytes = (*this)[id];
    if (bytes.empty()) continue;
    const bool room = at + kCopied <= out.size() &&
                      blob_end - bytes.data() >= static_cast<std::ptrdiff_t>(kCopied);
    if (bytes.size() <= kCopied && room) {
      std::memcpy(out.data() + at, bytes.data(), kCopied);
    } else {
      std::memcpy(out.data() + at, bytes.data(), bytes.size());
    }
    at += bytes.size();
  }
}

}  // namespace pelton::tokenizer
