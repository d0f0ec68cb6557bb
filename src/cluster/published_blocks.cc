#include "cluster/published_blocks.h"

#include <utility>

namespace pelton::cluster {

void PublishedBlocks::learn(std::span<const TokenId> prompt, int block_tokens) {
  const auto block = static_cast<size_t>(block_tokens);
  kv::BlockHash name = hasher_.root({});
  std::optional<uint64_t> parent;
  for (size_t at = 0; at + block <= prompt.size(); at += block) {
    const std::span<const TokenId> tokens = prompt.subspan(at, block);
    name = hasher_.extend(name, tokens);
    const auto [place, is_new] = known_.try_emplace(name.low);
    if (is_new) {
      place->second = {.parent = parent, .tokens = {tokens.begin(), tokens.end()}};
      order_.push_back(name.low);
      const auto held = held_.find(name.low);
      if (held != held_.end() && !held->second) learnt_.push_back(name.low);
    }
    parent = name.low;
  }
  while (known_.size() > known_max_) {
    known_.erase(order_.front());
    order_.pop_front();
  }
}

void PublishedBlocks::say_stored(uint64_t name, const Known& known,
                                 std::vector<VllmEvent>& said) const {
  using Kind = VllmEvent::Kind;
  const bool goes_on = !said.empty() && said.back().kind == Kind::kStored && known.parent &&
                       said.back().hashes.back() == *known.parent;
  if (!goes_on) {
    said.push_back({.kind = Kind::kStored,
                    .hashes = {},
                    .parent = known.parent,
                    .tokens = {},
                    .block_tokens = static_cast<int>(known.tokens.size())});
  }
  said.back().hashes.push_back(name);
  said.back().tokens.insert(said.back().tokens.end(), known.tokens.begin(), known.tokens.end());
}

void PublishedBlocks::apply(const kv::Event& event, std::vector<VllmEvent>& said) {
  const uint64_t name = event.block.low;
  if (event.kind == kv::Event::Kind::kStored) {
    const auto known = known_.find(name);
    held_[name] = known != known_.end();
    if (known != known_.end()) say_stored(name, known->second, said);
    return;
  }
  const auto held = held_.find(name);
  if (held == held_.end()) return;
  if (held->second) {
    said.push_back(
        {.kind = VllmEvent::Kind::kRemoved, .hashes = {name}, .parent = {}, .tokens = {}});
  }
  held_.erase(held);
}

void PublishedBlocks::say_learnt(std::vector<VllmEvent>& said) {
  for (const uint64_t name : std::exchange(learnt_, {})) {
    const auto held = held_.find(name);
    const auto known = known_.find(name);
    if (held == held_.end() || held->second || known == known_.end()) continue;
    held->second = true;
    say_stored(name, known->second, said);
  }
}

void PublishedBlocks::clear(std::vector<VllmEvent>& said) {
  held_.clear();
  learnt_.clear();
  said.clear();
  said.push_back({.kind = VllmEvent::Kind::kCleared, .hashes = {}, .parent = {}, .tokens = {}});
}

}  // namespace pelton::cluster
