// Whether a gateway and a worker name KV blocks alike: both make the seed of the names
// (kv/block_hash.h) of the fleet's key, and a worker's record says what it calls a block that both
// can make. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cluster/fleet_key.h"

namespace pelton::cluster {

// Of a worker and its gateways; who has no fleet key draws a seed of its own, and has no names in
// common with anybody.
uint64_t block_seed(const FleetKey& key);

// Of the secret by which tenants' blocks are salted (access/access_control.h: cache_salt): with it
// a gateway names what its tenants' requests find at workers, and a move finds it again.
std::string salt_secret(const FleetKey& key);

// The name of the block of tokens 0, 1, 2, … in hexadecimal.
std::string block_name_check(uint64_t seed, int block_tokens);

// Which of a model's KV groups a router looks at. `windows`: by group, how many tokens the query at
// the end of a prefix sees of it; 0: all.
struct RoutedGroups {
  int widest = 0;  // the one that sees the most: a hit needs all of its blocks
  std::optional<int>
      tail;             // of the others the one that sees the most: a hit needs those at its end
  int tail_blocks = 0;  // how far back from that end
};
RoutedGroups routed_groups(std::span<const int> windows, int block_tokens);

}  // namespace pelton::cluster
