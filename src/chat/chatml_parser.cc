#include "chat/chatml_parser.h"

#include <algorithm>
#include <utility>

#include "chat/chatml_call.h"

namespace pelton::chat {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// How many bytes at the end of `text` may be the beginning of `marker`.
size_t begun_marker(std::string_view text, std::string_view marker) {
  for (size_t size = std::min(text.size(), marker.size() - 1); size > 0; --size) {
    if (text.ends_with(marker.substr(0, size))) return size;
  }
  return 0;
}

bool may_become(std::string_view text, std::string_view marker) {
  return text.size() < marker.size() && marker.starts_with(text);
}

}  // namespace

void ChatMlParser::push(TokenId token, Events& events) {
  token_was_text_ = marked_ = false;
  if (tokens_.stops(token) || token == tokens_.start) return push_control(token, events);
  // A marker is read as its text, also where it is a control token.
  const bool is_marker = token == tokens_.think || token == tokens_.think_end ||
                         token == tokens_.tool_call || token == tokens_.tool_call_end;
  if (tokenizer_.is_special(token) && !is_marker) {
    ++repair_count_;
    return;
  }
  std::string text;
  decoder_.push(tokenizer_.bytes(token), text);
  read(text, events);
  token_was_text_ = place_.has_value() && place_ != PartKind::kCall && !marked_;
}

bool ChatMlParser::push_plain(TokenId token, std::string& text) {
  if (!part_open_ || after_marker_ || !held_.empty() || !space_.empty()) return false;
  if (state_ != State::kReasoning && state_ != State::kContent) return false;
  if (tokens_.stops(token) || tokenizer_.is_special(token)) return false;
  const std::string_view bytes = tokenizer_.bytes(token);
  const bool plain = !bytes.empty() && bytes.find('<') == std::string_view::npos &&
                     kSpace.find(bytes.back()) == std::string_view::npos;
  if (!plain) return false;
  token_was_text_ = true;
  decoder_.push(bytes, text);
  return true;
}

void ChatMlParser::finish(Events& events) {
  token_was_text_ = false;
  end_turn(PartEnd::By::kEndOfStream, events);
}

void ChatMlParser::push_control(TokenId token, Events& events) {
  if (token == tokens_.start) {
    ++repair_count_;
    end_turn(PartEnd::By::kNextPart, events);
    return enter(State::kRole);
  }
  end_turn(PartEnd::By::kModel, events);
}

// Half a code point or a marker that was begun is text after all.
void ChatMlParser::end_turn(PartEnd::By by, Events& events) {
  std::string rest;
  decoder_.finish(rest);
  read(rest, events);
  if (state_ == State::kCall) {
    end_call(by == PartEnd::By::kModel ? Ended::kByModel : Ended::kCutOff, events);
  }
  const std::string last = std::exchange(held_, {});
  if (state_ == State::kRole) {
    if (!last.empty()) ++repair_count_;
  } else if (state_ != State::kBegin || !last.empty() || first_turn_) {
    // Behind a turn's end a line ends, and that is no text.
    if (state_ == State::kBegin) state_ = State::kContent;
    emit(last, events);
  }
  close(by, events);
  enter(State::kBegin);
  first_turn_ = false;
}

void ChatMlParser::read(std::string_view text, Events& events) {
  if (text.empty()) return;
  const std::string all = std::exchange(held_, {}).append(text);
  std::string_view left = all;
  while (!left.empty()) {
    const State before = state_;
    size_t done = 0;
    switch (state_) {
      case State::kRole:
        done = read_role(left, events);
        break;
      case State::kBegin:
        done = read_begin(left, events);
        break;
      case State::kReasoning:
        done = read_reasoning(left, events);
        break;
      case State::kContent:
        done = read_content(left, events);
        break;
      case State::kCall:
        done = read_call_text(left, events);
        break;
      case State::kOther:
        emit(left, events);
        done = left.size();
        break;
    }
    left.remove_prefix(done);
    if (done == 0 && state_ == before) break;
  }
  held_ = left;
}

size_t ChatMlParser::read_role(std::string_view text, Events& events) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) {
    if (text.size() <= kRoleBytesMax) return 0;
    enter(State::kContent);  // no name
    return 0;
  }
  if (text.substr(0, end) == "assistant") {
    enter(State::kBegin);
  } else {
    enter(State::kOther);
    open(PartKind::kOther, events);
  }
  return end + 1;
}

size_t ChatMlParser::read_begin(std::string_view text, Events&) {
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  if (begin > 0) {
    space_ += text.substr(0, begin);
    return begin;
  }
  if (text.starts_with(kThink)) {
    enter(State::kReasoning);
    after_marker_ = marked_ = true;
    return kThink.size();
  }
  if (text.starts_with(kThinkEnd)) {
    enter(State::kContent);
    after_marker_ = marked_ = true;
    return kThinkEnd.size();
  }
  if (may_become(text, kThink) || may_become(text, kThinkEnd)) return 0;
  std::string space = std::move(space_);
  enter(State::kContent);
  space_ = std::move(space);  // of a plain answer it is text
  return 0;
}

size_t ChatMlParser::read_reasoning(std::string_view text, Events& events) {
  const size_t end = text.find(kThinkEnd);
  if (end == std::string_view::npos) {
    const size_t done = text.size() - begun_marker(text, kThinkEnd);
    add_text(text.substr(0, done), events);
    return done;
  }
  add_text(text.substr(0, end), events);
  close(PartEnd::By::kModel, events);
  enter(State::kContent);
  after_marker_ = marked_ = true;
  return end + kThinkEnd.size();
}

size_t ChatMlParser::read_content(std::string_view text, Events& events) {
  if (calls_ == Calls::kAsText) {
    add_text(text, events);
    return text.size();
  }
  const size_t end = text.find(kToolCall);
  if (end == std::string_view::npos) {
    const size_t done = text.size() - begun_marker(text, kToolCall);
    add_text(text.substr(0, done), events);
    return done;
  }
  add_text(text.substr(0, end), events);
  state_ = State::kCall;
  place_ = PartKind::kCall;
  call_.clear();
  call_read_ = 0;
  in_string_ = escaped_ = false;
  marked_ = true;
  return end + kToolCall.size();
}

// The end marker within a string of the JSON is text of that string. What has a raw line break in a
// string is no JSON, and is not read as such.
size_t ChatMlParser::read_call_text(std::string_view text, Events& events) {
  call_ += text;
  for (; call_read_ < call_.size(); ++call_read_) {
    const char c = call_[call_read_];
    if (in_string_) {
      const bool ends = (c == '"' && !escaped_) || static_cast<unsigned char>(c) < 0x20;
      escaped_ = c == '\\' && !escaped_;
      if (ends) in_string_ = false;
      continue;
    }
    escaped_ = false;
    in_string_ = c == '"';
    if (c != '<') continue;
    const std::string_view behind = std::string_view(call_).substr(call_read_);
    if (may_become(behind, kToolCallEnd)) return text.size();  // to be decided
    if (!behind.starts_with(kToolCallEnd)) continue;
    const size_t left = behind.size() - kToolCallEnd.size();
    call_.resize(call_read_);
    end_call(Ended::kClosed, events);
    return text.size() - left;
  }
  if (call_.size() > kCallBytesMax) end_call(Ended::kCutOff, events);
  return text.size();
}

void ChatMlParser::end_call(Ended ended, Events& events) {
  const std::string text = std::exchange(call_, {});
  state_ = State::kContent;
  place_ = part_open_ ? std::optional(PartKind::kAnswer) : std::nullopt;
  marked_ = true;
  if (ended != Ended::kClosed) ++repair_count_;
  const bool may_be_cut = ended == Ended::kCutOff && text.size() <= kCallBytesMax;
  if (std::optional<ChatMlCall> call = read_call(text)) {
    return tell_call(std::move(call->name), std::move(call->arguments), PartEnd::By::kModel,
                     events);
  }
  if (std::optional<ChatMlCall> cut = may_be_cut ? read_cut_call(text) : std::nullopt) {
    return tell_call(std::move(cut->name), std::move(cut->arguments), PartEnd::By::kEndOfStream,
                     events);
  }
  std::string whole(kToolCall);
  whole += text;
  if (ended == Ended::kClosed) {
    ++repair_count_;
    whole += kToolCallEnd;
  }
  after_marker_ = false;
  emit(whole, events);
}

void ChatMlParser::tell_call(std::string name, std::string arguments, PartEnd::By by,
                             Events& events) {
  space_.clear();
  close(PartEnd::By::kModel, events);
  events.emplace_back(PartBegin{.kind = PartKind::kCall,
                                .call = {.name = name, .recipient = name, .is_function = true}});
  if (!arguments.empty()) events.emplace_back(PartText{std::move(arguments)});
  events.emplace_back(PartEnd{by});
  after_marker_ = true;
}

// Text of the open part, or of one that begins with it; whitespace at its end waits.
void ChatMlParser::add_text(std::string_view text, Events& events) {
  if (after_marker_) {
    const size_t begin = std::min(text.find_first_not_of('\n'), text.size());
    text.remove_prefix(begin);
    if (text.empty()) return;
    after_marker_ = false;
  }
  const std::string_view waits = state_ == State::kReasoning ? "\n" : kSpace;
  const size_t end = text.find_last_not_of(waits) + 1;
  if (end > 0) emit(text.substr(0, end), events);
  space_ += text.substr(end);
}

// Behind the whitespace that has waited.
void ChatMlParser::emit(std::string_view text, Events& events) {
  std::string all = std::exchange(space_, {});
  all += text;
  if (all.empty()) return;
  if (!part_open_) {
    open(state_ == State::kReasoning ? PartKind::kReasoning : PartKind::kAnswer, events);
  }
  events.emplace_back(PartText{std::move(all)});
}

void ChatMlParser::open(PartKind kind, Events& events) {
  part_open_ = true;
  place_ = kind;
  events.emplace_back(PartBegin{.kind = kind});
}

void ChatMlParser::close(PartEnd::By by, Events& events) {
  place_.reset();
  if (std::exchange(part_open_, false)) events.emplace_back(PartEnd{by});
}

void ChatMlParser::enter(State state) {
  state_ = state;
  after_marker_ = false;
  space_.clear();
  place_.reset();
  if (state == State::kReasoning) place_ = PartKind::kReasoning;
}

}  // namespace pelton::chat
