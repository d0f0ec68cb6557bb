// Reads one answer as its bytes come, and fills its record: when each piece came and how many
// tokens it brought. One thread at a time, that of its HTTP call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "bench/answer_fields.h"
#include "net/http_message.h"
#include "net/sse.h"
#include "report/request_record.h"

namespace pelton::bench {

// What is believed of an answer: a server's claims are foreign numbers, and each token it claims
// takes memory and time here.
struct AnswerLimits {
  int64_t tokens_max = 1 << 20;  // of all of its choices
  int64_t prompt_tokens_max = 100'000'000;
  // Of an answer that puts documents in order: how many there are, and how many of them it names;
  // 0: it is another.
  int64_t documents = 0;
  int64_t results = 0;

  // For an answer of `asked` tokens (0: as the model likes; see asked_tokens). Some servers count
  // what ends an answer, or begin before the limit is known.
  static AnswerLimits for_asked(int64_t asked);
};

// Of a server that sent nothing for so long.
std::string silence_words(std::chrono::milliseconds quiet_time_max);

class AnswerReader {
 public:
  // `record` outlives it. Times given below are those of the record.
  AnswerReader(report::RequestRecord& record, const AnswerLimits& limits);

  void head(int status, const net::HttpHeaders& headers, int64_t now_ns);
  // Tokens that came with these bytes, for live progress.
  int64_t bytes(std::string_view bytes, int64_t now_ns);
  // The answer's end: fills what is known only now. `result` is the call's own.
  void end(const Result<void>& result, int64_t now_ns);

  // The visible answer: what the next turn of a conversation repeats.
  const std::string& text() const { return text_; }
  int status() const { return status_; }
  // It has failed, whatever still comes: its call may be cancelled.
  bool failed() const { return failed_; }
  void fail(std::string why);
  // When the head or a piece of the answer came last: comments and empty events are silence.
  int64_t last_progress_ns() const { return last_progress_ns_.load(std::memory_order_relaxed); }
  // Memory that the answer takes by now.
  int64_t held_bytes() const;

 private:
  void take(const AnswerFields& fields, int64_t now_ns);
  void take_piece(const AnswerFields& fields, int64_t now_ns);
  void take_usage(const AnswerFields& fields);
  void take_whole(int64_t now_ns);
  bool believes(const char* what, int64_t claimed, int64_t most);
  bool believes_counts(const AnswerFields& fields);

  static constexpr size_t kWholeBytesMax = size_t{64} << 20;
  static constexpr size_t kErrorBytesMax = 300;

  report::RequestRecord& record_;
  const AnswerLimits limits_;
  std::atomic<int64_t> last_progress_ns_{-1};  // also read by the load generator's thread
  net::SseParser parser_{{}};
  AnswerFields fields_;
  std::string whole_;  // of an answer that is no stream
  std::string text_;
  int status_ = 0;
  bool is_stream_ = false;
  bool failed_ = false;
  bool all_reported_ = true;  // every piece so far came with its count
  bool done_seen_ = false;    // "[DONE]", or the last event of a response
  int64_t tokens_in_pieces_ = 0;
  int64_t tokens_told_ = -1;  // by the last usage
};

}  // namespace pelton::bench
