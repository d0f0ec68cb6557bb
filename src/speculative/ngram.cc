#include "speculative/ngram.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"

namespace pelton::speculative {
namespace {

size_t hash_of(std::span<const TokenId> tokens) {
  uint64_t hash = tokens.size();
  for (const TokenId token : tokens) {
    hash = base::mix64(hash + static_cast<uint32_t>(token) + 0x9E3779B97F4A7C15ull);
  }
  return static_cast<size_t>(hash);
}

}  // namespace

NGram::NGram(const Options& options) : options_(options) {
  CHECK(1 <= options.shortest && options.shortest <= options.longest &&
        options.longest <= kLengthMax);
  slots_.resize(static_cast<size_t>(options.slot_count));
  for (Slot& slot : slots_) slot.places.resize(kPlaces);
}

int64_t NGram::bytes_for(const Options& options) {
  return options.slot_count * static_cast<int64_t>(kPlaces * sizeof(int32_t));
}

int64_t NGram::bytes() const {
  int64_t bytes = 0;
  for (const Slot& slot : slots_) {
    bytes += static_cast<int64_t>(slot.places.capacity() * sizeof(int32_t));
  }
  return bytes;
}

void NGram::begin(const NewSequence& sequence) {
  Slot& slot = slots_[static_cast<size_t>(sequence.slot)];
  std::fill(slot.places.begin(), slot.places.end(), 0);
  std::fill(std::begin(slot.earlier), std::end(slot.earlier), 0);
  append(sequence.slot, sequence.tokens, 0);
}

void NGram::append(int slot, std::span<const TokenId> tokens, size_t first_new) {
  Slot& own = slots_[static_cast<size_t>(slot)];
  for (size_t end = first_new + 1; end <= tokens.size(); ++end) {
    for (int n = options_.shortest; n <= options_.longest; ++n) {
      const auto length = static_cast<size_t>(n);
      own.earlier[n] = 0;
      if (end < length) continue;
      int32_t& place = own.places[hash_of(tokens.subspan(end - length, length)) % kPlaces];
      own.earlier[n] = place;
      place = static_cast<int32_t>(end);
    }
  }
}

Result<void> NGram::draft(std::span<DraftRequest> requests) {
  for (DraftRequest& request : requests) {
    const Slot& slot = slots_[static_cast<size_t>(request.slot)];
    for (int n = options_.longest; n >= options_.shortest; --n) {
      const auto length = static_cast<size_t>(n);
      const auto end = static_cast<size_t>(slot.earlier[n]);
      if (end < length || end >= request.tokens.size()) continue;
      const std::span<const TokenId> last = request.tokens.last(length);
      if (!std::equal(last.begin(), last.end(),
                      request.tokens.begin() + static_cast<std::ptrdiff_t>(end - length))) {
        continue;
      }
      const size_t count =
          std::min(static_cast<size_t>(request.tokens_max), request.tokens.size() - end);
      const std::span<const TokenId> next = request.tokens.subspan(end, count);
      request.guesses.assign(next.begin(), next.end());
      request.matched = n;
      break;
    }
  }
  return {};
}

}  // namespace pelton::speculative
