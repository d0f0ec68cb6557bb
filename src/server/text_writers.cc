#include "server/text_writers.h"

#include <utility>

#include "base/json_writer.h"

namespace pelton::server {
namespace {

using base::JsonWriter;
using Reason = TextEnd::Reason;

class LlamaWriter final : public TextWriter {
 public:
  explicit LlamaWriter(TextHead head) : head_(std::move(head)) {}

  void piece(const TextPiece& piece, std::string& out) override {
    tokens_ += static_cast<int64_t>(piece.tokens.size());
    append_sse_event(out, [&](std::string& json) {
      JsonWriter writer(json);
      begin(writer, piece, true);
      writer.key("stop").boolean(false).key("id_slot").integer(-1);
      writer.key("tokens_predicted").integer(tokens_);
      writer.key("tokens_evaluated").integer(head_.prompt_tokens).end_object();
    });
  }
  void last(const TextPiece& piece, const TextEnd& end, const std::string& all,
            std::string& out) override {
    append_sse_event(out, [&](std::string& json) { write_whole(json, piece, true, all, end); });
  }
  std::string whole(const TextPiece& all, const TextEnd& end) override {
    std::string body;
    write_whole(body, all, head_.shows_tokens, all.text, end);
    return body;
  }

 private:
  static void begin(JsonWriter& writer, const TextPiece& piece, bool shows_tokens) {
    writer.begin_object().key("index").integer(0).key("content").string(piece.text);
    writer.key("tokens").begin_array();
    if (shows_tokens) {
      for (const TextToken& token : piece.tokens) writer.integer(token.id);
    }
    writer.end_array();
  }
  void write_whole(std::string& json, const TextPiece& piece, bool shows_tokens,
                   const std::string& all, const TextEnd& end) const {
    JsonWriter writer(json);
    begin(writer, piece, shows_tokens);
    writer.key("id_slot").integer(-1).key("stop").boolean(true);
    writer.key("model").string(head_.model);
    writer.key("tokens_predicted").integer(end.output_tokens);
    writer.key("tokens_evaluated").integer(end.prompt_tokens);
    writer.key("tokens_cached").integer(end.cached_tokens);
    writer.key("prompt").string(head_.prompt);
    writer.key("has_new_line").boolean(all.find('\n') != std::string::npos);
    writer.key("truncated").boolean(false).key("stop_type");
    writer.string(end.reason == Reason::kLength       ? "limit"
                  : end.reason == Reason::kStopString ? "word"
                                                      : "eos");
    writer.key("stopping_word").string(end.stop_string).key("timings");
    api::write_timings(writer, end.timings);
    writer.end_object();
  }

  const TextHead head_;
  int64_t tokens_ = 0;
};

class TgiWriter final : public TextWriter {
 public:
  explicit TgiWriter(TextHead head) : head_(std::move(head)) {}

  void piece(const TextPiece& piece, std::string& out) override {
    for (size_t i = 0; i < piece.tokens.size(); ++i) {
      const bool ends = i + 1 == piece.tokens.size();
      append_token(piece.tokens[i], ends ? piece.text : std::string(), nullptr, {}, out);
    }
  }
  // The end comes with the last token.
  void last(const TextPiece& piece, const TextEnd& end, const std::string& all,
            std::string& out) override {
    TextPiece rest = piece;
    TextToken token;
    if (rest.tokens.empty()) {
      token.is_special = true;
    } else {
      token = rest.tokens.back();
      rest.tokens.pop_back();
      const std::string text = std::exchange(rest.text, {});
      this->piece(rest, out);
      return append_token(token, text, &end, head_.prompt + all, out);
    }
    append_token(token, piece.text, &end, head_.prompt + all, out);
  }
  std::string whole(const TextPiece& all, const TextEnd& end) override {
    std::string body;
    JsonWriter writer(body);
    writer.begin_object().key("generated_text").string(head_.prompt + all.text);
    if (head_.shows_details) {
      writer.key("details").begin_object();
      write_end(writer, end);
      writer.key("prefill").begin_array().end_array().key("tokens").begin_array();
      for (const TextToken& token : all.tokens) write_token(writer, token, token.text);
      writer.end_array().end_object();
    }
    writer.end_object();
    return body;
  }

 private:
  static std::string_view reason(const TextEnd& end) {
    switch (end.reason) {
      case Reason::kLength:
        return "length";
      case Reason::kStopString:
        return "stop_sequence";
      case Reason::kStopToken:
        return "eos_token";
    }
    return "eos_token";
  }
  void write_end(JsonWriter& writer, const TextEnd& end) const {
    writer.key("finish_reason").string(reason(end));
    writer.key("generated_tokens").integer(end.output_tokens);
    writer.key("seed").integer(static_cast<int64_t>(head_.seed));
  }
  static void write_token(JsonWriter& writer, const TextToken& token, const std::string& text) {
    writer.begin_object().key("id").integer(token.id).key("text").string(text);
    writer.key("logprob").number(static_cast<double>(token.logprob));
    writer.key("special").boolean(token.is_special).end_object();
  }
  void append_token(const TextToken& token, const std::string& text, const TextEnd* end,
                    const std::string& all, std::string& out) {
    append_sse_event(out, [&](std::string& json) {
      JsonWriter writer(json);
      writer.begin_object().key("index").integer(++index_).key("token");
      write_token(writer, token, text);
      writer.key("generated_text");
      end == nullptr ? writer.null() : writer.string(all);
      writer.key("details");
      if (end == nullptr) {
        writer.null();
      } else {
        writer.begin_object();
        write_end(writer, *end);
        writer.key("input_length").integer(end->prompt_tokens).end_object();
      }
      writer.end_object();
    });
  }

  const TextHead head_;
  int64_t index_ = 0;
};

class SglangWriter final : public TextWriter {
 public:
  explicit SglangWriter(TextHead head) : head_(std::move(head)) {}

  // Each event has the whole text so far.
  void piece(const TextPiece& piece, std::string& out) override {
    all_.text += piece.text;
    all_.tokens.insert(all_.tokens.end(), piece.tokens.begin(), piece.tokens.end());
    append_sse_event(out, [&](std::string& json) { write(json, all_, nullptr); });
  }
  void last(const TextPiece& piece, const TextEnd& end, const std::string&,
            std::string& out) override {
    all_.text += piece.text;
    all_.tokens.insert(all_.tokens.end(), piece.tokens.begin(), piece.tokens.end());
    append_sse_event(out, [&](std::string& json) { write(json, all_, &end); });
    out += kSseDone;
  }
  std::string whole(const TextPiece& all, const TextEnd& end) override {
    std::string body;
    write(body, all, &end);
    return body;
  }

 private:
  void write(std::string& json, const TextPiece& all, const TextEnd* end) const {
    JsonWriter writer(json);
    writer.begin_object().key("text").string(all.text).key("output_ids").begin_array();
    for (const TextToken& token : all.tokens) writer.integer(token.id);
    writer.end_array().key("meta_info").begin_object().key("id").string(head_.id);
    writer.key("finish_reason");
    if (end == nullptr) {
      writer.null();
    } else if (end->reason == Reason::kLength) {
      writer.begin_object().key("type").string("length");
      writer.key("length").integer(end->output_tokens).end_object();
    } else {
      writer.begin_object().key("type").string("stop").key("matched");
      if (end->reason == Reason::kStopString) {
        writer.string(end->stop_string);
      } else if (all.tokens.empty()) {
        writer.null();
      } else {
        writer.integer(all.tokens.back().id);
      }
      writer.end_object();
    }
    writer.key("prompt_tokens").integer(end == nullptr ? head_.prompt_tokens : end->prompt_tokens);
    writer.key("completion_tokens").integer(static_cast<int64_t>(all.tokens.size()));
    writer.key("cached_tokens").integer(end == nullptr ? 0 : end->cached_tokens);
    const int64_t ns = head_.clock->now_ns() - head_.arrived_ns;
    writer.key("e2e_latency").number(static_cast<double>(ns) * 1e-9).end_object().end_object();
  }

  const TextHead head_;
  TextPiece all_;
};

}  // namespace

std::unique_ptr<TextWriter> llama_writer(TextHead head) {
  return std::make_unique<LlamaWriter>(std::move(head));
}

std::unique_ptr<TextWriter> tgi_writer(TextHead head) {
  return std::make_unique<TgiWriter>(std::move(head));
}

std::unique_ptr<TextWriter> sglang_writer(TextHead head) {
  return std::make_unique<SglangWriter>(std::move(head));
}

}  // namespace pelton::server
