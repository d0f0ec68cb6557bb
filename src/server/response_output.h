// The output of one response while it is sampled: the parts of the model's turn as items
// (reasoning, messages, calls) and, if it is streamed, the events that report each change. One
// translator for both, so a streamed and a whole response are equal. Total, as the parser under it.
// Owned by a ResponseAnswer, on its net thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/response_events.h"
#include "api/response_object.h"
#include "chat/reply.h"
#include "chat/reply_reader.h"
#include "engine/token_stream.h"
#include "server/served_model.h"
#include "server/stop_filter.h"

namespace pelton::server {

class ResponseOutput {
 public:
  struct Options {
    StopStrings stop;  // looked for in messages
    bool logprobs = false;
    bool may_call = false;  // functions are offered; otherwise what looks like a call is a message
    bool one_call = false;  // of several calls only the first is an item
    bool runs_builtins = false;  // calls of the model's own tools are run by this server
    bool code_outputs = false;   // what its Python prints is in the items
    // For formats that type arguments by their schema; may be null.
    std::shared_ptr<const std::vector<chat::FunctionTool>> functions = nullptr;
    std::string response_id;  // the items' ids are made of it
    bool reasoning_summary = false;
    // What becomes of reasoning that has ended as its "encrypted_content"; empty: none is wanted.
    std::function<std::string(std::string_view text)> encrypt_reasoning;
    // Of the events; none: nothing is reported on the way.
    std::optional<api::ResponseEvents::Framing> framing;
  };

  ResponseOutput(const ServedModel& model, Options options);
  ResponseOutput(const ResponseOutput&) = delete;
  ResponseOutput& operator=(const ResponseOutput&) = delete;

  // What stands in the prompt after the turn's start: the beginning of a call. Once, first.
  void open(const std::vector<TokenId>& opening);
  void push(const engine::SampledToken& token);
  void finish(chat::StopCause cause);
  // Instead of finish(): it failed. The open item is incomplete, and none is made up.
  void cut_off();

  // A call of one of the model's own tools is complete, and its result has not come. The round of
  // sampling is over then.
  bool has_open_call() const { return open_call_; }
  // It has been run, or was not (`failed`). `logs`: what it printed.
  void end_call(std::string_view logs, bool failed);
  // It will not be run.
  void give_up_call();
  // The model goes on, with a turn of its own.
  void next_round();
  // Since then, the call last.
  std::span<const api::OutputItem> round_items() const {
    return std::span(items_).subspan(round_first_);
  }

  // A stop string ended it.
  bool stopped() const { return stopped_; }

  const std::vector<api::OutputItem>& items() const { return items_; }
  int64_t reasoning_tokens() const { return past_reasoning_ + reader_->reasoning_tokens(); }

  // After finish(): whether the items say all that was sampled, each closed as it should be.
  bool well_formed() const { return reader_->facts().well_formed(); }

  // Appends the events since the last call. Text that came since then is one event.
  void take_events(std::string& out);
  // The events' numbers go on here.
  api::ResponseEvents& events() { return events_; }

 private:
  using Kind = api::OutputItem::Kind;

  struct HeldLogprob {
    size_t text_offset;  // where its token's text begins in the item
    api::TokenLogprobs logprobs;
  };

  void apply_events();
  void begin(chat::PartBegin& part);
  void begin_call(chat::PartBegin& part);
  void begin_item(api::OutputItem item);
  void add_text(std::string_view text);
  void show(std::string_view text);
  void end(chat::PartEnd part_end);
  void close_item(api::OutputItem::Status status);
  void release_logprobs(size_t text_end);
  void emit_text();
  std::string new_id(std::string_view prefix);
  bool streams() const { return options_.framing.has_value(); }

  const ServedModel& model_;
  const Options options_;
  std::optional<chat::ReplyReader> reader_;  // of this round
  std::vector<chat::ReplyEvent> parsed_;     // reused

  std::vector<api::OutputItem> items_;
  bool item_open_ = false;                 // the last one
  bool open_call_ = false;                 // the last one's, which the server is to run
  size_t round_first_ = 0;                 // of items_
  int64_t past_reasoning_ = 0;             // tokens, of the rounds before
  std::optional<StopFilter> stop_filter_;  // of the open message
  bool stopped_ = false;
  int64_t sampled_tokens_ = 0;
  bool cut_off_ = false;  // the end is one of length

  size_t message_sampled_ = 0;  // bytes of the open message, stop strings included
  std::vector<HeldLogprob> held_logprobs_;
  size_t emitted_text_ = 0;  // of the open item, bytes
  size_t emitted_logprobs_ = 0;
  uint64_t ids_ = 0;

  api::ResponseEvents events_;
  std::string pending_;  // events not taken yet
  std::string plain_;    // reused
  std::string scratch_;  // reused
};

}  // namespace pelton::server
