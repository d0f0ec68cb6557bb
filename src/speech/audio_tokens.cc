#include "speech/audio_tokens.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace pelton::speech {
namespace {

// N of <custom_token_N>.
constexpr int kBeginOfSpeech = 1;
constexpr int kEndOfSpeech = 2;
constexpr int kBeginOfHuman = 3;
constexpr int kEndOfHuman = 4;
constexpr int kBeginOfModel = 5;
constexpr int kFirstCode = 10;
constexpr std::string_view kEndOfText = "<|eot_id|>";

Result<TokenId> find(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  // Published as added tokens, but not always as special ones.
  if (const std::optional<TokenId> special = tokenizer.special_id(text)) return *special;
  const std::vector<TokenId> tokens = tokenizer.encode(text);
  if (tokens.size() == 1 && tokenizer.bytes(tokens[0]) == text) return tokens[0];
  return Error{
      ErrorCode::kUnsupported,
      fmt::format("the vocabulary has no token {}: it is not that of an Orpheus model", text), ""};
}

std::string custom_token(int number) {
  return fmt::format("<custom_token_{}>", number);
}

}  // namespace

Result<AudioTokens> AudioTokens::of(const tokenizer::Tokenizer& tokenizer, int book_size,
                                    int vocab_size) {
  AudioTokens made;
  made.book_size_ = book_size;
  made.vocab_size_ = vocab_size;
  TRY_ASSIGN(made.base_, find(tokenizer, custom_token(0)));
  TRY_ASSIGN(made.end_of_text_, find(tokenizer, kEndOfText));
  const int last = kFirstCode + static_cast<int>(kFrameTokens) * book_size - 1;
  for (const int number : {kBeginOfSpeech, kEndOfSpeech, kBeginOfHuman, kEndOfHuman, kBeginOfModel,
                           kFirstCode, last}) {
    TRY_ASSIGN(const TokenId token, find(tokenizer, custom_token(number)));
    if (token == made.base_ + number && token < vocab_size) continue;
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{} is token {}; with {} at {} it should be {}, of the model's {}",
                             custom_token(number), token, custom_token(0), made.base_,
                             made.base_ + number, vocab_size),
                 ""};
  }
  if (made.end_of_text_ >= vocab_size) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{} is token {} of a model with {}", kEndOfText, made.end_of_text_, vocab_size),
        ""};
  }
  made.stops_ = {made.base_ + kEndOfSpeech, made.end_of_text_};
  return made;
}

std::vector<TokenId> AudioTokens::prompt(const tokenizer::Tokenizer& tokenizer,
                                         std::string_view voice, std::string_view text) const {
  std::vector<TokenId> tokens = {base_ + kBeginOfHuman};
  const std::vector<TokenId> said = tokenizer.encode_prompt(fmt::format("{}: {}", voice, text));
  tokens.insert(tokens.end(), said.begin(), said.end());
  tokens.insert(tokens.end(),
                {end_of_text_, base_ + kEndOfHuman, base_ + kBeginOfModel, base_ + kBeginOfSpeech});
  return tokens;
}

std::optional<int> AudioTokens::code(TokenId token, size_t index) const {
  const auto slot = static_cast<int>(index % kFrameTokens);
  const int code = token - base_ - kFirstCode - book_size_ * slot;
  if (code < 0 || code >= book_size_) return std::nullopt;
  return code;
}

bool AudioTokens::is_stop(TokenId token) const {
  return std::ranges::find(stops_, token) != stops_.end();
}

std::shared_ptr<const grammar::GrammarFsm> AudioTokens::grammar() const {
  using Segment = grammar::GrammarFsm::Segment;
  grammar::GrammarFsm::Parts parts;
  parts.vocab_size = vocab_size_;
  // No slot has text: the tree of texts is empty.
  parts.trie = std::make_shared<const grammar::TokenTrie>(std::span<const std::string_view>());
  for (int slot = 0; slot < static_cast<int>(kFrameTokens); ++slot) {
    Segment segment{.text = Segment::Text::kNone};
    const int next = (slot + 1) % static_cast<int>(kFrameTokens);
    for (int code = 0; code < book_size_; ++code) {
      segment.exits.push_back({base_ + kFirstCode + book_size_ * slot + code, {next}});
    }
    for (const TokenId stop : stops_) segment.exits.push_back({stop, {}});
    parts.segments.push_back(std::move(segment));
  }
  parts.starts = {0};
  return std::make_shared<const grammar::GrammarFsm>(std::move(parts));
}

}  // namespace pelton::speech
