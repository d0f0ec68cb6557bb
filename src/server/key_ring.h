// The API keys that are asked for, and whose each is. Filled at start; then immutable, any thread.
// Keys are kept as their SHA-256 only.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace pelton::server {

class KeyRing {
 public:
  static constexpr size_t kKeysMax = 10'000;

  // One key, of a tenant without a name.
  void add(std::string_view key);

  // A line each: KEY [TENANT [WEIGHT]]. Empty lines and those that begin with '#' are none. A key
  // without a tenant is a tenant of its own; no tenant's name has a blank. A weight is 0.001 to
  // 1000. Errors: kBadConfig with the line; never a key.
  Result<void> add_file(std::string_view text, const std::string& file_name);

  bool empty() const { return tenants_.empty(); }

  // The tenant that the key belongs to; null if it belongs to nobody.
  const std::string* tenant_of(std::string_view key) const;

  // Of tenants that have one.
  const std::vector<std::pair<std::string, double>>& weights() const { return weights_; }

 private:
  std::map<std::string, std::string> tenants_;  // by the key's hash
  std::vector<std::pair<std::string, double>> weights_;
};

}  // namespace pelton::server
