// What a server makes of one stream of live sound, in OpenAI's Realtime transcription events, and
// when; and such a stream itself, its sound sent as fast as it is spoken. One thread's, which
// waits.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/http_client.h"

namespace pelton::bench {

// Events as they come, times in seconds on one clock.
class LiveTranscript {
 public:
  // One event, as JSON. What is none, and an "error" event, is the stream's failure; events of
  // other kinds say nothing.
  void take(std::string_view event, double at_s);
  // This side has said that the sound is over.
  void commit(double at_s) { committed_s_ = at_s; }
  void fail(std::string why);

  bool is_updated() const { return is_updated_; }
  // It has failed, or the text of all that was committed is there.
  bool is_over() const { return !failure_.empty() || completed_s_.has_value(); }

  const std::string& failure() const { return failure_; }
  const std::string& text() const { return text_; }
  // When the first words came; as completed_s where all came at once.
  double first_text_s() const { return first_text_s_.value_or(completed_s_.value_or(0.0)); }
  // From the commit to the whole text.
  double delay_s() const { return completed_s_.value_or(committed_s_) - committed_s_; }

 private:
  bool is_updated_ = false;
  double committed_s_ = 0.0;
  std::optional<double> first_text_s_;
  std::optional<double> completed_s_;
  std::string text_;
  std::string failure_;
};

struct LiveStream {
  net::HttpCall call;    // of /v1/realtime?intent=transcription
  std::string session;   // the message that sets it up
  std::string_view pcm;  // 16 bits, little-endian, one channel
  int rate = 24'000;
  std::chrono::milliseconds chunk{100};
  std::chrono::milliseconds head_start{0};           // waits so long before it begins
  std::chrono::milliseconds quiet_time_max{60'000};  // without an event once the sound is over
  std::function<bool()> stops = {};                  // asked now and then; true: it is given up
};

struct LiveOutcome {
  LiveTranscript transcript;
  double late_s = 0.0;  // how late the latest piece of sound was sent
};

// Each piece goes out when its last sample would have been said.
LiveOutcome run_live_stream(const LiveStream& stream);

}  // namespace pelton::bench
