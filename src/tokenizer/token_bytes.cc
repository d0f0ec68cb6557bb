#include "tokenizer/token_bytes.h"

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

}  // namespace pelton::tokenizer
