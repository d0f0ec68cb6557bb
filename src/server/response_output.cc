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
      parser_(model.tokenizer, model.harmony, {}),
      events_(options_.framing.value_or(api::ResponseEvents::Framing::kServerSent)) {}

void ResponseOutput::open(const std::vector<TokenId>& opening) {
  for (const TokenId token : opening) {
    parser_.push(token, parsed_);
    apply_events();
  }
}

void ResponseOutput::push(const engine::SampledToken& token) {
  if (stopped_) return;
  ++sampled_tokens_;
  const size_t sampled_before = message_sampled_;
  parser_.push(token.token, parsed_);
  const bool was_text = parser_.token_was_text();
  if (was_text && (reasoning_due_ || (item_open_ && items_.back().kind == Kind::kReasoning))) {
    ++reasoning_tokens_;
  }
  const bool of_message = was_text && item_open_ && items_.back().kind == Kind::kMessage;
  if (options_.logprobs && of_message) {
    held_logprobs_.push_back({sampled_before, token_logprobs(model_.tokenizer, token)});
  }
  apply_events();
}

void ResponseOutput::cut_off() {
  if (stopped_) return;
  cut_off_ = true;
  parser_.finish(parsed_);
  apply_events();
}

void ResponseOutput::finish(chat::StopCause cause) {
  if (stopped_) return;
  cut_off_ = cause == chat::StopCause::kLength;
  parser_.finish(parsed_);
  apply_events();
  const bool seen = std::any_of(items_.begin(), items_.end(), [](const OutputItem& item) {
    return item.kind == Kind::kCall || !item.text.empty();
  });
  if (seen || (!items_.empty() && held_back_.empty())) return;
  // Something must be seen: what was written in another's name, or an empty message.
  begin_item({.kind = Kind::kMessage, .id = new_id("msg_")});
  stop_filter_.reset();
  show(held_back_);
  held_back_.clear();
  close_item(cut_off_ ? OutputItem::Status::kIncomplete : OutputItem::Status::kCompleted);
}

bool ResponseOutput::has_call() const {
  return std::any_of(items_.begin(), items_.end(),
                     [](const OutputItem& item) { return item.kind == Kind::kCall; });
}

bool ResponseOutput::well_formed() const {
  return parser_.repair_count() == 0 && held_back_.empty() && unclosed_calls_ == 0 && !retold_;
}

void ResponseOutput::apply_events() {
  for (const chat::HarmonyEvent& event : parsed_) {
    if (stopped_) break;
    if (const auto* message = std::get_if<chat::MessageBegin>(&event)) {
      begin(message->header);
    } else if (const auto* text = std::get_if<chat::TextDelta>(&event)) {
      add_text(text->text);
    } else {
      end(std::get<chat::MessageEnd>(event).by);
    }
  }
  parsed_.clear();
}

void ResponseOutput::begin(const chat::MessageHeader& header) {
  held_back_open_ = header.role != chat::Role::kAssistant;
  if (held_back_open_) return;
  const bool is_call = chat::goes_to_tool(header);
  left_out_open_ = is_call && options_.may_call && options_.one_call && has_call();
  if (left_out_open_ || (is_call && !options_.may_call)) retold_ = true;
  if (left_out_open_) return;
  if (is_call && options_.may_call) {
    chat::ToolCall call = chat::begun_call(*header.recipient);
    begin_item({.kind = Kind::kCall,
                .id = new_id("fc_"),
                .call_id = new_id("call_"),
                .name = std::move(call.name)});
  } else if (header.channel == chat::kAnalysis && !is_call) {
    reasoning_due_ = true;  // nothing thought is no item
  } else {
    begin_item({.kind = Kind::kMessage,
                .commentary = header.channel == chat::kCommentary && !is_call,
                .id = new_id("msg_")});
    if (!options_.stop.strings.empty()) stop_filter_.emplace(options_.stop);
  }
}

void ResponseOutput::begin_item(OutputItem item) {
  items_.push_back(std::move(item));
  item_open_ = true;
  told_text_ = told_logprobs_ = message_sampled_ = 0;
  if (tells()) events_.item_begins({items_.back(), items_.size() - 1}, pending_);
}

void ResponseOutput::add_text(std::string_view text) {
  if (held_back_open_) {
    const size_t size = held_back_.size() + text.size();
    if (size <= chat::ReplyBuilder::kHeldBackBytesMax) held_back_ += text;
    return;
  }
  if (left_out_open_) return;
  if (reasoning_due_) {
    reasoning_due_ = false;
    begin_item(
        {.kind = Kind::kReasoning, .id = new_id("rs_"), .has_summary = options_.reasoning_summary});
  }
  if (!stop_filter_) {
    message_sampled_ += text.size();
    return show(text);
  }
  message_sampled_ += text.size();
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

void ResponseOutput::end(chat::MessageEnd::By by) {
  using By = chat::MessageEnd::By;
  reasoning_due_ = false;
  if (std::exchange(held_back_open_, false) || std::exchange(left_out_open_, false)) return;
  if (!item_open_) return;
  if (stop_filter_) {
    scratch_.clear();
    stop_filter_->finish(scratch_);
    show(scratch_);
    stopped_ = stop_filter_->stopped();
  }
  // Half a code point's tokens may stand at the very end, with no text of their own.
  if (!stopped_) release_logprobs(items_.back().text.size() + 1);
  const bool of_call = items_.back().kind == Kind::kCall;
  const bool by_model = by != By::kEndOfStream && by != By::kNextMessage;
  if (of_call && !by_model) ++unclosed_calls_;
  const bool whole = of_call ? by_model : by != By::kEndOfStream || !cut_off_;
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
  if (!tells()) return;
  tell_text();
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

void ResponseOutput::tell_text() {
  const OutputItem& item = items_.back();
  if (told_text_ == item.text.size() && told_logprobs_ == item.logprobs.size()) return;
  events_.text_grows({item, items_.size() - 1}, std::string_view(item.text).substr(told_text_),
                     std::span(item.logprobs).subspan(told_logprobs_), pending_);
  told_text_ = item.text.size();
  told_logprobs_ = item.logprobs.size();
}

void ResponseOutput::take_events(std::string& out) {
  if (item_open_ && tells()) tell_text();
  out += pending_;
  pending_.clear();
}

std::string ResponseOutput::new_id(std::string_view prefix) {
  return item_id(prefix, options_.response_id,
                 {.part = ItemNumber::Part::kOutput, .count = ids_++});
}

}  // namespace pelton::server
