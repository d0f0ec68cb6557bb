#include "weights/have.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_writer.h"
#include "hub/hub_names.h"
#include "net/ip_address.h"
#include "net/url.h"

namespace pelton::weights {
namespace {

constexpr std::string_view kAll = "all";
constexpr size_t kIdCharsMax = 64;

Error bad(const std::string& field, const std::string& what) {
  return Error{ErrorCode::kBadCheckpoint, fmt::format("the node's {} {}", field, what), field};
}

std::string hex_of(const std::vector<bool>& bits) {
  std::string hex;
  for (size_t byte = 0; byte < bits.size(); byte += 8) {
    unsigned value = 0;
    for (size_t i = byte; i < std::min(byte + 8, bits.size()); ++i) {
      value |= static_cast<unsigned>(bits[i]) << (i - byte);
    }
    hex += fmt::format("{:02x}", value);
  }
  return hex;
}

Result<std::vector<bool>> bits_of(const Json& json, const std::string& field, size_t chunks) {
  const std::string text = json.string(field).value_or("");
  if (text == kAll) return std::vector<bool>(chunks, true);
  const size_t wanted = (chunks + 7) / 8 * 2;
  if (text.size() != wanted) {
    return bad(field, fmt::format("is not {} hexadecimal digits, for {} chunks", wanted, chunks));
  }
  std::vector<bool> bits(chunks);
  for (size_t digit = 0; digit < text.size(); ++digit) {
    const char c = text[digit];
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c < 'a' || c > 'f')) return bad(field, "is not hexadecimal");
    const int value = is_digit ? c - '0' : c - 'a' + 10;
    const size_t first = digit / 2 * 8 + (digit % 2 == 0 ? 4 : 0);
    for (size_t i = 0; i < 4; ++i) {
      if ((value >> i & 1) == 0) continue;
      if (first + i >= chunks) return bad(field, "has bits beyond the last chunk");
      bits[first + i] = true;
    }
  }
  return bits;
}

}  // namespace

std::string Have::to_json() const {
  std::string out;
  base::JsonWriter writer(out);
  const bool all = std::find(there.begin(), there.end(), false) == there.end();
  writer.begin_object().key("id").string(id).key("manifest").string(manifest);
  writer.key("chunks").integer(static_cast<int64_t>(there.size()));
  writer.key("have").string(all ? std::string(kAll) : hex_of(there));
  writer.key("coming").string(hex_of(coming)).key("received").integer(received);
  writer.key("peers").begin_array();
  for (const std::string& peer : peers) writer.string(peer);
  writer.end_array().end_object();
  return out;
}

Have have_of(const ChunkFolder& folder, std::string id) {
  const size_t count = folder.chunks().size();
  Have have{.id = std::move(id),
            .manifest = folder.digest(),
            .there = std::vector<bool>(count),
            .coming = std::vector<bool>(count),
            .received = folder.received(),
            .peers = {}};
  for (size_t i = 0; i < count; ++i) {
    const ChunkFolder::State state = folder.state(static_cast<int>(i));
    have.there[i] = state == ChunkFolder::State::kThere;
    have.coming[i] = state == ChunkFolder::State::kComing;
  }
  return have;
}

Result<Have> parse_have(std::string_view text, size_t chunks) {
  if (text.size() > Have::kBytesMax) {
    return bad("text", fmt::format("has {} bytes, more than {}", text.size(), Have::kBytesMax));
  }
  const Result<Json> json = Json::parse(text);
  if (!json.ok()) return bad("text", "is no JSON: " + json.error().message);
  Have have{.id = json->string("id").value_or(""),
            .manifest = json->string("manifest").value_or(""),
            .there = {},
            .coming = {},
            .peers = {}};
  if (have.id.empty() || have.id.size() > kIdCharsMax) return bad("id", "is no name");
  if (!hub::is_sha256(have.manifest)) return bad("manifest", "is no digest");
  if (json->integer("chunks") != static_cast<int64_t>(chunks)) {
    return bad("chunks", fmt::format("is not {}", chunks));
  }
  TRY_ASSIGN(have.there, bits_of(*json, "have", chunks));
  TRY_ASSIGN(have.coming, bits_of(*json, "coming", chunks));
  const Json* received = json->find("received");
  if (received != nullptr && (!received->is_integer() || received->as_integer() < 0)) {
    return bad("received", "is no number of bytes");
  }
  if (received != nullptr) have.received = received->as_integer();
  const Json* peers = json->find("peers");
  if (peers == nullptr || !peers->is_array()) return bad("peers", "is no array");
  if (peers->as_array().size() > Have::kPeersMax) {
    return bad("peers", fmt::format("are more than {}", Have::kPeersMax));
  }
  for (const Json& peer : peers->as_array()) {
    const Result<net::HostPort> place =
        net::parse_host_port(peer.is_string() ? peer.as_string() : "");
    if (!place.ok() || !net::is_ip_address(place->host) || place->port == 0) {
      return bad(fmt::format("peers[{}]", have.peers.size()), "is no address with a port");
    }
    have.peers.push_back(peer.as_string());
  }
  return have;
}

}  // namespace pelton::weights
