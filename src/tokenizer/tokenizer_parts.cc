#include "tokenizer/tokenizer_parts.h"

#include <fmt/format.h>

namespace pelton::tokenizer {

Error bad_tokenizer(const std::string& name, const std::string& field, const std::string& what) {
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}: {}", name, field, what), field};
}

Error unsupported_tokenizer(const std::string& name, const std::string& field,
                            const std::string& what) {
  return Error{ErrorCode::kUnsupported, fmt::format("{}: {}: {}", name, field, what), field};
}

}  // namespace pelton::tokenizer
