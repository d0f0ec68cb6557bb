#include "grammar/matcher.h"

#include <algorithm>

#include "grammar/machine.h"
#include "grammar/mask_cache.h"
#include "grammar/mask_filler.h"

namespace pelton::grammar {
namespace {

constexpr size_t kMaskBytesMax = 16 << 20;  // of one grammar; a mask of o200k's takes 25 KB

// The bytes that may come next; stops after two of them.
int count_next(Machine& machine, std::span<const uint32_t> tops, uint8_t& byte,
               std::vector<uint32_t>& next) {
  int count = 0;
  std::vector<uint32_t> out;
  for (int b = 0; b < 256 && count < 2; ++b) {
    const Machine::Mark mark = machine.mark();
    out.clear();
    machine.step(tops, static_cast<uint8_t>(b), out, 0);
    if (out.empty()) {
      machine.take_back(mark);
      continue;
    }
    if (++count > 1) break;
    byte = static_cast<uint8_t>(b);
    next = out;
  }
  return count;
}

}  // namespace

TokenGrammar::TokenGrammar(std::shared_ptr<const Grammar> grammar,
                           std::shared_ptr<const TokenTrie> trie)
    : grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      cache_(std::make_unique<MaskCache>(kMaskBytesMax)) {}

TokenGrammar::~TokenGrammar() = default;

Result<std::shared_ptr<const TokenGrammar>> TokenGrammar::make(
    std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie) {
  if (!trie->has_every_byte()) {
    return Error{ErrorCode::kUnsupported,
                 "the model's vocabulary has no token for some bytes, so a grammar could ask for "
                 "what no token can give"};
  }
  return std::shared_ptr<const TokenGrammar>(new TokenGrammar(std::move(grammar), std::move(trie)));
}

size_t TokenGrammar::bytes_held() const {
  return grammar_->bytes_held() + cache_->bytes_held();
}

Matcher::Matcher(std::shared_ptr<const TokenGrammar> grammar) : grammar_(std::move(grammar)) {
  Machine machine(grammar_->grammar());
  machine.start();
  position_ = std::make_shared<const Position>(machine.position(machine.tops()));
}

void Matcher::fill_mask(std::span<uint64_t> mask) const {
  CHECK(mask.size() == grammar_->trie().mask_words());
  std::fill(mask.begin(), mask.end(), 0);
  MaskFiller filler(grammar_->grammar(), grammar_->trie(), grammar_->cache());
  filler.fill(*position_, mask);
}

bool Matcher::allows(TokenId token) const {
  Matcher copy = *this;
  return copy.accept(token);
}

bool Matcher::accept(TokenId token) {
  const std::string_view bytes = grammar_->trie().bytes(token);
  return !bytes.empty() && accept_bytes(bytes);
}

bool Matcher::accept_bytes(std::string_view bytes) {
  Machine machine(grammar_->grammar());
  machine.load(*position_);
  std::vector<uint32_t> tops(machine.tops().begin(), machine.tops().end());
  std::vector<uint32_t> next;
  for (const char byte : bytes) {
    next.clear();
    machine.step(tops, static_cast<uint8_t>(byte), next, 0);
    if (next.empty()) return false;
    tops.swap(next);
  }
  position_ = std::make_shared<const Position>(machine.position(tops));
  return true;
}

bool Matcher::can_end() const {
  Machine machine(grammar_->grammar());
  machine.load(*position_);
  return std::any_of(machine.tops().begin(), machine.tops().end(),
                     [&](uint32_t top) { return machine.can_end(top); });
}

bool Matcher::must_end() const {
  Machine machine(grammar_->grammar());
  machine.load(*position_);
  uint8_t byte = 0;
  std::vector<uint32_t> next;
  return can_end() && count_next(machine, position_->tops, byte, next) == 0;
}

bool Matcher::is_stuck() const {
  Machine machine(grammar_->grammar());
  machine.load(*position_);
  uint8_t byte = 0;
  std::vector<uint32_t> next;
  return !can_end() && count_next(machine, position_->tops, byte, next) == 0;
}

std::string Matcher::forced_bytes(size_t bytes_max) const {
  Machine machine(grammar_->grammar());
  machine.load(*position_);
  std::vector<uint32_t> tops(machine.tops().begin(), machine.tops().end());
  std::string forced;
  while (forced.size() < bytes_max) {
    if (std::any_of(tops.begin(), tops.end(), [&](uint32_t top) { return machine.can_end(top); })) {
      break;
    }
    uint8_t byte = 0;
    std::vector<uint32_t> next;
    if (count_next(machine, tops, byte, next) != 1) break;
    forced += static_cast<char>(byte);
    tops.swap(next);
  }
  return forced;
}

}  // namespace pelton::grammar
