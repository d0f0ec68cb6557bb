#include "api/token_ids.h"

#include <fmt/format.h>

namespace pelton::api {

std::optional<std::vector<TokenId>> read_token_ids(const Json::Array& items,
                                                   const std::string& path, const Fields& body,
                                                   const RequestLimits& limits) {
  std::vector<TokenId> tokens;
  tokens.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const std::optional<int64_t> id = exact_integer(items[i]);
    if (!id || *id < 0 || *id >= limits.vocab_size) {
      const std::string item = item_path(path, i);
      body.refuse(item,
                  fmt::format("'{}' must be a token id from 0 to {}", item, limits.vocab_size - 1));
      return std::nullopt;
    }
    tokens.push_back(static_cast<TokenId>(*id));
  }
  return tokens;
}

}  // namespace pelton::api
