#include "kv/prefix_match.h"

#include <algorithm>

namespace pelton::kv {

int first_window_block(int hit_blocks, int window_tokens, int block_tokens) {
  const int64_t oldest = int64_t{hit_blocks} * block_tokens - window_tokens + 1;
  return static_cast<int>(std::max<int64_t>(0, oldest) / block_tokens);
}

// Each missing window block rules out every hit that would look back into it: the next candidate
// ends right before it. So each block is looked up once in either group at most.
int longest_hit(const PrefixQuery& query, const BlockPool& full, const BlockPool& window) {
  int hit = 0;
  while (hit < static_cast<int>(query.hashes.size()) &&
         full.find(query.hashes[static_cast<size_t>(hit)]) != kNoBlock) {
    ++hit;
  }
  int block = hit;
  while (hit > 0 && block > first_window_block(hit, query.window_tokens, full.block_tokens())) {
    --block;
    if (window.find(query.hashes[static_cast<size_t>(block)]) == kNoBlock) hit = block;
  }
  return hit;
}

}  // namespace pelton::kv
