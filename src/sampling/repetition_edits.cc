#include "sampling/repetition_edits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace pelton::sampling {
namespace {

bool is_breaker(const request::DryPenalty& dry, TokenId token) {
  if (dry.breakers == nullptr || token < 0) return false;
  const auto word = static_cast<size_t>(token) / 64;
  return word < dry.breakers->size() && ((*dry.breakers)[word] >> (token % 64) & 1) != 0;
}

// Of each place in `text`, how many tokens from there on are the text's first ones (Gusfield's Z).
std::vector<int> prefix_matches(std::span<const TokenId> text) {
  const int size = static_cast<int>(text.size());
  std::vector<int> matches(text.size(), 0);
  for (int i = 1, left = 0, right = 0; i < size; ++i) {
    int length = i < right ? std::min(right - i, matches[i - left]) : 0;
    while (i + length < size && text[length] == text[i + length]) ++length;
    matches[i] = length;
    if (i + length > right) {
      left = i;
      right = i + length;
    }
  }
  return matches;
}

}  // namespace

std::vector<std::pair<TokenId, float>> dry_penalties(std::span<const TokenId> tokens,
                                                     const request::DryPenalty& dry) {
  if (dry.last_n >= 0 && static_cast<size_t>(dry.last_n) < tokens.size()) {
    tokens = tokens.last(static_cast<size_t>(dry.last_n));
  }
  const std::vector<TokenId> newest(tokens.rbegin(), tokens.rend());
  const auto is_end = [&](TokenId token) { return is_breaker(dry, token); };
  const auto reach =
      static_cast<int>(std::find_if(newest.begin(), newest.end(), is_end) - newest.begin());
  if (reach < dry.allowed_length) return {};
  const std::vector<int> matches = prefix_matches(newest);
  std::map<TokenId, int> longest;
  for (size_t i = 1; i < newest.size(); ++i) {
    const int length = std::min(matches[i], reach);
    const TokenId next = newest[i - 1];
    if (length < std::max(dry.allowed_length, 1) || is_breaker(dry, next)) continue;
    int& known = longest[next];
    known = std::max(known, length);
  }
  std::vector<std::pair<TokenId, float>> penalties;
  for (const auto& [token, length] : longest) {
    const double penalty =
        dry.multiplier * std::pow(double{dry.base}, double(length - dry.allowed_length));
    const double most = std::numeric_limits<float>::max();
    penalties.emplace_back(token, static_cast<float>(std::min(penalty, most)));
  }
  return penalties;
}

std::vector<TokenId> ends_of_bad_words(std::span<const TokenId> output,
                                       std::span<const std::vector<TokenId>> words) {
  std::vector<TokenId> ends;
  for (const std::vector<TokenId>& word : words) {
    if (word.empty() || word.size() - 1 > output.size()) continue;
    const std::span<const TokenId> said = output.last(word.size() - 1);
    if (std::equal(said.begin(), said.end(), word.begin())) ends.push_back(word.back());
  }
  return ends;
}

}  // namespace pelton::sampling
