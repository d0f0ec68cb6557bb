#include "grammar/grammar_state.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pelton::grammar {
namespace {

using Text = GrammarFsm::Segment::Text;

constexpr size_t kForcedBytesMax = 256;  // looked at: some tens of tokens

void set_bit(std::span<uint64_t> mask, TokenId token) {
  mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
}

}  // namespace

GrammarFsm::GrammarFsm(Parts parts) : parts_(std::move(parts)) {
  const int vocab = std::max(parts_.vocab_size, parts_.trie->vocab_size());
  mask_words_ = (static_cast<size_t>(vocab) + 63) / 64;
  for (const Segment& segment : parts_.segments) {
    CHECK((segment.text == Text::kGrammar) == (segment.grammar != nullptr));
    CHECK(!segment.grammar || &segment.grammar->trie() == parts_.trie.get(),
          "a grammar over another vocabulary");
    std::vector<uint64_t>& mask = free_masks_.emplace_back();
    if (segment.text != Text::kFree) continue;
    mask.resize(mask_words_);
    for (TokenId token = 0; token < parts_.trie->vocab_size(); ++token) {
      if (!parts_.trie->bytes(token).empty()) set_bit(mask, token);
    }
    for (const Exit& exit : segment.exits) set_bit(mask, exit.token);
  }
}

GrammarState::GrammarState(std::shared_ptr<const GrammarFsm> network)
    : network_(std::move(network)) {
  begin(network_->starts(), ways_);
}

void GrammarState::begin(std::span<const int> segments, std::vector<Way>& ways) const {
  for (const int segment : segments) {
    Way& way = ways.emplace_back();
    way.segment = segment;
    const auto& grammar = network_->segment(segment).grammar;
    if (grammar) way.matcher.emplace(grammar);
  }
}

std::span<const uint64_t> GrammarState::mask(std::vector<uint64_t>& room) const {
  WorkBudget budget = WorkBudget::unlimited();
  return mask(room, budget);
}

std::span<const uint64_t> GrammarState::mask(std::vector<uint64_t>& room,
                                             WorkBudget& budget) const {
  if (over()) return {};
  if (ways_.size() == 1 && !network_->free_mask(ways_[0].segment).empty()) {
    return network_->free_mask(ways_[0].segment);
  }
  room.assign(network_->mask_words(), 0);
  const size_t text_words = network_->trie().mask_words();
  std::vector<uint64_t> more;  // of a second way's text: only headers have several
  bool filled = false;
  for (const Way& way : ways_) {
    if (const std::span<const uint64_t> free = network_->free_mask(way.segment); !free.empty()) {
      for (size_t i = 0; i < free.size(); ++i) room[i] |= free[i];
      filled = true;
      continue;
    }
    if (way.matcher && !filled) {
      way.matcher->fill_mask(std::span(room).first(text_words), budget);
      filled = true;
    } else if (way.matcher) {
      more.resize(text_words);
      way.matcher->fill_mask(more, budget);
      for (size_t i = 0; i < text_words; ++i) room[i] |= more[i];
    }
  }
  for (const Way& way : ways_) {
    if (way.matcher && !way.matcher->can_end()) continue;
    for (const GrammarFsm::Exit& exit : network_->segment(way.segment).exits) {
      set_bit(room, exit.token);
    }
  }
  return room;
}

std::vector<TokenId> GrammarState::forced(size_t tokens_max) const {
  WorkBudget budget = WorkBudget::unlimited();
  GrammarState ahead = *this;
  return ahead.accept_forced(tokens_max, budget);
}

std::vector<TokenId> GrammarState::accept_forced(size_t tokens_max, WorkBudget& budget) {
  std::vector<TokenId> tokens;
  // Whether one way and no other is open is known without a copy.
  if (ways_.size() != 1 || network_->segment(ways_[0].segment).text == Text::kFree) return tokens;
  GrammarState ahead = *this;
  while (tokens.size() < tokens_max && ahead.add_forced(tokens_max, tokens, budget)) {
  }
  if (!budget.exhausted()) ways_ = std::move(ahead.ways_);
  return tokens;
}

// Goes over some that must come; false: that was all. In a segment of "fooabc" [a-z] the bytes
// fooabc are forced, spelled foo abc; abc is left out, for with the next letter it might be one
// token. In a segment of "name" with the one exit 1000, name and then 1000 are.
bool GrammarState::add_forced(size_t tokens_max, std::vector<TokenId>& tokens, WorkBudget& budget) {
  if (ways_.size() != 1) return false;
  const GrammarFsm::Segment& segment = network_->segment(ways_[0].segment);
  if (segment.text == Text::kFree) return false;
  if (ways_[0].matcher) {
    const Matcher::Forced text = ways_[0].matcher->forced(kForcedBytesMax, budget);
    if (!text.bytes.empty()) {
      std::vector<TokenId> spelled;
      network_->trie().spell(text.bytes, spelled);
      if (!text.ends && !spelled.empty()) spelled.pop_back();
      for (const TokenId token : spelled) {
        if (tokens.size() == tokens_max || !accept(token, budget)) return false;
        tokens.push_back(token);
      }
      return text.ends;
    }
    if (!text.ends) return false;
  }
  if (segment.exits.size() != 1) return false;
  const TokenId token = segment.exits[0].token;
  if (!accept(token, budget)) return false;
  tokens.push_back(token);
  return !over();
}

bool allows_other(std::span<const uint64_t> mask, std::span<const TokenId> tokens) {
  for (size_t i = 0; i < mask.size(); ++i) {
    uint64_t bits = mask[i];
    for (const TokenId token : tokens) {
      if (bits != 0 && static_cast<size_t>(token) / 64 == i) bits &= ~(uint64_t{1} << (token % 64));
    }
    if (bits != 0) return true;
  }
  return false;
}

bool GrammarState::accept(TokenId token) {
  WorkBudget budget = WorkBudget::unlimited();
  return accept(token, budget);
}

bool GrammarState::accept(TokenId token, WorkBudget& budget) {
  if (over()) return true;
  if (token < 0) return false;
  std::vector<Way> next;
  bool ended = false;
  for (const Way& way : ways_) {
    const GrammarFsm::Segment& segment = network_->segment(way.segment);
    const auto exit = std::find_if(segment.exits.begin(), segment.exits.end(),
                                   [&](const GrammarFsm::Exit& one) { return one.token == token; });
    // A token that leads on where its text may end may be text elsewhere ("</tool_call>" in a
    // string).
    if (exit != segment.exits.end() && (!way.matcher || way.matcher->can_end())) {
      ended = ended || exit->to.empty();
      begin(exit->to, next);
    } else if (way.matcher) {
      Way on = way;
      if (on.matcher->accept(token, budget)) next.push_back(std::move(on));
    } else if (segment.text == Text::kFree && token < network_->trie().vocab_size() &&
               !network_->trie().bytes(token).empty()) {
      next.push_back(way);
    }
  }
  if (budget.exhausted() || (next.empty() && !ended)) return false;
  ways_ = std::move(next);
  return true;
}

}  // namespace pelton::grammar
