#include "server/response_output.h"

#include <algorithm>
#include <utility>

#include "server/chat_choice.h"
#include "server/item_reference.h"

namespace pelton::server {

using api::OutputItem;

ResponseOutput::ResponseOutput(const ServedModel& model, Options options)
    : model_(model),
      options_(std::move(options)),
      events_(options_.framing.value_or(api::ResponseEvents::Framing::kServerSent)) {
  next_round();
}

void ResponseOutput::next_round() {
  if (reader_) past_reasoning_ += reader_->reasoning_tokens();
  round_first_ = items_.size();
  const bool may_call = options_.may_call || options_.runs_builtins;
  reader_.emplace(model_.chat->parser(
                      {may_call ? chat::Calls::kRead : chat::Calls::kAsText, options_.functions}),
                  chat::ReplyReader::Options{.callable = may_call,
                                             .builtins_alone = !options_.may_call,
                                             .one_call = options_.one_call});
}

void ResponseOutput::end_call(std::string_view logs, bool failed) {
  open_call_ = false;
  OutputItem& item = items_.back();
  if (item.kind == Kind::kCode && options_.code_outputs) item.logs = logs;
  close_item(failed ? OutputItem::Status::kFailed : OutputItem::Status::kCompleted);
}

void ResponseOutput::give_up_call() {
  open_call_ = false;
  close_item(OutputItem::Status::kIncomplete);
}

void ResponseOutput::open(const std::vector<TokenId>& opening) {
  for (const TokenId token : opening) {
    reader_->push(token, parsed_);
    apply_events();
  }
}

void ResponseOutput::push(const engine::SampledToken& token) {
  if (stopped_) return;
  ++sampled_tokens_;
  const size_t text_offset = item_open_ ? message_sampled_ : 0;
  plain_.clear();
  const bool is_plain = reader_->push_plain(token.token, plain_);
  if (!is_plain) reader_->push(token.token, parsed_);
  const std::optional<chat::PartKind> part = reader_->token_part();
  const bool of_message = part == chat::PartKind::kAnswer || part == chat::PartKind::kPreamble;
  if (options_.logprobs && of_message) {
    held_logprobs_.push_back({text_offset, token_logprobs(model_.tokenizer, token)});
  }
  if (!is_plain) return apply_events();
  if (!plain_.empty()) add_text(plain_);
}

void ResponseOutput::cut_off() {
  if (stopped_) return;
  cut_off_ = true;
  reader_->cut_off(parsed_);
  apply_events();
}

void ResponseOutput::finish(chat::StopCause cause) {
  if (stopped_) return;
  cut_off_ = cause == chat::StopCause::kLength;
  reader_->finish(parsed_);
  apply_events();
}

void ResponseOutput::apply_events() {
  for (chat::ReplyEvent& event : parsed_) {
    if (stopped_ || open_call_) break;  // what stands behind either is not shown
    if (auto* part = std::get_if<chat::PartBegin>(&event)) {
      begin(*part);
    } else if (const auto* text = std::get_if<chat::PartText>(&event)) {
      add_text(text->text);
    } else {
      end(std::get<chat::PartEnd>(event));
    }
  }
  parsed_.clear();
}

void ResponseOutput::begin(chat::PartBegin& part) {
  switch (part.kind) {
    case chat::PartKind::kCall:
      return begin_call(part);
    case chat::PartKind::kReasoning:
      return begin_item({.kind = Kind::kReasoning,
                         .id = new_id("rs_"),
                         .has_summary = options_.reasoning_summary});
    default:
      begin_item({.kind = Kind::kMessage,
                  .commentary = part.kind == chat::PartKind::kPreamble && !part.call_as_text,
                  .open_phase = part.may_lead && options_.may_call,
                  .id = new_id("msg_")});
      if (!options_.stop.strings.empty()) stop_filter_.emplace(options_.stop);
  }
}

void ResponseOutput::begin_call(chat::PartBegin& part) {
  const bool is_run = part.call.is_builtin && options_.runs_builtins;
  const bool is_code = part.call.name == "python";
  const Kind kind = !is_run ? Kind::kCall : is_code ? Kind::kCode : Kind::kWebSearch;
  begin_item({.kind = kind,
              .id = new_id(!is_run   ? "fc_"
                           : is_code ? "ci_"
                                     : "ws_"),
              .call_id = new_id("call_"),
              .name = std::move(part.call.name)});
}

void ResponseOutput::begin_item(OutputItem item) {
  items_.push_back(std::move(item));
  item_open_ = true;
  emitted_text_ = emitted_logprobs_ = message_sampled_ = 0;
  if (streams()) events_.item_begins({items_.back(), items_.size() - 1}, pending_);
}

void ResponseOutput::add_text(std::string_view text) {
  message_sampled_ += text.size();
  if (!stop_filter_) return show(text);
  scratch_.clear();
  stop_filter_->push(text, sampled_tokens_, scratch_);
  show(scratch_);
  if (!stop_filter_->stopped()) return;
  stopped_ = true;
  close_item(OutputItem::Status::kCompleted);
}

void ResponseOutput::show(std::string_view text) {
  items_.back().text += text;
  if (!held_logprobs_.empty()) release_logprobs(items_.back().text.size());
}

void ResponseOutput::end(chat::PartEnd part_end) {
  using By = chat::PartEnd::By;
  const By by = part_end.by;
  if (stop_filter_) {
    scratch_.clear();
    stop_filter_->finish(scratch_);
    show(scratch_);
    stopped_ = stop_filter_->stopped();
  }
  // Half a code point's tokens may stand at the very end, with no text of their own.
  if (!stopped_) release_logprobs(items_.back().text.size() + 1);
  const bool of_call = !items_.back().has_parts();
  if (items_.back().is_builtin_call() && by == By::kModel) {
    item_open_ = false;
    open_call_ = true;
    if (!streams()) return;
    emit_text();
    return events_.call_runs({items_.back(), items_.size() - 1}, pending_);
  }
  if (part_end.call_follows && !stopped_) items_.back().commentary = true;
  const bool whole = of_call ? by == By::kModel : by != By::kEndOfStream || !cut_off_;
  close_item(whole ? OutputItem::Status::kCompleted : OutputItem::Status::kIncomplete);
}

void ResponseOutput::close_item(OutputItem::Status status) {
  item_open_ = false;
  stop_filter_.reset();
  held_logprobs_.clear();
  items_.back().status = status;
  if (items_.back().kind == Kind::kReasoning && options_.encrypt_reasoning) {
    items_.back().encrypted_content = options_.encrypt_reasoning(items_.back().text);
  }
  if (!streams()) return;
  emit_text();
  events_.item_ends({items_.back(), items_.size() - 1}, pending_);
}

// Those of tokens whose text has begun to come out.
void ResponseOutput::release_logprobs(size_t text_end) {
  auto held = held_logprobs_.begin();
  while (held != held_logprobs_.end() && held->text_offset < text_end) {
    items_.back().logprobs.push_back(std::move(held->logprobs));
    ++held;
  }
  held_logprobs_.erase(held_logprobs_.begin(), held);
}

void ResponseOutput::emit_text() {
  const OutputItem& item = items_.back();
  if (emitted_text_ == item.text.size() && emitted_logprobs_ == item.logprobs.size()) return;
  events_.text_grows({item, items_.size() - 1}, std::string_view(item.text).substr(emitted_text_),
                     std::span(item.logprobs).subspan(emitted_logprobs_), pending_);
  emitted_text_ = item.text.size();
  emitted_logprobs_ = item.logprobs.size();
}

void ResponseOutput::take_events(std::string& out) {
  if (item_open_ && streams()) emit_text();
  out += pending_;
  pending_.clear();
}

std::string ResponseOutput::new_id(std::string_view prefix) {
  return item_id(prefix, options_.response_id,
                 {.part = ItemNumber::Part::kOutput, .count = ids_++});
}

}  // namespace pelton::server
