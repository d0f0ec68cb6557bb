#include "simulator/fluid_cache.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace pelton::simulator {
namespace {

uint64_t next_name(uint64_t before, std::span<const TokenId> tokens) {
  uint64_t name = before;
  for (const TokenId token : tokens) name = base::mix64(name + static_cast<uint64_t>(token) + 1);
  return name;
}

}  // namespace

FluidCache::FluidCache(const SimulationOptions& options)
    : is_on_(options.replica.prefix_cache),
      follows_prefixes_(options.dispatch == Dispatcher::Policy::kCost ||
                        options.dispatch == Dispatcher::Policy::kPrefixThreshold),
      block_tokens_(static_cast<size_t>(options.replica.capacity.block_tokens)) {}

double FluidCache::found(std::span<const TokenId> prompt, const Fleet& fleet) const {
  if (!is_on_ || prompt.empty()) return 0;
  double tokens = 0;
  uint64_t name = 0;
  // The last token is computed in any case.
  const size_t most = (prompt.size() - 1) / block_tokens_;
  for (size_t i = 0; i < most; ++i) {
    name = next_name(name, prompt.subspan(i * block_tokens_, block_tokens_));
    const auto found = blocks_.find(name);
    if (found == blocks_.end()) break;
    if (static_cast<double>(stored_ - found->second.stored) > fleet.tokens) break;
    const bool is_sure = follows_prefixes_ || fleet.is_same_replica || fleet.replicas <= 1;
    const double elsewhere = is_sure ? 0 : std::pow(1 - 1.0 / fleet.replicas, found->second.uses);
    tokens += static_cast<double>(block_tokens_) * (1 - elsewhere);
  }
  return tokens;
}

void FluidCache::note(std::span<const TokenId> prompt) {
  if (!is_on_) return;
  uint64_t name = 0;
  for (size_t i = 0; (i + 1) * block_tokens_ <= prompt.size(); ++i) {
    name = next_name(name, prompt.subspan(i * block_tokens_, block_tokens_));
    Block& block = blocks_[name];
    if (block.uses == 0) stored_ += static_cast<int64_t>(block_tokens_);
    block.stored = stored_;
    ++block.uses;
  }
}

}  // namespace pelton::simulator
