#include "speculative/suffix_shared.h"

#include <algorithm>

namespace pelton::speculative {

SuffixShared::SuffixShared(const Options& options)
    : options_(options), pool_(options.pool), slots_(static_cast<size_t>(options.slot_count)) {
  for (Slot& slot : slots_) slot.answer.reserve(kPieceTokens);
}

int64_t SuffixShared::bytes_for(const Options& options) {
  return AnswerPool::bytes_for(options.pool) +
         static_cast<int64_t>(static_cast<size_t>(options.slot_count) * kPieceTokens *
                              sizeof(TokenId));
}

int64_t SuffixShared::bytes() const {
  int64_t bytes = pool_.bytes();
  for (const Slot& slot : slots_) {
    bytes += static_cast<int64_t>(slot.answer.capacity() * sizeof(TokenId));
  }
  return bytes;
}

void SuffixShared::keep(Slot& slot) {
  if (!(slot.origin == kv::BlockHash{})) pool_.add(slot.answer, slot.origin);
  slot.answer.clear();
}

// What a sequence had said before it made room was kept then.
void SuffixShared::begin(const NewSequence& sequence) {
  Slot& slot = slots_[static_cast<size_t>(sequence.slot)];
  keep(slot);
  slot.origin = sequence.origin;
}

void SuffixShared::append(int slot, std::span<const TokenId> tokens, size_t first_new) {
  Slot& own = slots_[static_cast<size_t>(slot)];
  for (const TokenId token : tokens.subspan(first_new)) {
    if (own.answer.size() == kPieceTokens) keep(own);
    own.answer.push_back(token);
  }
}

Result<void> SuffixShared::draft(std::span<DraftRequest> requests) {
  for (DraftRequest& request : requests) draft(slots_[static_cast<size_t>(request.slot)], request);
  return {};
}

// Of the places left in found_, what most of them go on with; those that end count against it. Of
// equals the latest place's.
TokenId SuffixShared::most_frequent(int ahead, int& count) {
  frequency_.clear();
  for (const int64_t end : found_.ends) {
    const TokenId token = pool_.behind(end, ahead);
    if (token == AnswerPool::kNone) continue;
    const auto known = std::find_if(frequency_.begin(), frequency_.end(),
                                    [&](const auto& pair) { return pair.first == token; });
    if (known == frequency_.end()) {
      frequency_.emplace_back(token, 1);
    } else {
      ++known->second;
    }
  }
  const auto best =
      std::max_element(frequency_.begin(), frequency_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (best == frequency_.end()) return AnswerPool::kNone;
  count = best->second;
  return best->first;
}

void SuffixShared::draft(const Slot& slot, DraftRequest& request) {
  if (slot.origin == kv::BlockHash{}) return;
  pool_.find(request.tokens, slot.origin, found_);
  request.matched = found_.matched;
  const int most = static_cast<int>(
      std::min<double>(request.tokens_max, options_.guesses_per_matched_token * found_.matched));
  double probability = 1;
  for (int ahead = 0; ahead < most; ++ahead) {
    int count = 0;
    const TokenId next = most_frequent(ahead, count);
    if (next == AnswerPool::kNone) return;
    probability *= static_cast<double>(count) / static_cast<double>(found_.ends.size());
    if (probability < options_.probability_min) return;
    request.guesses.push_back(next);
    std::erase_if(found_.ends, [&](int64_t end) { return pool_.behind(end, ahead) != next; });
  }
}

}  // namespace pelton::speculative
