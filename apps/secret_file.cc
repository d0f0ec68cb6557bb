#include "apps/secret_file.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"

namespace pelton::apps {

namespace {

constexpr size_t kBytesMin = 32;
constexpr size_t kBytesMax = 4096;

void drop_line_ends(std::string& text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
}

Error too_short(const std::string& file, size_t bytes, std::string_view flag) {
  return {ErrorCode::kBadConfig,
          fmt::format("{}: holds {} bytes; a secret needs at least {}, as 'openssl rand -hex 32' "
                      "writes them",
                      file, bytes, kBytesMin),
          std::string(flag.substr(2))};
}

Result<std::string> read_it(const cli::Arguments& arguments, std::string_view flag) {
  Result<std::string> text = base::read_file(arguments.text(flag), kBytesMax);
  if (text.ok()) return text;
  return Error{ErrorCode::kBadConfig, text.error().message, std::string(flag.substr(2))};
}

}  // namespace

Result<std::string> read_secret_file(const cli::Arguments& arguments, std::string_view flag) {
  if (!arguments.has(flag)) return std::string();
  TRY_ASSIGN(std::string secret, read_it(arguments, flag));
  drop_line_ends(secret);
  if (secret.size() >= kBytesMin) return secret;
  return too_short(arguments.text(flag), secret.size(), flag);
}

Result<std::vector<std::string>> read_secrets_file(const cli::Arguments& arguments,
                                                   std::string_view flag) {
  std::vector<std::string> secrets;
  if (!arguments.has(flag)) return secrets;
  TRY_ASSIGN(const std::string text, read_it(arguments, flag));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    drop_line_ends(line);
    if (line.empty()) continue;
    if (line.size() < kBytesMin) return too_short(arguments.text(flag), line.size(), flag);
    secrets.push_back(std::move(line));
  }
  if (secrets.empty()) return too_short(arguments.text(flag), 0, flag);
  return secrets;
}

}  // namespace pelton::apps
