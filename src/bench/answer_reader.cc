#include "bench/answer_reader.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/terminal_text.h"
#include "base/utf8.h"
#include "bench/ranking.h"

namespace pelton::bench {

AnswerLimits AnswerLimits::for_asked(int64_t asked) {
  constexpr int64_t kBeside = 1024;
  constexpr int64_t kMost = 1 << 24;  // whatever was asked for: each token takes memory here
  AnswerLimits limits;
  if (asked > 0) limits.tokens_max = std::min(asked, kMost / 2 - kBeside) * 2 + kBeside;
  return limits;
}

std::string silence_words(std::chrono::milliseconds quiet_time_max) {
  return fmt::format("no piece of the answer came for {} ms (--timeout-sec)",
                     quiet_time_max.count());
}

AnswerReader::AnswerReader(report::RequestRecord& record, const AnswerLimits& limits)
    : record_(record), limits_(limits) {}

void AnswerReader::head(int status, const net::HttpHeaders& headers, int64_t now_ns) {
  last_progress_ns_ = now_ns;
  status_ = status;
  is_stream_ = headers.get("Content-Type").starts_with("text/event-stream");
}

int64_t AnswerReader::bytes(std::string_view bytes, int64_t now_ns) {
  if (record_.first_byte_ns < 0) record_.first_byte_ns = now_ns;
  if (failed_) return 0;
  if (!is_stream_) {
    if (whole_.size() + bytes.size() > kWholeBytesMax) {
      fail("the answer is larger than 64 MiB");
    } else {
      whole_ += bytes;
    }
    return 0;
  }
  const int64_t before = tokens_in_pieces_;
  const Result<void> fed = parser_.feed(bytes, [&](const net::SseEvent& event) {
    if (failed_) return;
    if (event.data == "[DONE]") {
      done_seen_ = true;
      return;
    }
    if (const Result<void> read = read_answer_fields(event.data, fields_); !read.ok()) {
      return fail("an event is no JSON: " + read.error().message);
    }
    take(fields_, now_ns);
  });
  if (!fed.ok()) fail(fed.error().message);
  return tokens_in_pieces_ - before;
}

bool AnswerReader::believes(const char* what, int64_t claimed, int64_t most) {
  if (claimed >= -1 && claimed <= most) return true;
  fail(fmt::format("the server claims {} {}; more than {} are not believed of this request",
                   claimed, what, most));
  return false;
}

bool AnswerReader::believes_counts(const AnswerFields& fields) {
  return believes("output tokens", fields.completion_tokens, limits_.tokens_max) &&
         believes("reasoning tokens", fields.reasoning_tokens, limits_.tokens_max) &&
         believes("prompt tokens", fields.prompt_tokens, limits_.prompt_tokens_max) &&
         believes("cached tokens", fields.cached_tokens, limits_.prompt_tokens_max);
}

int64_t AnswerReader::held_bytes() const {
  return static_cast<int64_t>(whole_.capacity() + text_.capacity() +
                              record_.pieces.capacity() * sizeof(report::Piece));
}

void AnswerReader::take(const AnswerFields& fields, int64_t now_ns) {
  if (!fields.error.empty()) return fail(fields.error);
  if (!believes_counts(fields)) return;
  const bool counted =
      fields.has_choices && (fields.token_ids > 0 || fields.completion_tokens > tokens_in_pieces_);
  if (fields.bytes() > 0 || counted) take_piece(fields, now_ns);
  take_usage(fields);
}

void AnswerReader::take_piece(const AnswerFields& fields, int64_t now_ns) {
  int64_t tokens = 1;
  bool reported = true;
  if (fields.completion_tokens >= 0) {
    // Several pieces may show the same count: text held back by a server comes with no new token.
    tokens = fields.completion_tokens - tokens_in_pieces_;
  } else if (fields.token_ids >= 0) {
    tokens = fields.token_ids;
  } else {
    reported = false;
  }
  all_reported_ = all_reported_ && reported;
  tokens = std::max<int64_t>(tokens, 0);
  tokens_in_pieces_ += tokens;
  if (!believes("output tokens, piece by piece,", tokens_in_pieces_, limits_.tokens_max)) return;
  last_progress_ns_ = now_ns;
  if (tokens > 0) record_.pieces.push_back({now_ns, static_cast<int32_t>(tokens)});
  if (fields.reasoning_bytes > 0 && record_.first_reasoning_ns < 0) {
    record_.first_reasoning_ns = now_ns;
  }
  if (fields.text_bytes > 0 && record_.first_text_ns < 0) record_.first_text_ns = now_ns;
  record_.output_bytes += fields.bytes();
  record_.output_characters += fields.characters;
  text_ += fields.text;
  if (text_.size() > kWholeBytesMax) fail("the answer is larger than 64 MiB");
}

void AnswerReader::take_usage(const AnswerFields& fields) {
  if (fields.prompt_tokens >= 0) record_.input_tokens = fields.prompt_tokens;
  if (fields.cached_tokens >= 0) record_.cached_tokens = fields.cached_tokens;
  if (fields.completion_tokens >= 0) tokens_told_ = fields.completion_tokens;
  if (fields.reasoning_tokens >= 0) record_.reasoning_tokens = fields.reasoning_tokens;
}

void AnswerReader::take_whole(int64_t now_ns) {
  const Result<void> read = read_answer_fields(whole_, fields_);
  if (status_ < 200 || status_ > 299) {
    const std::string words =
        read.ok() && !fields_.error.empty() ? fields_.error : whole_.substr(0, kErrorBytesMax);
    return fail(fmt::format("HTTP {}: {}", status_, words));
  }
  if (!read.ok()) return fail("the answer is no JSON: " + read.error().message);
  if (!fields_.error.empty()) return fail(fields_.error);
  if (limits_.documents > 0) {
    const Result<void> ranked = check_ranking(whole_, limits_.documents, limits_.results);
    if (!ranked.ok()) return fail(ranked.error().message);
  }
  if (!believes_counts(fields_)) return;
  take_usage(fields_);
  record_.output_bytes = fields_.bytes();
  record_.output_characters = fields_.characters;
  text_ = fields_.text;
  // All at once: there is no time between its tokens, and the first came no later than now.
  if (tokens_told_ > 0) {
    record_.pieces.push_back(
        {now_ns, static_cast<int32_t>(std::min<int64_t>(tokens_told_, INT32_MAX))});
  }
}

void AnswerReader::end(const Result<void>& result, int64_t now_ns) {
  record_.end_ns = now_ns;
  if (!result.ok()) {
    fail(result.error().message);
  } else if (!failed_ && status_ == 0) {
    fail("no answer came");
  } else if (!failed_ && !is_stream_) {
    take_whole(now_ns);
  } else if (!failed_ && record_.pieces.empty() && !done_seen_) {
    fail("the stream ended without an answer");
  }
  record_.tokens_told = all_reported_ && !record_.pieces.empty();
  record_.output_tokens = tokens_told_ >= 0 ? tokens_told_ : tokens_in_pieces_;
  record_.ok = !failed_;
  whole_ = {};
}

void AnswerReader::fail(std::string why) {
  if (failed_) return;
  failed_ = true;
  if (why.size() > kErrorBytesMax)
    why.resize(base::valid_utf8_prefix(why.substr(0, kErrorBytesMax)));
  record_.error = base::one_line(why);
  if (record_.error.empty()) record_.error = "an error without words";
  // Nobody looks at what there was of it.
  whole_ = {};
  text_ = {};
  record_.pieces = {};
}

}  // namespace pelton::bench
