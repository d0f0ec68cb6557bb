#include "apps/server_address.h"

#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "apps/listener_flags.h"
#include "apps/load_flags.h"
#include "net/tls_trust.h"

namespace pelton::apps {

using cli::Flag;

std::vector<Flag> server_address_flags() {
  Flag header = text_flag("--header", "K=V", "a header of every request; as many as you like");
  header.many = true;
  Flag host = text_flag("--host", "HOST", "of the server", "127.0.0.1");
  Flag port = count_flag("--port", "N", "of the server", "8000", 1, 65535);
  host.not_with = port.not_with = {{"--base-url"}};
  return {text_flag("--base-url", "URL", "http://host:port; instead of --host and --port"),
          std::move(host), std::move(port), std::move(header),
          text_flag("--ca-file", "FILE",
                    "https: CA certificates to trust (PEM); default the system's")};
}

Result<bench::Target> server_target(const cli::Arguments& arguments, bench::TargetOptions options) {
  options.base_url = arguments.text("--base-url");
  if (options.base_url.empty()) {
    options.base_url =
        fmt::format("http://{}:{}", arguments.text("--host"), arguments.integer("--port"));
  }
  for (const std::string& header : arguments.list("--header")) {
    TRY_ASSIGN(auto pair, bench::parse_pair(header, "header"));
    options.headers.push_back(std::move(pair));
  }
  const char* key = std::getenv("OPENAI_API_KEY");
  if (key != nullptr && *key != '\0') {
    TRY(check_key(key, "$OPENAI_API_KEY"));
    options.headers.emplace_back("Authorization", fmt::format("Bearer {}", key));
  }
  TRY_ASSIGN(bench::Target target, bench::make_target(options));
  // A variable is for other servers too.
  const bool is_word = arguments.source("--ca-file") == cli::Arguments::Source::kWord;
  if (arguments.has("--ca-file") && (target.call.tls || is_word)) {
    if (!target.call.tls) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--ca-file has no effect: {} is no https", options.base_url),
                   "--ca-file"};
    }
    TRY_ASSIGN(
        target.call.trust,
        net::TlsTrust::load({.ca = arguments.text("--ca-file"), .certificate = {}, .key = {}}));
  }
  return target;
}

}  // namespace pelton::apps
