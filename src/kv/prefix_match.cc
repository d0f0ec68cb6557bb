#include "kv/prefix_match.h"

#include <algorithm>

namespace pelton::kv {

int first_window_block(int hit_blocks, int window_tokens, int block_tokens) {
  const int64_t oldest = int64_t{hit_blocks} * block_tokens - window_tokens + 1;
  return static_cast<int>(std::max<int64_t>(0, oldest) / block_tokens);
}

namespace {

// Each missing window block rules out every hit that would look back into it: the next candidate
// ends right before it. So each block is looked up once in either group at most.
template <typename Full, typename Window>
int longest(const PrefixQuery& query, int block_tokens, const Full& in_full,
            const Window& in_window) {
  int hit = 0;
  while (hit < static_cast<int>(query.hashes.size()) &&
         in_full(query.hashes[static_cast<size_t>(hit)])) {
    ++hit;
  }
  int block = hit;
  while (hit > 0 && block > first_window_block(hit, query.window_tokens, block_tokens)) {
    --block;
    if (!in_window(query.hashes[static_cast<size_t>(block)])) hit = block;
  }
  return hit;
}

}  // namespace

int longest_hit(const PrefixQuery& query, const BlockPool& full, const BlockPool& window) {
  return longest(
      query, full.block_tokens(),
      [&](const BlockHash& hash) { return full.find(hash) != kNoBlock; },
      [&](const BlockHash& hash) { return window.find(hash) != kNoBlock; });
}

int longest_hit(const PrefixQuery& query, const GroupPools& full, const GroupPools& window) {
  return longest(
      query, full.device.block_tokens(), [&](const BlockHash& hash) { return full.has(hash); },
      [&](const BlockHash& hash) { return window.has(hash); });
}

}  // namespace pelton::kv
