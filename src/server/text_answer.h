// The answer of one plain text, in another server's words: tokens through the decoder and the stop
// strings, and a TextWriter that says how pieces and the end of it are written, whole or streamed
// by the same code. Owned by its Generation.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer_extras.h"
#include "api/logprobs.h"
#include "server/answer.h"
#include "server/served_model.h"
#include "server/stop_filter.h"
#include "tokenizer/incremental_decoder.h"

namespace pelton::server {

// One token of a piece, with what its text is by itself.
struct TextToken {
  TokenId id = 0;
  float logprob = 0;
  std::string text;
  bool is_special = false;
  std::vector<api::ScoredToken> top = {};  // likeliest, where they were asked for
};

struct TextPiece {
  std::string text;
  std::vector<TextToken> tokens;  // that have come since the last piece
};

struct TextEnd {
  enum class Reason { kStopToken, kStopString, kLength };
  Reason reason = Reason::kStopToken;
  std::string stop_string;  // that ended it
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  bool is_truncated = false;
  api::Timings timings;
};

class TextWriter {
 public:
  virtual ~TextWriter() = default;

  // In a stream: a piece, and the last one with the end. `all`: the whole text.
  virtual void piece(const TextPiece& piece, std::string& out) = 0;
  virtual void last(const TextPiece& piece, const TextEnd& end, const std::string& all,
                    std::string& out) = 0;
  virtual std::string whole(const TextPiece& all, const TextEnd& end) = 0;
  virtual void error(const api::ApiError& error, std::string& out) {
    append_sse_event(out, [&](std::string& json) { json += api::error_body(error); });
  }
  virtual std::string_view content_type() const { return "text/event-stream; charset=utf-8"; }
  virtual std::string_view quiet_event() const { return kSseComment; }
};

class TextAnswer final : public Answer {
 public:
  struct Options {
    StopStrings stop;
    bool stream = false;
    bool shows_special = false;  // control tokens are text too
    // The last token comes with the end, as TGI's does: of so many tokens, or the one that
    // completes a stop string. 0: it need not.
    int64_t last_with_end = 0;
  };

  TextAnswer(const ServedModel& model, Options options, std::unique_ptr<TextWriter> writer);

  Wants push(size_t choice, const engine::SampledToken& token) override;
  void end(size_t choice, const engine::StreamEnd& end) override;
  void take_events(std::string& out) override;
  void take_last_events(std::string& out) override;
  std::string whole_body() override;
  void append_error(const api::ApiError& error, std::string& out) override {
    writer_->error(error, out);
  }
  std::string_view content_type() const override { return writer_->content_type(); }
  std::string_view quiet_event() const override { return writer_->quiet_event(); }

 private:
  void add(std::string_view text);
  bool waits_for_end() const;

  const ServedModel& model_;
  const Options options_;
  const std::unique_ptr<TextWriter> writer_;
  tokenizer::IncrementalDecoder decoder_;
  StopFilter stop_filter_;
  TextPiece piece_;  // not yet taken: all of it in a whole answer
  std::string all_;  // of a stream, what has been taken
  TextEnd end_;
  std::string scratch_;
};

}  // namespace pelton::server
