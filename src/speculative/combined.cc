#include "speculative/combined.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace pelton::speculative {
namespace {

constexpr double kTriesKept = 1024;           // then the old ones count half
constexpr double kSequenceWeight = 1.0 / 16;  // of a draft, to those before it
constexpr double kFactorMax = 2.0;
constexpr double kTimeWeight = 0.125;

void follow(double& mean, double seen) {
  mean = mean == 0 ? seen : mean + (std::min(seen, 4 * mean) - mean) * kTimeWeight;
}

}  // namespace

void Combined::Share::add(double tries, double hits) {
  if (tried > kTriesKept) {
    tried /= 2;
    hit /= 2;
  }
  tried += tries;
  hit += hits;
}

Combined::Combined(const Options& options, std::vector<Part> parts, const base::Clock& clock)
    : options_(options),
      parts_(std::move(parts)),
      clock_(clock),
      slots_(static_cast<size_t>(options.slot_count)) {
  CHECK(!parts_.empty() && parts_.size() <= kPartsMax);
  for (size_t i = 0; i + 1 < parts_.size(); ++i) CHECK(!parts_[i].has_weights);
}

std::vector<std::string_view> Combined::part_names() const {
  std::vector<std::string_view> names;
  for (const Part& part : parts_) names.push_back(part.proposer->name());
  return names;
}

int64_t Combined::bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts_) bytes += part.proposer->bytes();
  return bytes;
}

void Combined::begin(const NewSequence& sequence) {
  Slot& slot = slots_[static_cast<size_t>(sequence.slot)];
  slot.factor.fill(1.0);
  slot.not_asked = 0;
  for (Guessed& guessed : slot.guessed) guessed.tokens.clear();
  for (const Part& part : parts_) part.proposer->begin(sequence);
}

void Combined::observe(std::span<const ComputedRows> rows) {
  parts_.back().proposer->observe(rows);
}

size_t Combined::kind_of(int matched) {
  return matched == 0 ? 0 : matched <= 2 ? 1 : matched <= 4 ? 2 : matched <= 8 ? 3 : 4;
}

void Combined::append(int slot, std::span<const TokenId> tokens, size_t first_new) {
  if (drafted_at_ns_ > 0) {
    follow(step_ns_, static_cast<double>(clock_.now_ns() - drafted_at_ns_));
    drafted_at_ns_ = 0;
  }
  Slot& own = slots_[static_cast<size_t>(slot)];
  for (size_t part = 0; part < parts_.size(); ++part) {
    note(part, own, tokens.subspan(first_new));
    parts_[part].proposer->append(slot, tokens, first_new);
  }
}

// Behind the first wrong guess, and behind what was emitted, nothing is known.
void Combined::note(size_t part, Slot& slot, std::span<const TokenId> emitted) {
  Guessed& guessed = slot.guessed[part];
  const size_t known = std::min(guessed.tokens.size(), emitted.size());
  if (known > 0) {
    const auto same = std::mismatch(emitted.begin(), emitted.begin() + std::ptrdiff_t(known),
                                    guessed.tokens.begin());
    const auto hits = static_cast<size_t>(same.first - emitted.begin());
    const size_t tries = std::min(hits + 1, known);
    Share& share = shares_[part][guessed.kind];
    const double expected = share.hit / share.tried;
    const double seen = static_cast<double>(hits) / static_cast<double>(tries);
    double& factor = slot.factor[part];
    factor += (std::min(seen / expected, kFactorMax) - factor) * kSequenceWeight;
    share.add(static_cast<double>(tries), static_cast<double>(hits));
  }
  guessed.tokens.clear();
}

// Of so many guesses those that will be right, in the mean.
double Combined::expected(size_t part, const Slot& slot, size_t kind, size_t guesses) const {
  const Share& share = shares_[part][kind];
  const double acceptance = std::min(share.hit / share.tried * slot.factor[part], 0.99);
  double survival = 1;
  double sum = 0;
  for (size_t i = 0; i < guesses; ++i) sum += survival *= acceptance;
  return sum;
}

// Whoever fails has no guess.
void Combined::ask(size_t part, std::span<const DraftRequest> requests,
                   std::span<const size_t> wanted) {
  asked_.clear();
  for (const size_t i : wanted) {
    asked_.push_back({.slot = requests[i].slot,
                      .tokens = requests[i].tokens,
                      .tokens_max = requests[i].tokens_max});
  }
  const int64_t before_ns = clock_.now_ns();
  const bool answered = parts_[part].proposer->draft(asked_).ok();
  part_ns_[part] = clock_.now_ns() - before_ns;
  for (size_t j = 0; j < wanted.size(); ++j) {
    DraftRequest& answer = answers_[wanted[j]][part];
    answer = std::move(asked_[j]);
    if (!answered) answer.guesses.clear();
  }
}

// The most right guesses of those without weights.
Combined::Choice Combined::best_free(const std::array<DraftRequest, kPartsMax>& answers,
                                     const Slot& slot) const {
  Choice best{.part = parts_.size()};
  for (size_t part = 0; part < parts_.size(); ++part) {
    const DraftRequest& answer = answers[part];
    if (parts_[part].has_weights || answer.guesses.empty()) continue;
    const double right = expected(part, slot, kind_of(answer.matched), answer.guesses.size());
    if (right > best.right) best = {.part = part, .right = right, .matched = answer.matched};
  }
  return best;
}

bool Combined::wants_weights(const DraftRequest& request, const Choice& free, Slot& slot) const {
  if (!parts_.back().has_weights) return false;
  if (options_.rule == Rule::kLongMatch) return free.matched < kLongMatch;
  const double cost = step_ns_ > 0 ? asking_ns_ / step_ns_ : 0;
  const double right =
      expected(parts_.size() - 1, slot, 0, static_cast<size_t>(request.tokens_max));
  const bool gains = (1 + right) / (1 + cost) > 1 + free.right;
  return gains || slot.not_asked >= kTryAgainAfter;
}

void Combined::give(DraftRequest& request, const std::array<DraftRequest, kPartsMax>& answers,
                    size_t part) {
  Slot& slot = slots_[static_cast<size_t>(request.slot)];
  for (size_t i = 0; i < parts_.size(); ++i) {
    slot.guessed[i] = {.tokens = answers[i].guesses, .kind = kind_of(answers[i].matched)};
  }
  if (part == parts_.size()) return;
  request.guesses = answers[part].guesses;
  request.matched = answers[part].matched;
  request.is_predicted = answers[part].is_predicted;
  request.part = static_cast<int>(part);
}

Result<void> Combined::draft(std::span<DraftRequest> requests) {
  const size_t weights = parts_.size() - 1;
  answers_.assign(requests.size(), {});
  part_ns_.fill(0);
  std::vector<size_t> all(requests.size());
  std::iota(all.begin(), all.end(), size_t{0});
  for (size_t part = 0; part < parts_.size(); ++part) {
    if (!parts_[part].has_weights) ask(part, requests, all);
  }
  std::vector<Choice> choices;
  std::vector<size_t> wanted;
  for (size_t i = 0; i < requests.size(); ++i) {
    Slot& slot = slots_[static_cast<size_t>(requests[i].slot)];
    choices.push_back(best_free(answers_[i], slot));
    const bool asks = wants_weights(requests[i], choices[i], slot);
    slot.not_asked = asks ? 0 : slot.not_asked + 1;
    if (asks) wanted.push_back(i);
  }
  if (!wanted.empty()) {
    ask(weights, requests, wanted);
    follow(asking_ns_, static_cast<double>(part_ns_[weights]));
    for (const size_t i : wanted) {
      if (!answers_[i][weights].guesses.empty()) choices[i].part = weights;
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) give(requests[i], answers_[i], choices[i].part);
  drafted_at_ns_ = clock_.now_ns();
  return {};
}

}  // namespace pelton::speculative
