#include "chat/reply_reader.h"

#include <utility>

namespace pelton::chat {

ReplyReader::ReplyReader(std::unique_ptr<TurnParser> parser, const Options& options)
    : options_(options), parser_(std::move(parser)) {}

void ReplyReader::push(TokenId token, std::vector<ReplyEvent>& events) {
  parser_->push(token, raw_);
  interpret(events);
  if (token_part() == PartKind::kReasoning) ++reasoning_tokens_;
}

void ReplyReader::settle(std::vector<ReplyEvent>& events) {
  parser_->settle(raw_);
  interpret(events);
}

void ReplyReader::cut_off(std::vector<ReplyEvent>& events) {
  parser_->finish(raw_);
  interpret(events);
  facts_.repairs = parser_->repair_count();
}

void ReplyReader::finish(std::vector<ReplyEvent>& events) {
  cut_off(events);
  facts_.text_left_out = !held_back_.empty() && seen_;
  if (seen_ || (begun_ && held_back_.empty())) return;
  // Something must be seen: what was written in another's name, or an empty answer.
  events.emplace_back(PartBegin{.kind = PartKind::kAnswer});
  if (!held_back_.empty()) events.emplace_back(PartText{std::move(held_back_)});
  events.emplace_back(PartEnd{PartEnd::By::kEndOfStream});
}

void ReplyReader::interpret(std::vector<ReplyEvent>& events) {
  for (ReplyEvent& event : raw_) {
    if (auto* part = std::get_if<PartBegin>(&event)) {
      begin(std::move(*part), events);
    } else if (auto* text = std::get_if<PartText>(&event)) {
      add_text(std::move(*text), events);
    } else {
      end(std::get<PartEnd>(event), events);
    }
  }
  raw_.clear();
}

void ReplyReader::begin(PartBegin&& part, std::vector<ReplyEvent>& events) {
  const bool callable = options_.callable && (!options_.builtins_alone || part.call.is_builtin);
  is_call_ = part.kind == PartKind::kCall && callable;
  if (part.kind == PartKind::kCall && !callable) {
    ++facts_.calls_as_text;
    part = {.kind = PartKind::kPreamble, .call_as_text = true};
  }
  const bool left_out = is_call_ && options_.one_call && calls_ > 0;
  if (left_out) ++facts_.calls_left_out;
  place_.reset();
  reasoning_due_ = part.kind == PartKind::kReasoning;
  takes_events_ = true;
  if (left_out || part.kind == PartKind::kOther) return;
  place_ = part.kind;
  if (reasoning_due_) return;  // nothing thought is no part
  takes_events_ = false;
  begun_ = true;
  if (is_call_) {
    ++calls_;
    seen_ = true;
  }
  events.emplace_back(std::move(part));
}

void ReplyReader::add_text(PartText&& text, std::vector<ReplyEvent>& events) {
  if (!place_) {
    if (is_call_) return;  // one too many
    if (held_back_.size() + text.text.size() <= kHeldBackBytesMax) held_back_ += text.text;
    return;
  }
  if (std::exchange(reasoning_due_, false)) {
    takes_events_ = false;
    begun_ = true;
    events.emplace_back(PartBegin{.kind = PartKind::kReasoning});
  }
  seen_ = true;
  events.emplace_back(std::move(text));
}

void ReplyReader::end(const PartEnd& end, std::vector<ReplyEvent>& events) {
  if (is_call_ && end.by != PartEnd::By::kModel) ++facts_.unclosed_calls;
  const bool shown = place_.has_value() && !reasoning_due_;
  place_.reset();
  reasoning_due_ = is_call_ = false;
  takes_events_ = true;
  if (shown) events.emplace_back(end);
}

}  // namespace pelton::chat
