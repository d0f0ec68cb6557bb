#include "chat/harmony_parser.h"

#include <utility>

#include "base/check.h"

namespace pelton::chat {

HarmonyParser::HarmonyParser(const tokenizer::Tokenizer& tokenizer, const HarmonyTokens& tokens,
                             const Options& options)
    : tokenizer_(tokenizer), tokens_(tokens), options_(options) {
  header_tokens_.reserve(kHeaderTokensMax);
  if (options.start == Start::kAssistantHeader) open_header(Role::kAssistant);
}

void HarmonyParser::push(TokenId token, std::vector<HarmonyEvent>& events) {
  token_was_text_ = false;
  switch (state_) {
    case State::kBetween:
      return push_between(token, events);
    case State::kHeader:
      return push_header(token, events);
    case State::kText:
      return push_text(token, events);
    case State::kFinished:
      CHECK(false, "a token after the end of the stream");
  }
}

bool HarmonyParser::push_plain(TokenId token, std::string& text) {
  if (state_ != State::kText || tokens_.ends_message(token) || token == tokens_.start ||
      token == tokens_.channel || tokenizer_.is_special(token)) {
    return false;
  }
  token_was_text_ = true;
  decoder_.push(tokenizer_.bytes(token), text);
  return true;
}

void HarmonyParser::finish(std::vector<HarmonyEvent>& events) {
  token_was_text_ = false;
  if (state_ == State::kHeader && !header_tokens_.empty()) {
    ++repair_count_;
    give_up_header(Ending::kCutOff, events);
  }
  if (state_ == State::kText) end_message(MessageEnd::By::kEndOfStream, events);
  state_ = State::kFinished;
}

void HarmonyParser::push_between(TokenId token, std::vector<HarmonyEvent>& events) {
  if (token == tokens_.start) return open_header(std::nullopt);
  ++repair_count_;
  if (token == tokens_.channel) {  // "<|start|>assistant" was left out
    open_header(Role::kAssistant);
    collect_header(token, events);
  } else if (token == tokens_.message) {
    begin_message({}, events);
  } else if (!tokenizer_.is_special(token) && !tokenizer_.bytes(token).empty()) {
    open_header(std::nullopt);
    collect_header(token, events);
  }
}

void HarmonyParser::push_header(TokenId token, std::vector<HarmonyEvent>& events) {
  if (token == tokens_.message) {
    begin_message(parse_header({.ids = header_tokens_, .role = header_role_}, options_.dialect,
                               tokenizer_, tokens_),
                  events);
  } else if (tokens_.ends_message(token)) {
    ++repair_count_;
    if (give_up_header(Ending::kByModel, events)) end_message(ended_by(token), events);
    state_ = State::kBetween;
  } else if (token == tokens_.start) {
    // Its own "<|start|>assistant", after the prompt's, is no loss; words before it would be.
    ++repair_count_;
    if (give_up_header(Ending::kByModel, events)) {
      end_message(MessageEnd::By::kNextMessage, events);
    }
    open_header(std::nullopt);
  } else {
    collect_header(token, events);
  }
}

void HarmonyParser::push_text(TokenId token, std::vector<HarmonyEvent>& events) {
  if (tokens_.ends_message(token)) {
    end_message(ended_by(token), events);
  } else if (token == tokens_.start || token == tokens_.channel) {
    ++repair_count_;
    end_message(MessageEnd::By::kNextMessage, events);
    if (token == tokens_.start) return open_header(std::nullopt);
    open_header(Role::kAssistant);
    collect_header(token, events);
  } else if (tokenizer_.is_special(token)) {
    ++repair_count_;
  } else {
    token_was_text_ = true;
    append_text(tokenizer_.bytes(token), events);
  }
}

void HarmonyParser::open_header(std::optional<Role> role) {
  state_ = State::kHeader;
  header_role_ = role;
  header_tokens_.clear();
  header_bytes_ = 0;
  header_words_ = 0;
  in_word_ = false;
  line_ended_ = false;
  text_after_line_ = false;
}

void HarmonyParser::collect_header(TokenId token, std::vector<HarmonyEvent>& events) {
  const bool is_marker = token == tokens_.channel || token == tokens_.constrain;
  if (!is_marker && tokenizer_.is_special(token)) {
    ++repair_count_;
    return;
  }
  header_tokens_.push_back(token);
  if (is_marker) {
    in_word_ = false;
  } else {
    for (const char c : tokenizer_.bytes(token)) {
      const bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
      if (!space && !in_word_) ++header_words_;
      if (!space && line_ended_) text_after_line_ = true;
      if (c == '\n' && header_words_ > 0) line_ended_ = true;
      in_word_ = !space;
      ++header_bytes_;
    }
  }
  if (header_is_plausible()) return;
  ++repair_count_;
  if (!give_up_header(Ending::kByModel, events)) begin_message({}, events);
  token_was_text_ = !is_marker;
}

bool HarmonyParser::header_is_plausible() const {
  return header_tokens_.size() < kHeaderTokensMax && header_bytes_ <= kHeaderBytesMax &&
         header_words_ <= kHeaderWordsMax && !text_after_line_;
}

namespace {

// What a header may go on with: text that the end of the stream cut off within it.
bool begins_header_word(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return false;
  text.remove_prefix(first);
  const auto begins = [text](std::string_view word) { return word.starts_with(text); };
  return begins("to=") || begins("json") || begins("code");
}

}  // namespace

bool HarmonyParser::give_up_header(Ending ending, std::vector<HarmonyEvent>& events) {
  UnclosedHeader split =
      split_unclosed_header({.ids = header_tokens_, .role = header_role_}, tokenizer_, tokens_);
  if (ending == Ending::kCutOff && begins_header_word(split.text)) split.text.clear();
  const bool has_text = split.text.find_first_not_of(" \t\r\n") != std::string::npos;
  // The stream broke off within the recipient: nobody knows how its name would have gone on.
  if (ending == Ending::kCutOff && !has_text) {
    split.header.recipient.reset();
    split.header.content_type.reset();
  }
  if (!has_text && !split.header.channel && !split.header.recipient) return false;
  begin_message(std::move(split.header), events);
  if (has_text) append_text(split.text, events);
  return true;
}

void HarmonyParser::begin_message(MessageHeader header, std::vector<HarmonyEvent>& events) {
  state_ = State::kText;
  header_ = std::move(header);
  events.emplace_back(MessageBegin{header_});
}

void HarmonyParser::end_message(MessageEnd::By by, std::vector<HarmonyEvent>& events) {
  std::string rest;
  decoder_.finish(rest);
  if (!rest.empty()) events.emplace_back(TextDelta{std::move(rest)});
  events.emplace_back(MessageEnd{by});
  state_ = State::kBetween;
}

void HarmonyParser::append_text(std::string_view bytes, std::vector<HarmonyEvent>& events) {
  std::string text;
  decoder_.push(bytes, text);
  if (!text.empty()) events.emplace_back(TextDelta{std::move(text)});
}

MessageEnd::By HarmonyParser::ended_by(TokenId token) const {
  if (token == tokens_.call) return MessageEnd::By::kCall;
  if (token == tokens_.return_) return MessageEnd::By::kReturn;
  return token == tokens_.end ? MessageEnd::By::kEnd : MessageEnd::By::kEndOfText;
}

}  // namespace pelton::chat
