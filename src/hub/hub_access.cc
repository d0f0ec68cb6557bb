#include "hub/hub_access.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "checkpoint/hub_cache.h"
#include "hub/hub_names.h"
#include "hub/hub_url.h"

namespace pelton::hub {
namespace {

constexpr std::string_view kPublicHub = "https://huggingface.co";
constexpr size_t kTokenBytesMax = 4096;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string trimmed(std::string text) {
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.pop_back();
  size_t begin = 0;
  while (begin < text.size() && static_cast<unsigned char>(text[begin]) <= ' ') ++begin;
  return text.substr(begin);
}

bool is_yes(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text == "1" || text == "true" || text == "yes" || text == "on";
}

// Where the hub's tools keep the token of `login`.
std::string token_file(const AccessEnvironment& environment) {
  const auto expanded = [&](const std::string& path) {
    return path == "~" || path.starts_with("~/") ? environment.home + path.substr(1) : path;
  };
  if (!environment.hf_token_path.empty()) return expanded(environment.hf_token_path);
  if (!environment.hf_home.empty()) return expanded(environment.hf_home) + "/token";
  if (!environment.xdg_cache_home.empty()) {
    return expanded(environment.xdg_cache_home) + "/huggingface/token";
  }
  return environment.home.empty() ? "" : environment.home + "/.cache/huggingface/token";
}

// The token's own text never enters a message.
Result<std::string> find_token(const AccessEnvironment& environment) {
  std::string origin = "HF_TOKEN";
  std::string token = trimmed(environment.hf_token);
  if (token.empty()) {
    origin = token_file(environment);
    if (origin.empty()) return token;
    Result<std::string> text = base::read_file(origin, kTokenBytesMax);
    if (!text.ok()) {
      if (text.error().code == ErrorCode::kNotFound) return token;
      return std::move(text).error();
    }
    token = trimmed(std::move(text).value());
  }
  const bool good =
      token.size() <= kTokenBytesMax &&
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 127; });
  if (good) return token;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} holds no token: one is a single line of plain letters", origin),
               "HF_TOKEN"};
}

}  // namespace

AccessEnvironment AccessEnvironment::of_process() {
  return {.hf_token = variable("HF_TOKEN"),
          .hf_token_path = variable("HF_TOKEN_PATH"),
          .hf_home = variable("HF_HOME"),
          .xdg_cache_home = variable("XDG_CACHE_HOME"),
          .home = variable("HOME"),
          .hf_endpoint = variable("HF_ENDPOINT"),
          .hf_hub_offline = variable("HF_HUB_OFFLINE"),
          .hf_hub_cache = variable("HF_HUB_CACHE")};
}

std::string cache_folder(const AccessEnvironment& environment) {
  return checkpoint::hub_cache_folder({.hf_hub_cache = environment.hf_hub_cache,
                                       .hf_home = environment.hf_home,
                                       .xdg_cache_home = environment.xdg_cache_home,
                                       .home = environment.home});
}

Result<HubAccess> hub_access(const AccessEnvironment& environment, const std::string& endpoint) {
  HubAccess access{.endpoint = endpoint, .offline = is_yes(environment.hf_hub_offline)};
  std::string origin = "--endpoint";
  if (access.endpoint.empty()) {
    origin = "HF_ENDPOINT";
    access.endpoint = environment.hf_endpoint.empty() ? kPublicHub : environment.hf_endpoint;
  }
  while (access.endpoint.ends_with('/')) access.endpoint.pop_back();
  if (Result<Origin> parsed = origin_of(access.endpoint); !parsed.ok()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: {} {}", origin, shown(access.endpoint), parsed.error().message),
                 origin};
  }
  TRY_ASSIGN(access.token, find_token(environment));
  return access;
}

}  // namespace pelton::hub
