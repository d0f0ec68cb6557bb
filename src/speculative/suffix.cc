#include "speculative/suffix.h"

#include <algorithm>

namespace pelton::speculative {

Suffix::Suffix(const Options& options) : options_(options) {
  slots_.reserve(static_cast<size_t>(options.slot_count));
  for (int i = 0; i < options.slot_count; ++i) slots_.emplace_back(options.tokens_max);
}

int64_t Suffix::bytes_for(const Options& options) {
  return options.slot_count * SuffixAutomaton::bytes_for(options.tokens_max);
}

int64_t Suffix::bytes() const {
  int64_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.automaton.bytes();
  return bytes;
}

void Suffix::begin(const NewSequence& sequence) {
  Slot& slot = slots_[static_cast<size_t>(sequence.slot)];
  slot.prompt_count = static_cast<size_t>(sequence.prompt_count);
  // Most of the room is the sequence's own.
  const size_t predicted =
      std::min(sequence.prediction.size(), static_cast<size_t>(options_.tokens_max) / 4);
  slot.prediction.assign(sequence.prediction.begin(),
                         sequence.prediction.begin() + static_cast<std::ptrdiff_t>(predicted));
  read_latest(slot, sequence.tokens);
}

// Anew, of the sequence half of what there is room for: so that is done once for as many tokens.
void Suffix::read_latest(Slot& slot, std::span<const TokenId> tokens) const {
  slot.automaton.clear();
  slot.is_predicted = false;
  const size_t most = std::max<size_t>(static_cast<size_t>(options_.tokens_max) / 2, 1);
  slot.first = tokens.size() - std::min(tokens.size(), most);
  if (slot.first > slot.prompt_count) read_prediction(slot);
  read(slot, tokens, slot.first);
}

void Suffix::read_prediction(Slot& slot) const {
  if (slot.prediction.empty() || slot.is_predicted) return;
  const size_t room = static_cast<size_t>(options_.tokens_max - slot.automaton.size());
  if (slot.prediction.size() + 2 > room) return;
  slot.is_predicted = true;
  slot.predicted_from = static_cast<size_t>(slot.automaton.size());
  slot.automaton.extend(kSeparator);
  for (const TokenId token : slot.prediction) slot.automaton.extend(token);
  slot.automaton.extend(kSeparator);
}

void Suffix::read(Slot& slot, std::span<const TokenId> tokens, size_t first_new) const {
  for (size_t i = first_new; i < tokens.size(); ++i) {
    if (i == slot.prompt_count) read_prediction(slot);
    if (slot.automaton.full()) return read_latest(slot, tokens);
    slot.automaton.extend(tokens[i]);
  }
}

void Suffix::append(int slot, std::span<const TokenId> tokens, size_t first_new) {
  read(slots_[static_cast<size_t>(slot)], tokens, first_new);
}

Result<void> Suffix::draft(std::span<DraftRequest> requests) {
  for (DraftRequest& request : requests) draft(slots_[static_cast<size_t>(request.slot)], request);
  return {};
}

void Suffix::draft(const Slot& slot, DraftRequest& request) const {
  const SuffixAutomaton::Match match = slot.automaton.match();
  if (match.length < kMatchMin) return;
  request.matched = match.length;
  const double worth = options_.guesses_per_matched_token * match.length;
  const auto most = static_cast<size_t>(std::min<double>(request.tokens_max, worth));
  auto end = static_cast<size_t>(match.end);
  if (slot.is_predicted && end > slot.predicted_from) {
    const size_t predicted = end - slot.predicted_from - 1;
    if (predicted <= slot.prediction.size()) {
      const size_t count = std::min(most, slot.prediction.size() - predicted);
      const auto next = slot.prediction.begin() + static_cast<std::ptrdiff_t>(predicted);
      request.guesses.assign(next, next + static_cast<std::ptrdiff_t>(count));
      request.is_predicted = true;
      return;
    }
    end -= slot.prediction.size() + 2;
  }
  const size_t next = slot.first + end;
  for (size_t i = 0; i < most; ++i) {
    // Behind the end of what is known the guesses themselves go on: a text that repeats itself.
    const size_t at = next + i;
    request.guesses.push_back(at < request.tokens.size()
                                  ? request.tokens[at]
                                  : request.guesses[at - request.tokens.size()]);
  }
}

}  // namespace pelton::speculative
