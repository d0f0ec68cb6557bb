// One turn of the model's while it is sampled: tokens through chat::ReplyBuilder and the stop
// strings into what an answer shows, whatever the protocol that shows it. At its end the turn's own
// tokens are kept for the conversation's next prompt. Owned by an Answer, on its net thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/reply.h"
#include "engine/token_stream.h"
#include "server/served_model.h"
#include "server/stop_filter.h"
#include "server/turn_cache.h"

namespace pelton::server {

class ChatTurn {
 public:
  // Where the whole turn is kept at its end.
  struct Place {
    TurnCache* turns = nullptr;  // outlives the answer
    RollingHash history;         // of what stands before the turn
  };

  // The same for all turns of one answer, which owns them.
  struct Options {
    StopStrings stop;
    std::vector<TokenId> opening;  // what stands in the prompt after the turn's start
    bool shows_opening = true;     // false: what it says is the caller's own text
    // For formats that type arguments by their schema; may be null.
    std::shared_ptr<const std::vector<chat::FunctionTool>> functions = nullptr;
    chat::ReplyBuilder::Options::Preamble preamble =
        chat::ReplyBuilder::Options::Preamble::kContent;
    std::optional<Place> place;  // none: it is not kept
    bool one_call = false;       // of several calls only the first is shown
    bool may_call = false;       // functions are offered; otherwise what looks like a call is text
  };

  ChatTurn(const ServedModel& model, const Options& options);
  ChatTurn(const ChatTurn&) = delete;
  ChatTurn& operator=(const ChatTurn&) = delete;

  // What the opening shows: the beginning of a call. Once, first.
  const chat::ReplyDelta& begin();
  // What a token adds; its content is what no stop string can take back any more. The delta is
  // overwritten by the next call.
  const chat::ReplyDelta& push(TokenId token);
  const chat::ReplyDelta& end(const engine::StreamEnd& end);

  // What the engine must emit, if reasoning has to end.
  std::optional<engine::TokenConstraints> take_token_constraints() {
    return std::exchange(token_constraints_, std::nullopt);
  }
  void end_reasoning();  // now, or as soon as it begins

  // A stop string ended it; its end() still comes.
  bool stopped() const { return stop_filter_.stopped(); }
  const std::string& stop_string() const { return stop_filter_.matched(); }  // once stopped()

  size_t content_sampled() const { return content_sampled_; }  // bytes, stop strings included
  size_t content_out() const { return content_out_; }          // bytes that were shown
  int64_t sampled_tokens() const { return sampled_tokens_; }

  // After end(): the whole of it, content as it was shown.
  chat::Reply& reply() { return reply_; }
  const chat::Reply& reply() const { return reply_; }

 private:
  void force_end();
  void filter_content();
  void keep();

  // What every token touches stands together: of hundreds of turns each is cold.
  std::optional<engine::TokenConstraints> token_constraints_;
  const ServedModel& model_;
  const Options& options_;
  bool may_reason_ = true;  // false: somebody wants an end of it
  bool was_reasoning_ = false;
  int ends_forced_ = 0;
  std::vector<TokenId> turn_;  // the opening, then what was sampled
  std::string content_;        // that came out of the stop filter
  size_t content_sampled_ = 0;
  size_t content_out_ = 0;
  size_t reasoning_hidden_ = 0;  // bytes of it in the opening
  int64_t sampled_tokens_ = 0;
  chat::ReplyDelta delta_;  // reused
  StopFilter stop_filter_;
  chat::ReplyBuilder builder_;
  // Until here.

  std::string scratch_;  // reused
  chat::Reply reply_;
};

}  // namespace pelton::server
