#include "chat/control_texts.h"

#include <algorithm>
#include <optional>

namespace pelton::chat {
namespace {

bool has_input(const jinja::Text& text, size_t begin, size_t end) {
  const std::vector<jinja::Text::Range>& input = text.input();
  const auto first = std::partition_point(input.begin(), input.end(),
                                          [&](const auto& range) { return range.end <= begin; });
  return first != input.end() && first->begin < end;
}

}  // namespace

ControlTexts::ControlTexts(const tokenizer::Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view text = tokenizer.bytes(id);
    if (text.empty() || tokenizer.special_id(text) != id) continue;
    (void)texts_.add(text, id);  // its text is nobody else's: special_id() has found it
  }
}

void ControlTexts::encode(const jinja::Text& text, std::vector<TokenId>& out) const {
  const std::string_view bytes = text.bytes();
  size_t done = 0;
  size_t from = 0;
  while (const auto match = texts_.next(bytes, from)) {
    if (has_input(text, match->begin, match->begin + match->length)) {
      from = match->begin + 1;
      continue;
    }
    const tokenizer::Tokenizer::Strips takes = tokenizer_.strips(match->id);
    std::string_view before = bytes.substr(done, match->begin - done);
    if (takes.left) before.remove_suffix(tokenizer::white_space_at_end(before));
    tokenizer_.encode(before, out);
    out.push_back(match->id);
    done = from = match->begin + match->length;
    if (takes.right) done = from += tokenizer::white_space_at_front(bytes.substr(done));
  }
  tokenizer_.encode(bytes.substr(done), out);
}

}  // namespace pelton::chat
