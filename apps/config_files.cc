#include "apps/config_files.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "access/audited_exchange.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "chain/chain.h"
#include "cli/toml_tree.h"
#include "gateway/config_json.h"
#include "net/json_response.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

constexpr std::string_view kCapacity = "/v1/config/capacity";
constexpr std::string_view kChain = "/v1/config/chain";
constexpr std::string_view kBelowChain = "/v1/config/chain/";
constexpr size_t kFileBytesMax = size_t{1} << 20;

net::HttpResponse refusal(const api::ApiError& error) {
  return net::json_response(api::error_body(error), error.status);
}

net::HttpResponse not_there(std::string_view code, std::string message) {
  return refusal({.status = 404,
                  .message = std::move(message),
                  .type = "invalid_request_error",
                  .param = {},
                  .code = code});
}

// Of a file that has become another one since the start.
net::HttpResponse unreadable(const Error& error) {
  return refusal({.status = 500,
                  .message = error.message,
                  .type = "server_error",
                  .param = {},
                  .code = "bad_config"});
}

net::HttpResponse with_etag(net::HttpResponse response, std::string_view text) {
  response.headers.add("ETag", "\"" + base::sha256(text).substr(0, 32) + "\"");
  return response;
}

net::HttpResponse toml_response(std::string text) {
  net::HttpResponse response = with_etag({.status = 200, .headers = {}, .body = {}}, text);
  response.headers.add("Content-Type", "application/toml");
  response.body = std::move(text);
  return response;
}

struct File {
  std::string text;
  Json json;
};
Result<File> read(const std::string& file) {
  File read;
  TRY_ASSIGN(read.text, base::read_file(file, kFileBytesMax));
  TRY_ASSIGN(const cli::TomlNode tree, cli::parse_toml(read.text, file));
  read.json = gateway::json_of(tree);
  return read;
}

}  // namespace

bool ConfigFiles::is_one(std::string_view path) {
  return path == kCapacity || path == kChain || path.starts_with(kBelowChain);
}

net::HttpResponse ConfigFiles::answer(const net::HttpRequest& request) const {
  if (!access::is_reading(request)) {
    net::HttpResponse refused = refusal(api::method_not_allowed(request.method, request.path));
    refused.headers.add("Allow", "GET, HEAD");
    return refused;
  }
  const std::string form = net::query_value(request.query, "form").value_or("");
  if (!form.empty() && form != "json") {
    return refusal(
        api::api_error(Error{ErrorCode::kInvalidArgument, "'form' is json, or none", "form"}));
  }
  if (request.path == kCapacity) return capacity(!form.empty());
  const std::string_view path = request.path;
  return chains(path.substr(std::min(path.size(), kBelowChain.size())), !form.empty());
}

net::HttpResponse ConfigFiles::capacity(bool as_json) const {
  if (parts_.capacity_file.empty()) {
    return not_there("no_capacity", "no machines are known here: --capacity FILE");
  }
  Result<File> file = read(parts_.capacity_file);
  if (!file.ok()) return unreadable(file.error());
  if (!as_json) return toml_response(std::move(file->text));
  return with_etag(net::json_response(file->json.dump()), file->text);
}

// `name`: empty: all of them.
net::HttpResponse ConfigFiles::chains(std::string_view name, bool as_json) const {
  if (parts_.chains_folder.empty()) {
    return not_there("no_chains", "there are no chains here: --chains FOLDER");
  }
  const Result<std::vector<chain::Chain>> all = chain::read_chains(parts_.chains_folder);
  if (!all.ok()) return unreadable(all.error());
  std::string text;
  Json::Object objects;
  for (const chain::Chain& one : *all) {
    if (!name.empty() && one.name != name) continue;
    Result<File> file = read(one.file);
    if (!file.ok()) return unreadable(file.error());
    text += (text.empty() ? "" : "\n") + file->text;
    objects.push_back({.key = one.name, .value = std::move(file->json)});
  }
  if (!name.empty() && objects.empty()) {
    return not_there("object_not_found", fmt::format("there is no chain '{}'", name));
  }
  if (!as_json) return toml_response(std::move(text));
  const Json json = name.empty() ? Json(std::move(objects)) : std::move(objects.front().value);
  return with_etag(net::json_response(json.dump()), text);
}

}  // namespace pelton::apps
