#include "server/turn_cache.h"

#include <string>

#include "base/json.h"
#include "base/random.h"

namespace pelton::server {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

// What an entry costs beside its tokens, in tokens.
constexpr int64_t kTurnOverhead = 48;

uint64_t multiply_add(uint64_t sum, uint64_t point, uint64_t symbol) {
  const Wide product = Wide{sum} * point + symbol;
  const uint64_t folded = (static_cast<uint64_t>(product) & kPrime) +  //
                          static_cast<uint64_t>(product >> 61);
  return folded >= kPrime ? folded - kPrime : folded;
}

// The same text for the same JSON, spacing and escapes aside. Numbers too long for a double
// may become the same too; outside_strings() distinguishes them.
std::string plain_json(std::string_view text) {
  const Result<Json> json = Json::parse(text);
  return json.ok() ? json->dump() : std::string(text);
}

// Of a JSON text all but its strings and spacing, thus its numbers digit by digit.
std::string outside_strings(std::string_view text) {
  std::string outside;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string && c == '\\') {
      ++at;  // a quote behind it ends nothing
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && c != ' ' && c != '\t' && c != '\r' && c != '\n') {
      outside += c;
    }
  }
  return outside;
}

int64_t cost_of(const std::vector<TokenId>& tokens) {
  return static_cast<int64_t>(tokens.size()) + kTurnOverhead;
}

}  // namespace

void RollingHash::add(uint64_t symbol) {
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] = multiply_add(sums_[i], points_[i], symbol);
}

void RollingHash::add_tokens(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) add(static_cast<uint64_t>(token));
}

void RollingHash::add_bytes(std::string_view bytes) {
  constexpr size_t kBytesPerSymbol = 7;
  for (size_t at = 0; at < bytes.size(); at += kBytesPerSymbol) {
    uint64_t symbol = 0;
    for (const char c : bytes.substr(at, kBytesPerSymbol)) {
      symbol = symbol << 8 | static_cast<unsigned char>(c);
    }
    add(symbol);
  }
  add(bytes.size());
}

TurnCache::TurnCache(const Options& options)
    : options_(options),
      points_{base::random_bits(options.seed, 0) % kPrime,
              base::random_bits(options.seed, 1) % kPrime} {}

RollingHash TurnCache::history(std::string_view salt) const {
  RollingHash name(points_);
  name.add_bytes(salt);
  return name;
}

TurnCache::Name TurnCache::name_of(RollingHash history, const Words& words) {
  history.add_bytes(words.content);
  history.add(words.call ? 1 : 0);
  if (words.call) {
    history.add_bytes(words.call->first);
    history.add_bytes(plain_json(words.call->second));
    history.add_bytes(outside_strings(words.call->second));
  }
  return history.value();
}

void TurnCache::keep(const RollingHash& history, const Words& words, std::vector<TokenId> tokens) {
  const int64_t cost = cost_of(tokens);
  if (cost > options_.tokens_max / 4) return;  // one turn should not push out all others
  RollingHash reasoning(points_);
  reasoning.add_bytes(words.reasoning);
  const Name name = name_of(history, words);

  std::lock_guard lock(mutex_);
  if (const auto known = by_name_.find(name); known != by_name_.end()) {
    turns_.splice(turns_.begin(), turns_, known->second);
    counts_.tokens -= cost_of(turns_.front().tokens);
    turns_.front().reasoning = reasoning.value();
    turns_.front().tokens = std::move(tokens);
  } else {
    turns_.push_front({.name = name, .reasoning = reasoning.value(), .tokens = std::move(tokens)});
    by_name_.emplace(name, turns_.begin());
  }
  counts_.tokens += cost;
  while (counts_.tokens > options_.tokens_max) forget_last();
}

std::optional<std::vector<TokenId>> TurnCache::find(const RollingHash& history,
                                                    const Words& words) {
  const Name name = name_of(history, words);
  RollingHash reasoning(points_);
  reasoning.add_bytes(words.reasoning);

  std::lock_guard lock(mutex_);
  ++counts_.asked;
  const auto known = by_name_.find(name);
  if (known == by_name_.end()) return std::nullopt;
  if (!words.reasoning.empty() && known->second->reasoning != reasoning.value()) {
    return std::nullopt;
  }
  ++counts_.found;
  turns_.splice(turns_.begin(), turns_, known->second);
  return turns_.front().tokens;
}

void TurnCache::forget_last() {
  counts_.tokens -= cost_of(turns_.back().tokens);
  by_name_.erase(turns_.back().name);
  turns_.pop_back();
}

TurnCache::Counts TurnCache::counts() const {
  std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.turns = static_cast<int64_t>(turns_.size());
  return counts;
}

}  // namespace pelton::server
