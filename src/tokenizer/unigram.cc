#include "tokenizer/unigram.h"

#include <algorithm>
#include <limits>

#include "base/utf8.h"

namespace pelton::tokenizer {
namespace {

// What an unknown character costs beyond the least likely piece.
constexpr double kUnknownPenalty = 10.0;
// Viterbi keeps a place for each byte; longer texts are cut at a space mark, where no piece goes
// on, or at worst anywhere.
constexpr size_t kTextBytesMax = size_t{1} << 20;

struct Best {
  double score = -std::numeric_limits<double>::infinity();
  size_t begin = 0;  // of the part that ends here
  TokenId id = kNoToken;
};

}  // namespace

bool Unigram::add(std::string_view piece, TokenId id, float score) {
  if (!pieces_.add(piece, id)) return false;
  scores_.resize(std::max(scores_.size(), static_cast<size_t>(id) + 1));
  scores_[static_cast<size_t>(id)] = score;
  least_ = std::min(least_, score);
  return true;
}

void Unigram::split(std::string_view text, std::vector<Part>& out) const {
  while (text.size() > kTextBytesMax) {
    size_t end = text.rfind("▁", kTextBytesMax);
    if (end == 0 || end == std::string_view::npos) {
      end = kTextBytesMax;
      while ((static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
    }
    split(text.substr(0, end), out);
    text.remove_prefix(end);
  }
  const double unknown = double{least_} - kUnknownPenalty;
  std::vector<Best> best(text.size() + 1);
  best[0].score = 0;
  const auto reach = [&](size_t begin, size_t end, double score, TokenId id) {
    const double sum = best[begin].score + score;
    if (sum > best[end].score) best[end] = {sum, begin, id};
  };
  for (size_t at = 0; at < text.size();) {
    const size_t character = base::utf8_step(text.substr(at)).bytes;
    bool is_known = false;
    pieces_.each_at(text, at, [&](size_t length, TokenId id) {
      is_known = is_known || length == character;
      reach(at, at + length, double{scores_[static_cast<size_t>(id)]}, id);
    });
    if (!is_known) reach(at, at + character, unknown, kNoToken);
    at += character;
  }
  const size_t first = out.size();
  for (size_t end = text.size(); end > 0; end = best[end].begin) {
    out.push_back({best[end].id, text.substr(best[end].begin, end - best[end].begin)});
  }
  std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
}

}  // namespace pelton::tokenizer
