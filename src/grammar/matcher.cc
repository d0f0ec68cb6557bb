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
// With more bytes that mean something of their own, a vocabulary does not become smaller.
constexpr int kAliasesMax = 128;
// For finding states that no token distinguishes, over all automata of a grammar: some 20 ms.
constexpr uint64_t kClassWorkMax = 6'000'000;

Error out_of_time() {
  return {ErrorCode::kDoesNotFit, "compiling takes too long", ""};
}

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
      cache_(std::make_unique<MaskCache>(kMaskBytesMax)),
      aliases_(every_byte_itself()) {
  if (grammar_->rules() == nullptr) return;
  if (grammar_->json() == nullptr) aliases_ = aliases_of(*grammar_->rules());
  lexeme_classes_.resize(grammar_->rules()->dfas.size());
}

TokenGrammar::~TokenGrammar() = default;

void TokenGrammar::find_classes(const CompileDeadline* deadline) {
  uint64_t work_left = kClassWorkMax;
  for (size_t i = 0; i < lexeme_classes_.size(); ++i) {
    if (deadline != nullptr && deadline->passed()) return;
    lexeme_classes_[i] = alike_states(grammar_->rules()->dfas[i].table(), trie_->all().depth_max(),
                                      work_left, deadline);
  }
}

Result<std::shared_ptr<TokenGrammar>> TokenGrammar::started(std::shared_ptr<const Grammar> grammar,
                                                            std::shared_ptr<const TokenTrie> trie,
                                                            WorkBudget& budget) {
  if (!trie->has_every_byte()) {
    return Error{ErrorCode::kUnsupported,
                 "the model's vocabulary has no token for some bytes, so a grammar could ask for "
                 "what no token can give"};
  }
  std::shared_ptr<TokenGrammar> made(new TokenGrammar(std::move(grammar), std::move(trie)));
  Machine machine(*made->grammar_, budget);
  machine.start();
  made->start_ = std::make_shared<const Position>(machine.position(machine.tops()));
  return made;
}

Result<std::shared_ptr<const TokenGrammar>> TokenGrammar::make(
    std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
    const CompileDeadline* deadline) {
  if (deadline != nullptr && deadline->passed()) return out_of_time();
  WorkBudget budget({.deadline = deadline});
  TRY_ASSIGN(std::shared_ptr<TokenGrammar> made,
             started(std::move(grammar), std::move(trie), budget));
  made->find_classes(deadline);
  const Result<void> begins = made->try_start(budget);
  if (deadline != nullptr && deadline->passed()) return out_of_time();
  TRY(begins);
  return std::shared_ptr<const TokenGrammar>(std::move(made));
}

Result<std::shared_ptr<const TokenGrammar>> TokenGrammar::make(
    std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie) {
  return make(std::move(grammar), std::move(trie), nullptr);
}

Result<std::shared_ptr<const TokenGrammar>> TokenGrammar::of_words(
    std::shared_ptr<const Grammar> words, std::shared_ptr<const TokenTrie> trie) {
  WorkBudget budget;
  TRY_ASSIGN(std::shared_ptr<TokenGrammar> made,
             started(std::move(words), std::move(trie), budget));
  CHECK(!budget.exhausted());
  return std::shared_ptr<const TokenGrammar>(std::move(made));
}

// The first mask is computed here, so that a grammar that cannot be followed from its beginning on
// is an error of the request and not of an answer.
Result<void> TokenGrammar::try_start(WorkBudget& budget) {
  std::vector<uint64_t> mask(trie_->mask_words());
  if (!budget.exhausted()) MaskFiller(*this, budget).fill(*start_, mask);
  const bool any = std::any_of(mask.begin(), mask.end(), [](uint64_t word) { return word != 0; });
  if (!budget.exhausted() && (any || start_->can_end)) return {};
  return Error{ErrorCode::kUnsupported,
               "the grammar is too ambiguous: its rules can read the beginning of a text in more "
               "ways than are followed; write it with fewer rules that can match the same text"};
}

size_t TokenGrammar::bytes_held() const {
  size_t classes = 0;
  for (const std::vector<uint32_t>& one : lexeme_classes_) classes += one.capacity();
  const ByteTrie* const merged = merged_.load(std::memory_order_acquire);
  const size_t tokens = merged != nullptr ? merged->bytes_held() : 0;
  return grammar_->bytes_held() + classes * sizeof(uint32_t) + cache_->bytes_held() + tokens;
}

const ByteTrie& TokenGrammar::tokens(WorkBudget& budget) const {
  if (alias_count(aliases_) > kAliasesMax) return trie_->all();
  if (const ByteTrie* const merged = merged_.load(std::memory_order_acquire); merged != nullptr) {
    budget.save(merged_work_);
    return *merged;
  }
  const int64_t before = budget.done();
  const TrieRest whole = {.trie = &trie_->all()};
  ByteTrie merged = merge_rests(std::span(&whole, 1), aliases_, {}, budget);
  if (budget.exhausted()) return trie_->all();
  const std::lock_guard lock(merging_);
  if (merged_.load(std::memory_order_relaxed) == nullptr) {
    merged_tokens_ = std::move(merged);
    merged_work_ = budget.done() - before;
    merged_.store(&merged_tokens_, std::memory_order_release);
  }
  return merged_tokens_;
}

Matcher::Matcher(std::shared_ptr<const TokenGrammar> grammar)
    : grammar_(std::move(grammar)), position_(grammar_->start()) {}

void Matcher::fill_mask(std::span<uint64_t> mask, WorkBudget& budget) const {
  CHECK(mask.size() == grammar_->trie().mask_words());
  std::fill(mask.begin(), mask.end(), 0);
  MaskFiller filler(*grammar_, budget);
  filler.fill(*position_, mask);
}

void Matcher::fill_mask(std::span<uint64_t> mask) const {
  WorkBudget budget = WorkBudget::unlimited();
  fill_mask(mask, budget);
}

bool Matcher::allows(TokenId token) const {
  Matcher copy = *this;
  return copy.accept(token);
}

bool Matcher::accept(TokenId token, WorkBudget& budget) {
  const std::string_view bytes = grammar_->trie().bytes(token);
  return !bytes.empty() && accept_bytes(bytes, budget);
}

bool Matcher::accept(TokenId token) {
  WorkBudget budget = WorkBudget::unlimited();
  return accept(token, budget);
}

bool Matcher::accept_bytes(std::string_view bytes) {
  WorkBudget budget = WorkBudget::unlimited();
  return accept_bytes(bytes, budget);
}

bool Matcher::accept_bytes(std::string_view bytes, WorkBudget& budget) {
  Machine machine(grammar_->grammar(), budget);
  machine.load(*position_);
  std::vector<uint32_t> tops(machine.tops().begin(), machine.tops().end());
  std::vector<uint32_t> next;
  for (const char byte : bytes) {
    next.clear();
    machine.step(tops, static_cast<uint8_t>(byte), next, 0);
    if (next.empty()) {
      // The machine's bound said no, not the grammar; nor a budget that is to be tried with more.
      if (machine.overflowed() && !budget.exhausted()) budget.exceed();
      return false;
    }
    tops.swap(next);
  }
  auto position = std::make_shared<const Position>(machine.position(tops));
  if (budget.exhausted()) return false;
  position_ = std::move(position);
  return true;
}

bool Matcher::can_end() const {
  return position_->can_end;
}

bool Matcher::must_end() const {
  WorkBudget budget = WorkBudget::unlimited();
  Machine machine(grammar_->grammar(), budget);
  machine.load(*position_);
  uint8_t byte = 0;
  std::vector<uint32_t> next;
  return can_end() && count_next(machine, position_->tops, byte, next) == 0;
}

bool Matcher::is_stuck() const {
  WorkBudget budget = WorkBudget::unlimited();
  Machine machine(grammar_->grammar(), budget);
  machine.load(*position_);
  uint8_t byte = 0;
  std::vector<uint32_t> next;
  return !can_end() && count_next(machine, position_->tops, byte, next) == 0;
}

Matcher::Forced Matcher::forced(size_t bytes_max) const {
  WorkBudget budget = WorkBudget::unlimited();
  return forced(bytes_max, budget);
}

// Of an object whose only key is the required "name", a string, without whitespace: { is the only
// first byte, then ", n, a, m, e (no escape spells them), ", : and " again; in the string two bytes
// are found at once, so {"name":" is forced. With whitespace, only {.
Matcher::Forced Matcher::forced(size_t bytes_max, WorkBudget& budget) const {
  Machine machine(grammar_->grammar(), budget);
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
