#include "apps/fleet_admin.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"

namespace pelton::apps {

cli::Flag admin_flag() {
  return {.name = "--admin",
          .value = "URL",
          .help = "the gateway's admin listener, as it prints it",
          .default_text = "http://127.0.0.1:8091"};
}

cli::Flag admin_key_flag() {
  return {.name = "--admin-key-file",
          .value = "FILE",
          .help = "an operator's key, the file's first line: for a gateway with --admin-keys",
          .may_be_empty = false};
}

Result<std::string> admin_key(const cli::Arguments& arguments) {
  constexpr size_t kBytesMax = size_t{64} << 10;
  if (!arguments.knows("--admin-key-file") || !arguments.has("--admin-key-file")) {
    return std::string();
  }
  const std::string& file = arguments.text("--admin-key-file");
  const Result<std::string> text = base::read_file(file, kBytesMax);
  if (!text.ok()) return Error{ErrorCode::kBadConfig, text.error().message, "admin-key-file"};
  std::string key = text->substr(0, text->find_first_of(" \t\r\n"));
  const bool is_plain = std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7F; });
  if (!key.empty() && is_plain) return key;
  return Error{ErrorCode::kBadConfig, fmt::format("{} begins with no key", file), "admin-key-file"};
}

Result<net::HttpCall> admin_call(const cli::Arguments& arguments, std::string method,
                                 const std::string& path) {
  TRY_ASSIGN(const std::string key, admin_key(arguments));
  TRY_ASSIGN(net::HttpCall call,
             net::make_http_call(std::move(method), arguments.text("--admin") + path));
  if (!key.empty()) call.headers.add("Authorization", "Bearer " + key);
  return call;
}

}  // namespace pelton::apps
