#include "api/lora_request.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "api/fields.h"
#include "api/json_object.h"
#include "base/utf8.h"

namespace pelton::api {
namespace {

constexpr size_t kPathBytesMax = 4096;

std::string read_name(const Fields& fields) {
  const std::string* const name = fields.text("lora_name", kAdapterNameBytesMax);
  if (name == nullptr || name->empty()) {
    fields.refuse("lora_name", "'lora_name' is missing: what requests call the adapter");
    return {};
  }
  if (!is_adapter_name(*name)) {
    fields.refuse("lora_name",
                  "'lora_name' stands in paths: no part of it between slashes may be empty, '.' or "
                  "'..', and it has no control characters");
  }
  return *name;
}

}  // namespace

bool is_adapter_name(std::string_view name) {
  if (name.size() > kAdapterNameBytesMax || !base::is_valid_utf8(name)) return false;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = end + 1;
  }
  return std::ranges::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

Result<LoadLoraRequest> parse_load_lora_request(std::string_view body,
                                                const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  LoadLoraRequest request;
  request.name = read_name(fields);
  const std::string* const path = fields.text("lora_path", kPathBytesMax);
  if (path == nullptr || path->empty()) {
    fields.refuse("lora_path", "'lora_path' is missing: the folder of the adapter's files");
  } else if (path->find('\0') != std::string::npos) {
    fields.refuse("lora_path", "'lora_path' holds a byte of zero, which no path has");
  } else {
    request.path = *path;
  }
  if (const std::string* base = fields.text("base_model_name", kAdapterNameBytesMax))
    request.base = *base;
  request.in_place = fields.boolean("load_inplace").value_or(false);
  request.pinned = fields.boolean("pinned").value_or(false);
  request.is_3d = fields.boolean("is_3d_lora_weight");
  fields.refuse_unread({});
  if (complaint) return *std::move(complaint);
  return request;
}

Result<UnloadLoraRequest> parse_unload_lora_request(std::string_view body,
                                                    const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  UnloadLoraRequest request{.name = read_name(fields), .base = {}};
  if (const std::string* base = fields.text("base_model_name", kAdapterNameBytesMax))
    request.base = *base;
  // vLLM's clients may send it; an adapter has no number here.
  (void)fields.find("lora_int_id");
  fields.refuse_unread({});
  if (complaint) return *std::move(complaint);
  return request;
}

}  // namespace pelton::api
