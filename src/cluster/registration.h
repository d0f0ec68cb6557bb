// What a worker writes of itself into a registry (etcd): where gateways find it. JSON of at most
// 16 KiB; fields that are not known are ignored, another schema is refused. A value, pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::cluster {

struct Registration {
  static constexpr int kSchema = 1;
  static constexpr size_t kBytesMax = size_t{16} << 10;

  std::string name;         // stable
  std::string incarnation;  // of this start
  std::string host;         // of its fleet port: an address or a name
  int port = 0;
  std::string pool;
  std::string zone;

  friend bool operator==(const Registration&, const Registration&) = default;
};

std::string encode(const Registration& registration);
// kInvalidArgument, with the field's name.
Result<Registration> decode_registration(std::string_view json);

// Keys of a fleet's registry, which all begin with `prefix` ("/pelton/v1/main").
std::string workers_prefix(std::string_view prefix);  // PREFIX/workers/
std::string worker_key(std::string_view prefix, std::string_view name);
// Whoever holds this one has the name.
std::string name_key(std::string_view prefix, std::string_view name);

}  // namespace pelton::cluster
