#include "server/served_model.h"

#include <algorithm>

namespace pelton::server {

int64_t ServedModel::context_limit() const {
  const engine::ExecutorCapacity& capacity = engine.capacity();
  return std::min(
      {int64_t{context_max}, int64_t{capacity.context_tokens_max}, capacity.sequence_tokens_max()});
}

bool ServedModel::answers_to(std::string_view name) const {
  // A client that names no model means the one there is.
  return name.empty() || name == id ||
         std::find(aliases.begin(), aliases.end(), name) != aliases.end();
}

std::string ServedModel::shown_name(const std::string& asked) const {
  return !asked.empty() && answers_to(asked) ? asked : id;
}

std::vector<TokenId> ServedModel::all_stop_tokens() const {
  std::vector<TokenId> all = harmony.stop_tokens();
  for (const TokenId id : stop_tokens) {
    // <|end|> closes one message of several; some generation_configs list it all the same.
    const bool known = std::find(all.begin(), all.end(), id) != all.end();
    if (!known && id != harmony.end) all.push_back(id);
  }
  return all;
}

}  // namespace pelton::server
