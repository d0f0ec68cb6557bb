#include "speculative/answer_pool.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/random.h"

namespace pelton::speculative {
namespace {

constexpr int64_t kNowhere = -1;

size_t buckets_for(int tokens_max) {
  return std::bit_ceil(static_cast<size_t>(tokens_max));
}

}  // namespace

AnswerPool::AnswerPool(const Options& options)
    : options_(options),
      tokens_(static_cast<size_t>(options.tokens_max)),
      previous_(static_cast<size_t>(options.tokens_max)),
      latest_(buckets_for(options.tokens_max), kNowhere),
      answers_(static_cast<size_t>(options.answers_max)) {
  CHECK(options.tokens_max > kMatchMin && options.answers_max > 0);
}

int64_t AnswerPool::bytes_for(const Options& options) {
  return static_cast<int64_t>(static_cast<size_t>(options.tokens_max) *
                                  (sizeof(TokenId) + sizeof(int64_t)) +
                              buckets_for(options.tokens_max) * sizeof(int64_t) +
                              static_cast<size_t>(options.answers_max) * sizeof(Answer));
}

int64_t AnswerPool::bytes() const {
  return static_cast<int64_t>(
      tokens_.capacity() * sizeof(TokenId) + previous_.capacity() * sizeof(int64_t) +
      latest_.capacity() * sizeof(int64_t) + answers_.capacity() * sizeof(Answer));
}

size_t AnswerPool::bucket_of(const TokenId* three, const kv::BlockHash& origin) const {
  uint64_t key = base::mix64(origin.low ^ base::mix64(origin.high));
  for (int i = 0; i < kMatchMin; ++i) key = base::mix64(key ^ static_cast<uint32_t>(three[i]));
  return key & (latest_.size() - 1);
}

void AnswerPool::drop_oldest() {
  first_ = (first_ + 1) % answers_.size();
  --count_;
}

void AnswerPool::add(std::span<const TokenId> answer, const kv::BlockHash& origin) {
  const auto most = static_cast<size_t>(options_.tokens_max);
  if (answer.size() > most) answer = answer.last(most);
  if (answer.size() <= kMatchMin) return;
  const int64_t begin = end_;
  end_ += static_cast<int64_t>(answer.size());
  while (count_ > 0 &&
         (count_ == answers_.size() || answers_[first_].begin < end_ - options_.tokens_max)) {
    drop_oldest();
  }
  answers_[(first_ + count_++) % answers_.size()] = {begin, end_, origin};
  for (size_t i = 0; i < answer.size(); ++i) {
    const int64_t position = begin + static_cast<int64_t>(i);
    tokens_[at(position)] = answer[i];
    previous_[at(position)] = kNowhere;
    if (i + 1 < kMatchMin) continue;
    int64_t& latest = latest_[bucket_of(answer.data() + i + 1 - kMatchMin, origin)];
    previous_[at(position)] = latest;
    latest = position;
  }
}

// Null where it is of none that is kept.
const AnswerPool::Answer* AnswerPool::answer_of(int64_t position) const {
  size_t low = 0;
  size_t high = count_;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const bool is_before = answers_[(first_ + middle) % answers_.size()].begin <= position;
    (is_before ? low : high) = is_before ? middle + 1 : middle;
  }
  return low == 0 ? nullptr : &answers_[(first_ + low - 1) % answers_.size()];
}

// How much of the text's end ends at `last`, up to kMatchMax.
int AnswerPool::matched_at(const Answer& answer, int64_t last,
                           std::span<const TokenId> text) const {
  const auto most = static_cast<int>(
      std::min<int64_t>({kMatchMax, last - answer.begin + 1, static_cast<int64_t>(text.size())}));
  int matched = 0;
  while (matched < most &&
         tokens_[at(last - matched)] == text[text.size() - 1 - static_cast<size_t>(matched)]) {
    ++matched;
  }
  return matched;
}

void AnswerPool::find(std::span<const TokenId> text, const kv::BlockHash& origin,
                      Found& found) const {
  found.matched = 0;
  found.ends.clear();
  if (text.size() < kMatchMin) return;
  int64_t last = latest_[bucket_of(text.data() + text.size() - kMatchMin, origin)];
  for (int place = 0; place < kPlacesMax && last != kNowhere; ++place) {
    const Answer* const answer = answer_of(last);
    if (answer == nullptr) return;  // those before it are older still
    const int matched = answer->origin == origin ? matched_at(*answer, last, text) : 0;
    if (matched >= kMatchMin && matched >= found.matched) {
      if (matched > found.matched) found.ends.clear();
      found.matched = matched;
      found.ends.push_back(last + 1);
    }
    last = previous_[at(last)];
  }
}

TokenId AnswerPool::behind(int64_t end, int ahead) const {
  const Answer* const answer = answer_of(end - 1);
  const int64_t position = end + ahead;
  return answer != nullptr && position < answer->end ? tokens_[at(position)] : kNone;
}

}  // namespace pelton::speculative
