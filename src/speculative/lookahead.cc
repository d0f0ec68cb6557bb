#include "speculative/lookahead.h"

#include <algorithm>
#include <array>

#include "base/random.h"
#include "speculative/config.h"

namespace pelton::speculative {
namespace {

constexpr size_t kLongest = 2;  // tokens before the one that an n-gram gives

// Never 0 in the upper half.
uint64_t hash_of(std::span<const TokenId> before) {
  uint64_t hash = before.size();
  for (const TokenId token : before) {
    hash = base::mix64(hash + static_cast<uint32_t>(token) + 0x9E3779B97F4A7C15ull);
  }
  return hash | uint64_t{1} << 63;
}

}  // namespace

Lookahead::Lookahead(int slot_count) {
  slots_.resize(static_cast<size_t>(slot_count));
  for (Slot& slot : slots_) {
    slot.ngrams.resize(kPlaces);
    slot.iterate.reserve(kDraftTokensMax);
  }
}

int64_t Lookahead::bytes_for(int slot_count) {
  return slot_count *
         static_cast<int64_t>(kPlaces * sizeof(NGram) + kDraftTokensMax * sizeof(TokenId));
}

int64_t Lookahead::bytes() const {
  int64_t bytes = 0;
  for (const Slot& slot : slots_) {
    bytes += static_cast<int64_t>(slot.ngrams.capacity() * sizeof(NGram) +
                                  slot.iterate.capacity() * sizeof(TokenId));
  }
  return bytes;
}

void Lookahead::begin(const NewSequence& sequence) {
  Slot& slot = slots_[static_cast<size_t>(sequence.slot)];
  std::fill(slot.ngrams.begin(), slot.ngrams.end(), NGram{});
  slot.iterate.clear();
  append(sequence.slot, sequence.tokens, 0);
}

void Lookahead::append(int slot, std::span<const TokenId> tokens, size_t first_new) {
  Slot& own = slots_[static_cast<size_t>(slot)];
  for (size_t at = first_new; at < tokens.size(); ++at) {
    keep(own, tokens.first(at), tokens[at], true);
  }
}

// What stood in the text is not replaced by what was drawn behind a token that did not come.
void Lookahead::keep(Slot& slot, std::span<const TokenId> before, TokenId next, bool is_text) {
  for (size_t n = 1; n <= std::min(kLongest, before.size()); ++n) {
    const uint64_t hash = hash_of(before.last(n));
    const auto key = static_cast<uint32_t>(hash >> 32);
    NGram& place = slot.ngrams[hash % kPlaces];
    if (!is_text && place.is_text && place.key == key) continue;
    place = {.key = key, .next = next, .is_text = is_text};
  }
}

std::optional<TokenId> Lookahead::next_of(const Slot& slot, std::span<const TokenId> before) {
  const uint64_t hash = hash_of(before);
  const NGram& place = slot.ngrams[hash % kPlaces];
  if (place.key != static_cast<uint32_t>(hash >> 32)) return std::nullopt;
  return place.next;
}

Result<void> Lookahead::draft(std::span<DraftRequest> requests) {
  for (DraftRequest& request : requests) draft(slots_[static_cast<size_t>(request.slot)], request);
  return {};
}

// At each place what came behind the two tokens before, else the iterate, else what came behind
// the one before.
void Lookahead::draft(const Slot& slot, DraftRequest& request) {
  std::array<TokenId, kLongest> last{};  // the newest is the last
  const size_t known = std::min(kLongest, request.tokens.size());
  std::copy(request.tokens.end() - static_cast<std::ptrdiff_t>(known), request.tokens.end(),
            last.end() - static_cast<std::ptrdiff_t>(known));
  for (int i = 0; i < request.tokens_max; ++i) {
    const size_t at = request.tokens.size() + static_cast<size_t>(i);
    std::optional<TokenId> next = next_of(slot, last);
    const bool has_iterate = slot.iterate_at <= at && at < slot.iterate_at + slot.iterate.size();
    if (!next && has_iterate) next = slot.iterate[at - slot.iterate_at];
    if (!next) next = next_of(slot, std::span(last).last(1));
    if (!next) break;
    request.guesses.push_back(*next);
    std::rotate(last.begin(), last.begin() + 1, last.end());
    last.back() = *next;
  }
}

void Lookahead::see_rejected(const RejectedRows& rows) {
  Slot& slot = slots_[static_cast<size_t>(rows.slot)];
  slot.iterate.assign(rows.drawn.begin(), rows.drawn.end());
  slot.iterate_at = rows.position;
  for (size_t i = 0; i < rows.drawn.size(); ++i) {
    keep(slot, rows.guesses.first(i + 1), rows.drawn[i], false);
  }
}

}  // namespace pelton::speculative
