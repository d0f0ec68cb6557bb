#include "apps/fleet_admin.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"

namespace pelton::apps {
Error config_refused(const net::HttpResponse& response) {
  const Result<Json> json = Json::parse(response.body);
  const Json* error = json.ok() ? json->find("error") : nullptr;
  const std::string words = error == nullptr
                                ? fmt::format("the gateway answers {}", response.status)
                                : error->string("message").value_or("no reason was given");
  switch (response.status) {
    case 400:
      return {ErrorCode::kBadConfig, words, {}};
    case 404:
      return {ErrorCode::kInvalidArgument, words, {}};
    default:
      return {ErrorCode::kIo, words, {}};
  }
}

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

Result<net::HttpResponse> config_call(const cli::Arguments& arguments, ConfigCall asked) {
  TRY_ASSIGN(const std::string key, admin_key(arguments));
  return config_call_at(arguments.text("--admin"), key, std::move(asked));
}

Result<net::HttpResponse> config_answer_at(const std::string& url, const std::string& key,
                                           ConfigCall asked) {
  TRY_ASSIGN(net::HttpCall call, net::make_http_call(std::move(asked.method), url + asked.path));
  if (!key.empty()) call.headers.add("Authorization", "Bearer " + key);
  call.whole_time_max = std::chrono::seconds(30);
  call.body = std::move(asked.body);
  if (!asked.etag.empty()) call.headers.add("If-Match", asked.etag);
  if (!asked.why.empty()) call.headers.add("X-Pelton-Why", asked.why);
  if (call.method == "PATCH") call.headers.add("Content-Type", "application/merge-patch+json");
  return net::http_fetch(std::move(call));
}

Result<net::HttpResponse> config_call_at(const std::string& url, const std::string& key,
                                         ConfigCall asked) {
  TRY_ASSIGN(net::HttpResponse response, config_answer_at(url, key, std::move(asked)));
  if (response.status == 200) return response;
  return config_refused(response);
}

}  // namespace pelton::apps
