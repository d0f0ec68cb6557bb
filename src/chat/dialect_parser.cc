#include "chat/dialect_parser.h"

#include <algorithm>
#include <utility>

#include "chat/json_extent.h"

namespace pelton::chat {
namespace {

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

// Of a section: one that is written in tags may be JSON all the same, where a grammar had it so.
bool begins_with_json(std::string_view section) {
  const size_t first = section.find_first_not_of(kJsonSpace);
  return first != std::string_view::npos && section[first] == '{';
}

}  // namespace

DialectParser::DialectParser(const tokenizer::Tokenizer& tokenizer, const Dialect& dialect,
                             ParserOptions options)
    : tokenizer_(tokenizer), dialect_(dialect), options_(std::move(options)) {
  for (const std::string_view marker :
       {dialect_.reasoning.begin, dialect_.reasoning.end, dialect_.calls->opening}) {
    if (!marker.empty()) marker_starts_ += marker[0];
  }
}

void DialectParser::push(TokenId token, Events& events) {
  token_was_text_ = marked_ = false;
  if (dialect_.stops_at(token) || token == dialect_.turn_start) return push_control(token, events);
  // A marker is read as its text, also where it is a control token.
  if (tokenizer_.is_special(token) && !dialect_.is_marker(token)) {
    ++repair_count_;
    return;
  }
  std::string text;
  decoder_.push(tokenizer_.bytes(token), text);
  read(text, events);
  token_was_text_ = place_.has_value() && place_ != PartKind::kCall && !marked_;
}

bool DialectParser::push_plain(TokenId token, std::string& text) {
  if (!part_open_ || after_marker_ || !held_.empty() || !space_.empty()) return false;
  if (state_ != State::kReasoning && state_ != State::kContent) return false;
  if (dialect_.stops_at(token) || tokenizer_.is_special(token)) return false;
  const std::string_view bytes = tokenizer_.bytes(token);
  const bool plain = !bytes.empty() &&
                     bytes.find_first_of(marker_starts_) == std::string_view::npos &&
                     kJsonSpace.find(bytes.back()) == std::string_view::npos;
  if (!plain) return false;
  token_was_text_ = true;
  decoder_.push(bytes, text);
  return true;
}

void DialectParser::settle(Events& events) {
  if (state_ != State::kContent && state_ != State::kReasoning) return;
  // Of what may be the beginning of a call it is not known yet that it is text.
  const bool is_undecided = state_ == State::kContent && after_marker_;
  if (is_undecided && dialect_.calls->begins != nullptr) return;
  emit(std::exchange(held_, {}), events);
}

void DialectParser::finish(Events& events) {
  token_was_text_ = false;
  end_turn(PartEnd::By::kEndOfStream, events);
}

void DialectParser::push_control(TokenId token, Events& events) {
  if (token == dialect_.turn_start) {
    ++repair_count_;
    end_turn(PartEnd::By::kNextPart, events);
    return enter(State::kRole);
  }
  end_turn(PartEnd::By::kModel, events);
}

// Half a code point or a marker that was begun is text after all.
void DialectParser::end_turn(PartEnd::By by, Events& events) {
  std::string rest;
  decoder_.finish(rest);
  read(rest, events);
  if (state_ == State::kCalls) {
    end_calls(by == PartEnd::By::kModel ? SectionEnd::kByModel : SectionEnd::kCutOff, events);
  }
  const std::string last = std::exchange(held_, {});
  if (state_ == State::kRole) {
    if (!last.empty()) ++repair_count_;
  } else if (state_ != State::kBegin || !last.empty() || first_turn_) {
    // Behind a turn's end a line ends, and that is no text.
    if (state_ == State::kBegin) state_ = State::kContent;
    emit(last, events);
  }
  close({.by = by}, events);
  enter(State::kBegin);
  first_turn_ = answered_ = false;
}

void DialectParser::read(std::string_view text, Events& events) {
  if (text.empty()) return;
  const std::string all = std::exchange(held_, {}).append(text);
  std::string_view left = all;
  while (!left.empty()) {
    const State before = state_;
    const size_t done = read_in_state(left, events);
    left.remove_prefix(done);
    if (done == 0 && state_ == before) break;
  }
  held_ = left;
}

size_t DialectParser::read_in_state(std::string_view text, Events& events) {
  switch (state_) {
    case State::kRole:
      return read_role(text, events);
    case State::kBegin:
      return read_begin(text, events);
    case State::kReasoning:
      return read_reasoning(text, events);
    case State::kContent:
      return read_content(text, events);
    case State::kCalls:
      return read_call_text(text, events);
    case State::kOther:
      emit(text, events);
      return text.size();
  }
  return text.size();
}

size_t DialectParser::read_role(std::string_view text, Events& events) {
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

size_t DialectParser::read_begin(std::string_view text, Events&) {
  const size_t begin = std::min(text.find_first_not_of(kJsonSpace), text.size());
  if (begin > 0) {
    space_ += text.substr(0, begin);
    return begin;
  }
  const auto& [think, think_end] = dialect_.reasoning;
  if (dialect_.reasoning.marks()) {
    if (text.starts_with(think)) {
      enter(State::kReasoning);
      after_marker_ = marked_ = true;
      return think.size();
    }
    if (text.starts_with(think_end)) {
      enter(State::kContent);
      after_marker_ = marked_ = true;
      return think_end.size();
    }
    if (may_become(text, think) || may_become(text, think_end)) return 0;
  }
  const bool reads_calls = options_.calls == Calls::kRead && dialect_.calls->begins != nullptr;
  const BeginsCall begins = reads_calls ? dialect_.calls->begins(text) : BeginsCall::kNo;
  if (begins == BeginsCall::kUndecided && text.size() <= kRoleBytesMax) return 0;
  if (begins == BeginsCall::kYes) {
    begin_calls("");
    return 0;
  }
  std::string space = std::move(space_);
  enter(State::kContent);
  space_ = std::move(space);  // of a plain answer it is text
  return 0;
}

size_t DialectParser::read_reasoning(std::string_view text, Events& events) {
  const auto& [think, think_end] = dialect_.reasoning;
  if (after_marker_) {  // where the prompt has opened it, the model may do so once more
    const size_t begin = std::min(text.find_first_not_of('\n'), text.size());
    const std::string_view behind = text.substr(begin);
    if (behind.starts_with(think)) {
      marked_ = true;
      return begin + think.size();
    }
    if (may_become(behind, think)) return begin;
  }
  const size_t end = text.find(think_end);
  if (end == std::string_view::npos) {
    const size_t done = text.size() - begun_marker(text, think_end);
    add_text(text.substr(0, done), events);
    return done;
  }
  add_text(text.substr(0, end), events);
  close({.by = PartEnd::By::kModel}, events);
  enter(State::kContent);
  after_marker_ = marked_ = true;
  return end + think_end.size();
}

size_t DialectParser::read_content(std::string_view text, Events& events) {
  // Behind the reasoning, as at the turn's beginning, a call may begin without a marker.
  if (after_marker_ && options_.calls == Calls::kRead && dialect_.calls->begins != nullptr) {
    const size_t begin = std::min(text.find_first_not_of('\n'), text.size());
    if (begin > 0) return begin;
    const BeginsCall begins = dialect_.calls->begins(text);
    if (begins == BeginsCall::kUndecided && text.size() <= kRoleBytesMax) return 0;
    if (begins == BeginsCall::kYes) {
      begin_calls("");
      marked_ = true;
      return 0;
    }
  }
  const std::string_view opening = dialect_.calls->opening;
  if (options_.calls == Calls::kAsText || opening.empty()) {
    add_text(text, events);
    return text.size();
  }
  const size_t end = text.find(opening);
  if (end == std::string_view::npos) {
    const size_t done = text.size() - begun_marker(text, opening);
    add_text(text.substr(0, done), events);
    return done;
  }
  add_text(text.substr(0, end), events);
  begin_calls(opening);
  marked_ = true;
  return end + opening.size();
}

void DialectParser::begin_calls(std::string_view opening) {
  state_ = State::kCalls;
  place_ = PartKind::kCall;
  calls_.clear();
  opening_ = opening;
  calls_read_ = 0;
  in_string_ = escaped_ = false;
}

// The closing marker within a string of JSON is text of that string. What has a raw line break in a
// string is no JSON, and is not read as such.
size_t DialectParser::read_call_text(std::string_view text, Events& events) {
  const std::string_view closing = dialect_.calls->closing;
  calls_ += text;
  for (; !closing.empty() && calls_read_ < calls_.size(); ++calls_read_) {
    const char c = calls_[calls_read_];
    if (in_string_) {
      const bool ends = (c == '"' && !escaped_) || static_cast<unsigned char>(c) < 0x20;
      escaped_ = c == '\\' && !escaped_;
      if (ends) in_string_ = false;
      continue;
    }
    escaped_ = false;
    in_string_ = c == '"' && (dialect_.calls->json_strings || begins_with_json(calls_));
    if (c != closing[0]) continue;
    const std::string_view behind = std::string_view(calls_).substr(calls_read_);
    if (may_become(behind, closing)) return text.size();  // to be decided
    if (!behind.starts_with(closing)) continue;
    const size_t left = behind.size() - closing.size();
    calls_.resize(calls_read_);
    end_calls(SectionEnd::kClosed, events);
    return text.size() - left;
  }
  if (calls_.size() > kCallBytesMax) end_calls(SectionEnd::kCutOff, events);
  return text.size();
}

void DialectParser::end_calls(SectionEnd end, Events& events) {
  const std::string text = std::exchange(calls_, {});
  const CallSyntax& syntax = *dialect_.calls;
  state_ = State::kContent;
  place_ = part_open_ ? std::optional(PartKind::kAnswer) : std::nullopt;
  marked_ = true;
  const bool is_regular =
      end == SectionEnd::kClosed || (end == SectionEnd::kByModel && syntax.closing.empty());
  if (!is_regular) ++repair_count_;
  std::optional<WrittenCalls> written;
  if (text.size() <= kCallBytesMax) {
    written = syntax.read({.text = text, .end = end, .functions = options_.functions.get()});
  }
  if (written) {
    for (WrittenCall& call : written->calls) emit_call(std::move(call), events);
    after_marker_ = true;
    return add_text(without_control_tokens(std::move(written->rest)), events);
  }
  const bool is_closed = end == SectionEnd::kClosed;
  if (!opening_.empty() && is_closed) ++repair_count_;
  std::string whole = opening_;
  whole += text;
  if (is_closed) whole += syntax.closing;
  after_marker_ = false;
  emit(without_control_tokens(std::move(whole)), events);
}

// A marker that is a control token is never text.
std::string DialectParser::without_control_tokens(std::string text) const {
  for (const TokenId id : dialect_.marker_tokens) {
    const std::string_view marker = tokenizer_.bytes(id);
    std::string kept;
    size_t begin = 0;
    for (size_t at = text.find(marker); at != std::string::npos; at = text.find(marker, begin)) {
      kept.append(text, begin, at - begin);
      begin = at + marker.size();
    }
    if (begin > 0) text = kept.append(text, begin);
  }
  return text;
}

void DialectParser::emit_call(WrittenCall call, Events& events) {
  space_.clear();
  close({.by = PartEnd::By::kModel, .call_follows = true}, events);
  events.emplace_back(
      PartBegin{.kind = PartKind::kCall,
                .call = {.name = call.name, .recipient = call.name, .is_function = true}});
  if (!call.arguments.empty()) events.emplace_back(PartText{std::move(call.arguments)});
  events.emplace_back(PartEnd{call.complete ? PartEnd::By::kModel : PartEnd::By::kEndOfStream});
}

// Text of the open part, or of one that begins with it; whitespace at its end waits.
void DialectParser::add_text(std::string_view text, Events& events) {
  if (after_marker_) {
    const size_t begin = std::min(text.find_first_not_of('\n'), text.size());
    text.remove_prefix(begin);
    if (text.empty()) return;
    after_marker_ = false;
  }
  const std::string_view waits = state_ == State::kReasoning ? "\n" : kJsonSpace;
  const size_t end = text.find_last_not_of(waits) + 1;
  if (end > 0) emit(text.substr(0, end), events);
  space_ += text.substr(end);
}

// Behind the whitespace that has waited.
void DialectParser::emit(std::string_view text, Events& events) {
  std::string all = std::exchange(space_, {});
  all += text;
  if (all.empty()) return;
  if (!part_open_) {
    open(state_ == State::kReasoning ? PartKind::kReasoning : PartKind::kAnswer, events);
  }
  events.emplace_back(PartText{std::move(all)});
}

void DialectParser::open(PartKind kind, Events& events) {
  part_open_ = true;
  place_ = kind;
  PartBegin begin{.kind = kind};
  if (kind == PartKind::kAnswer) {
    begin.continues = std::exchange(answered_, true);
    begin.may_lead = options_.calls == Calls::kRead && dialect_.calls->read != nullptr;
  }
  events.emplace_back(std::move(begin));
}

void DialectParser::close(PartEnd end, Events& events) {
  place_.reset();
  if (std::exchange(part_open_, false)) events.emplace_back(end);
}

void DialectParser::enter(State state) {
  state_ = state;
  after_marker_ = false;
  space_.clear();
  place_.reset();
  if (state == State::kReasoning) place_ = PartKind::kReasoning;
}

}  // namespace pelton::chat
