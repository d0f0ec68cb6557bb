// One answer of /v1/audio/speech as it comes: a WAV file, played while it arrives. Any server's
// that sends WAV. Of one thread at a time.
#pragma once

#include <optional>
#include <string>

#include "bench/played_stream.h"
#include "bench/sound_load.h"

namespace pelton::bench {

class SpeechAnswer final : public SoundAnswer {
 public:
  explicit SpeechAnswer(double buffer_s) : player_(buffer_s) {}

  void head(int status, const net::HttpHeaders& headers) override;
  void piece(std::string_view bytes, double at_s) override;
  void end(const Result<void>& result, double at_s) override;

  // After end(). Why it is no answer; empty: it is one.
  const std::string& failure() const { return failure_; }
  // From the call's start to the first sound, and to the end.
  double first_sound_s() const { return first_sound_s_.value_or(0.0); }
  double whole_s() const { return whole_s_; }
  const PlayedStream& player() const { return player_; }
  // A player that began with the first sound never waited for more.
  bool keeps_real_time() const { return failure_.empty() && player_.underruns() == 0; }

 private:
  void read_header();

  PlayedStream player_;
  int status_ = 0;
  std::string begin_;              // until the header is whole; of an error, what it says
  double bytes_per_second_ = 0.0;  // 0: the header has not come
  std::optional<double> first_sound_s_;
  double whole_s_ = 0.0;
  std::string failure_;
};

}  // namespace pelton::bench
