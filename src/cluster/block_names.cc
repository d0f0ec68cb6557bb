#include "cluster/block_names.h"

#include <cstring>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "kv/block_hash.h"

namespace pelton::cluster {
namespace {

constexpr std::string_view kLabel = "pelton block names v1";
constexpr std::string_view kSaltLabel = "pelton tenant salts v1";

}  // namespace

uint64_t block_seed(const FleetKey& key) {
  const std::string bytes = key.derive(kLabel).front();
  uint64_t seed = 0;
  CHECK(bytes.size() >= sizeof seed);
  std::memcpy(&seed, bytes.data(), sizeof seed);
  return seed;
}

std::string salt_secret(const FleetKey& key) {
  return key.derive(kSaltLabel).front();
}

std::string block_name_check(uint64_t seed, int block_tokens) {
  std::vector<TokenId> tokens(static_cast<size_t>(block_tokens));
  std::iota(tokens.begin(), tokens.end(), 0);
  const kv::BlockHasher hasher(seed);
  const kv::BlockHash name = hasher.extend(hasher.root({}), tokens);
  return fmt::format("{:016x}{:016x}", name.high, name.low);
}

RoutedGroups routed_groups(std::span<const int> windows, int block_tokens) {
  RoutedGroups groups;
  const auto sees_more = [](int one, int other) { return other != 0 && (one == 0 || one > other); };
  for (size_t i = 1; i < windows.size(); ++i) {
    if (sees_more(windows[i], windows[static_cast<size_t>(groups.widest)])) {
      groups.widest = static_cast<int>(i);
    }
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    if (windows[i] == 0 || static_cast<int>(i) == groups.widest) continue;
    if (groups.tail && windows[i] <= windows[static_cast<size_t>(*groups.tail)]) continue;
    groups.tail = static_cast<int>(i);
    // The query right behind n blocks sees the window's tokens but itself: 127 of 128 are eight
    // blocks of sixteen.
    groups.tail_blocks = (windows[i] - 1 + block_tokens - 1) / block_tokens;
  }
  return groups;
}

}  // namespace pelton::cluster
