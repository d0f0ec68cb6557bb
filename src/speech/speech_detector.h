// Where in a stream of sound somebody speaks, by its energy alone: 20 ms are loud or not, three
// loud ones in a row begin speech, and enough quiet ones end it. One thread.
#pragma once

#include <cstddef>
#include <span>

namespace pelton::speech {

class SpeechDetector {
 public:
  static constexpr size_t kFrame = 320;  // samples of 16 kHz
  static constexpr int kFrameMs = 20;
  static constexpr int kLoudFrames = 3;  // that begin speech

  struct Options {
    // 0 to 1: loud is a root mean square of -60 to -20 dB of full scale.
    double threshold = 0.5;
    int prefix_padding_ms = 300;  // of the sound before speech that belongs to it
    int silence_duration_ms = 500;
    bool operator==(const Options&) const = default;
  };
  // `speaks`: speech has begun before the first frame.
  SpeechDetector(const Options& options, bool speaks);

  enum class Change { kNone, kBegins, kEnds };
  Change push(std::span<const float> frame);

  bool speaks() const { return speaks_; }
  void reset();  // nobody speaks
  const Options& options() const { return options_; }

 private:
  const Options options_;
  const double power_min_;  // of a frame that is loud: the mean of its squares
  bool speaks_ = false;
  int others_ = 0;  // frames in a row that are not as what is now
};

}  // namespace pelton::speech
