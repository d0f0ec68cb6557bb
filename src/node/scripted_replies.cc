#include "node/scripted_replies.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"

namespace pelton::node {
namespace {

struct Entry {
  std::string match;
  std::vector<TokenId> reply;
};

const Entry& choose(const std::vector<Entry>& entries, const std::string& prompt) {
  const Entry* best = &entries.front();
  size_t best_at = 0;
  for (const Entry& entry : entries) {
    const size_t at = entry.match.empty() ? 0 : prompt.rfind(entry.match);
    if (at == std::string::npos || at < best_at) continue;
    best = &entry;
    best_at = at;
  }
  return *best;
}

}  // namespace

Result<engine::ModelledExecutor::TokenFunction> read_scripted_replies(
    const std::string& file, const tokenizer::Tokenizer& tokenizer) {
  TRY_ASSIGN(const std::string text, base::read_file(file, size_t{16} << 20));
  Result<Json> json = Json::parse(text);
  if (!json.ok()) {
    return Error{ErrorCode::kBadConfig, fmt::format("{}: {}", file, json.error().message)};
  }
  if (!json->is_array() || json->as_array().empty()) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("{}: must be a JSON array of {{match, reply}}, and not empty", file)};
  }
  std::vector<Entry> entries;
  for (const Json& item : json->as_array()) {
    const std::optional<std::string> reply = item.string("reply");
    if (!reply || reply->empty()) {
      return Error{ErrorCode::kBadConfig,
                   fmt::format("{}: entry {} has no text \"reply\"", file, entries.size())};
    }
    entries.push_back({item.string("match").value_or(""), tokenizer.encode_with_special(*reply)});
  }
  return engine::ModelledExecutor::TokenFunction(
      [entries = std::move(entries), &tokenizer](const engine::ModelledExecutor::Seen& seen) {
        const auto prompt_count = static_cast<size_t>(seen.prompt_count);
        const Entry& entry = choose(entries, tokenizer.decode(seen.full.first(prompt_count)));
        const size_t index = seen.full.size() - prompt_count;
        return entry.reply[std::min(index, entry.reply.size() - 1)];
      });
}

}  // namespace pelton::node
