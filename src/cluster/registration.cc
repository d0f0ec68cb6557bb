#include "cluster/registration.h"

#include <optional>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_writer.h"
#include "net/url.h"

namespace pelton::cluster {
namespace {

constexpr size_t kNameMax = 256;

Error bad(std::string_view field, std::string_view what) {
  return {ErrorCode::kInvalidArgument, fmt::format("'{}' {}", field, what), std::string(field)};
}

Result<void> read(const Json& json, std::string_view field, bool is_needed, std::string& into) {
  const Json* value = json.find(field);
  if (value == nullptr && !is_needed) return {};
  if (value == nullptr) return bad(field, "is missing");
  if (!value->is_string() || value->as_string().size() > kNameMax ||
      (is_needed && value->as_string().empty())) {
    return bad(field, fmt::format("must be a text of at most {} bytes", kNameMax));
  }
  into = value->as_string();
  return {};
}

}  // namespace

std::string encode(const Registration& one) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("schema").integer(Registration::kSchema).key("name").string(one.name);
  w.key("incarnation").string(one.incarnation);
  w.key("address").string(net::format_host_port(one.host, one.port));
  w.key("pool").string(one.pool).key("zone").string(one.zone).end_object();
  return out;
}

Result<Registration> decode_registration(std::string_view text) {
  if (text.size() > Registration::kBytesMax) return bad("", "is longer than 16 KiB");
  TRY_ASSIGN(const Json json, Json::parse(text));
  if (!json.is_object()) return bad("", "must be an object");
  if (json.integer("schema") != std::optional<int64_t>(Registration::kSchema)) {
    return bad("schema", fmt::format("must be {}", Registration::kSchema));
  }
  Registration one;
  TRY(read(json, "name", true, one.name));
  TRY(read(json, "incarnation", true, one.incarnation));
  TRY(read(json, "pool", true, one.pool));
  TRY(read(json, "zone", false, one.zone));
  std::string address;
  TRY(read(json, "address", true, address));
  const Result<net::HostPort> parsed = net::parse_host_port(address);
  if (!parsed.ok() || parsed->port < 1) return bad("address", "must be HOST:PORT");
  one.host = parsed->host;
  one.port = parsed->port;
  return one;
}

std::string workers_prefix(std::string_view prefix) {
  return fmt::format("{}/workers/", prefix);
}

std::string worker_key(std::string_view prefix, std::string_view name) {
  return workers_prefix(prefix) + std::string(name);
}

std::string name_key(std::string_view prefix, std::string_view name) {
  return fmt::format("{}/names/{}", prefix, name);
}

}  // namespace pelton::cluster
