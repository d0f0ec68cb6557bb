#include "apps/secret_file.h"

#include <fmt/format.h>

#include "base/file.h"

namespace pelton::apps {

Result<std::string> read_secret_file(const cli::Arguments& arguments, std::string_view flag) {
  if (!arguments.has(flag)) return std::string();
  constexpr size_t kBytesMin = 32;
  constexpr size_t kBytesMax = 4096;
  const std::string field(flag.substr(2));
  const std::string& file = arguments.text(flag);
  Result<std::string> secret = base::read_file(file, kBytesMax);
  if (!secret.ok()) return Error{ErrorCode::kBadConfig, secret.error().message, field};
  while (secret->ends_with('\n') || secret->ends_with('\r')) secret->pop_back();
  if (secret->size() >= kBytesMin) return secret;
  return Error{ErrorCode::kBadConfig,
               fmt::format("{}: holds {} bytes; a secret needs at least {}, as 'openssl rand -hex "
                           "32' writes them",
                           file, secret->size(), kBytesMin),
               field};
}

}  // namespace pelton::apps
