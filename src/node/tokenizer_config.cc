#include "node/tokenizer_config.h"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/file.h"

namespace pelton::node {
namespace {

constexpr size_t kBytesMax = size_t{64} << 20;  // some list thousands of tokens

}  // namespace

Result<std::optional<Json>> read_tokenizer_config(const std::string& folder) {
  const std::string file = (std::filesystem::path(folder) / "tokenizer_config.json").string();
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::optional<Json>();
  TRY_ASSIGN(const std::string text, base::read_file(file, kBytesMax));
  Result<Json> config = Json::parse(text);
  if (config.ok()) return std::optional(std::move(config).value());
  return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: {}", file, config.error().message)};
}

}  // namespace pelton::node
