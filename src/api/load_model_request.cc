#include "api/load_model_request.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "api/fields.h"
#include "api/json_object.h"

namespace pelton::api {
namespace {

constexpr size_t kNameBytesMax = 256;  // as the catalogue's
constexpr size_t kModelBytesMax = 4096;
constexpr size_t kAliasesMax = 64;

std::vector<std::string> read_aliases(const Fields& body) {
  std::vector<std::string> aliases;
  const Json* const given = body.array("aliases", kAliasesMax);
  if (given == nullptr) return aliases;
  for (size_t i = 0; i < given->as_array().size(); ++i) {
    const Json& alias = given->as_array()[i];
    const std::string path = item_path("aliases", i);
    if (!alias.is_string()) {
      body.refuse(path, fmt::format("'{}' must be a string, not {}", path, alias.kind_name()));
      break;
    }
    aliases.push_back(alias.as_string());
  }
  return aliases;
}

// With a part that paths do not have (GET /v1/models/a/b) a model could be neither asked for nor
// unloaded.
bool fits_in_path(std::string_view name) {
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = end + 1;
  }
  return true;
}

// The words of a flag that says so; nothing: no flag does.
std::optional<std::string> flag_text(const Json& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_number() || value.is_bool()) return value.dump();
  return std::nullopt;
}

}  // namespace

Result<LoadModelRequest> parse_load_model_request(std::string_view body) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept);
  LoadModelRequest request;
  if (const std::string* model = fields.text("model", kModelBytesMax)) request.model = *model;
  if (request.model.empty()) {
    fields.refuse("model", "'model' is missing: a model folder on the server or a hub id");
  }
  if (const std::string* name = fields.text("name", kNameBytesMax)) {
    if (name->empty()) {
      fields.refuse("name", "'name' is empty; leave it out for the folder's name or the hub id");
    } else if (!fits_in_path(*name)) {
      fields.refuse(
          "name",
          "'name' stands in paths: no part of it between slashes may be empty, '.' or '..'");
    }
    request.name = *name;
  }
  request.aliases = read_aliases(fields);
  request.wait = fields.boolean("wait").value_or(true);
  fields.unread([&](const std::string& key, const Json& value) {
    const std::optional<std::string> text = flag_text(value);
    if (text) {
      request.options.emplace_back(key, *text);
    } else {
      const std::string shown = key.substr(0, 64);
      fields.refuse(shown, fmt::format("'{}' must be a string, a number, true or false, not {}",
                                       shown, value.kind_name()));
    }
  });
  if (complaint) return *complaint;
  return request;
}

}  // namespace pelton::api
