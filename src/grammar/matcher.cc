#include "grammar/matcher.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "grammar/machine.h"
#include "grammar/mask_cache.h"
#include "grammar/mask_filler.h"

namespace pelton::grammar {
namespace {

constexpr size_t kMaskBytesMax = 16 << 20;  // of one grammar; a mask of o200k's takes 25 KB

// All bytes, those first that are allowed nearly everywhere: where there is a choice, two are found
// at once.
std::array<uint8_t, 256> likely_first() {
  std::array<uint8_t, 256> order{};
  std::array<bool, 256> taken{};
  size_t count = 0;
  const auto add = [&](uint8_t byte) {
    if (!taken[byte]) order[count++] = byte;
    taken[byte] = true;
  };
  for (const char byte : std::string_view(" \"a0,}]\n:ntb1A-.e")) add(static_cast<uint8_t>(byte));
  for (int byte = 0; byte < 256; ++byte) add(static_cast<uint8_t>(byte));
  return order;
}

// The bytes that may come next; stops after two of them.
int count_next(Machine& machine, std::span<const uint32_t> tops, uint8_t& byte,
               std::vector<uint32_t>& next) {
  int count = 0;
  std::vector<uint32_t> out;
  static const std::array<uint8_t, 256> kOrder = likely_first();
  for (const uint8_t b : kOrder) {
    const Machine::Mark mark = machine.mark();
    out.clear();
    machine.step(tops, b, out, 0);
    if (out.empty()) {
      machine.take_back(mark);
      continue;
    }
    if (++count > 1) break;
    byte = b;
    next = out;
  }
  return count;
}

}  // namespace

TokenGrammar::TokenGrammar(std::shared_ptr<const Grammar> grammar,
                           std::shared_ptr<const TokenTrie> trie)
    : grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      cache_(std::make_unique<MaskCache>(kMaskBytesMax)) {
  if (grammar_->rules() == nullptr) return;
  for (const ByteDfa& dfa : grammar_->rules()->dfas) {
    lexeme_classes_.push_back(alike_states(dfa.table(), trie_->all().depth_max()));
  }
}

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
  size_t classes = 0;
  for (const std::vector<uint32_t>& one : lexeme_classes_) classes += one.capacity();
  return grammar_->bytes_held() + classes * sizeof(uint32_t) + cache_->bytes_held();
}

Matcher::Matcher(std::shared_ptr<const TokenGrammar> grammar) : grammar_(std::move(grammar)) {
  Machine machine(grammar_->grammar());
  machine.start();
  position_ = std::make_shared<const Position>(machine.position(machine.tops()));
}

void Matcher::fill_mask(std::span<uint64_t> mask) const {
  CHECK(mask.size() == grammar_->trie().mask_words());
  std::fill(mask.begin(), mask.end(), 0);
  MaskFiller filler(*grammar_);
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

Matcher::Forced Matcher::forced(size_t bytes_max) const {
  Machine machine(grammar_->grammar());
  machine.load(*position_);
  std::vector<uint32_t> tops(machine.tops().begin(), machine.tops().end());
  Forced forced;
  uint8_t byte = 0;
  std::vector<uint32_t> next;
  for (;;) {
    const bool can_end =
        std::any_of(tops.begin(), tops.end(), [&](uint32_t top) { return machine.can_end(top); });
    const int count =
        can_end || forced.bytes.size() < bytes_max ? count_next(machine, tops, byte, next) : 2;
    forced.ends = can_end && count == 0;
    if (can_end || count != 1) break;
    forced.bytes += static_cast<char>(byte);
    tops.swap(next);
  }
  if (forced.ends) return forced;
  forced.bytes.resize(base::valid_utf8_prefix(forced.bytes));
  return forced;
}

}  // namespace pelton::grammar
