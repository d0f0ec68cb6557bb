// A whole recording as segments of text with times: windows of 30 s, one behind the other, each
// with what came before as its prompt; a window whose text is doubtful is decoded anew at a higher
// temperature (openai/whisper's transcribe.py). One thread at a time; any number of recordings can
// be under way with one model, a window each in turn.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/whisper_alignment.h"
#include "models/whisper_decoding.h"
#include "models/whisper_fallback.h"

namespace pelton::models {

struct WhisperSegment {
  double begin_s = 0.0;
  double end_s = 0.0;
  int64_t seek = 0;             // where its window begins, in frames
  std::vector<TokenId> tokens;  // timestamps among them
  double temperature = 0.0;     // of its window, as are the next three
  double average_logprob = 0.0;
  double compression_ratio = 0.0;
  double no_speech = 0.0;
  // Of its tokens that are text, where they were asked for; times from the recording's begin.
  std::vector<AlignedToken> aligned;
};

struct TranscriptionTask {
  std::string language;  // empty: detected in the first window
  bool translates = false;
  bool timestamps = true;
  bool uses_previous = true;    // what was said before is the next window's prompt
  std::vector<TokenId> prompt;  // stands before the first window
  double temperature = 0.0;     // the first that is tried
  bool falls_back = true;       // higher ones, by 0.2 up to 1, where the text is doubtful
  bool aligns = false;          // each token's time
  WhisperSearch search = {};
};

// `mel` of any number of samples, float (bands, frames): audio::LogMel::of.
using MelOf = std::function<std::vector<float>(std::span<const float> samples)>;

// What the model cannot do of it: kInvalidArgument or kUnsupported, with the field.
Result<void> check_task(const WhisperConfig& config, const TranscriptionTask& task);

class WhisperTranscription {
 public:
  // samples: of 16 kHz. `config` outlives it; check_task() has no objection.
  WhisperTranscription(const WhisperConfig& config, std::vector<float> samples,
                       TranscriptionTask task, const MelOf& mel, CompressionOf compression);

  // One window more; false: that was the last one. `go_on` is asked before each token. Errors:
  // kCancelled.
  Result<bool> step(Whisper& model, const std::function<bool()>& go_on);
  // The same of several recordings, a token of each in one step of the decoder: what each comes to
  // is what it comes to alone.
  struct Turn {
    WhisperTranscription* recording = nullptr;
    std::function<bool()> go_on;
  };
  static std::vector<Result<bool>> step_all(Whisper& model, std::span<const Turn> turns);

  // As it was named, or detected; empty: the model knows only one, or none has been heard yet.
  const std::string& language() const { return language_; }
  double seconds() const { return seconds_; }  // of the recording
  // In order, without overlap.
  const std::vector<WhisperSegment>& segments() const { return segments_; }

 private:
  // A window that is being decoded.
  struct Open {
    WhisperWindow window;
    std::optional<WhisperAttempts> attempts;
  };

  // The parts of a step. False: there is no window more.
  Result<bool> begin_window(Whisper& model, const std::function<bool()>& go_on);
  bool end_window(Whisper& model);
  std::vector<float> window_mel() const;
  void detect_language(Whisper& model, WhisperWindow& window);
  WhisperTask window_task(double temperature) const;
  void add_segments(Whisper& model, WhisperWindow& window, std::vector<WhisperSegment> cut,
                    int64_t frames);

  const WhisperConfig& config_;
  const TranscriptionTask task_;
  const CompressionOf compression_;
  double seconds_ = 0.0;
  int64_t content_ = 0;  // frames of sound
  bool is_short_ =
      false;  // one window's worth, filled with silence before its spectrogram was made
  std::vector<float> mel_;  // (bands, stride_)
  int64_t stride_ = 0;

  std::string language_;
  TokenId language_token_ = -1;
  int64_t seek_ = 0;            // frames; the next window begins here
  std::unique_ptr<Open> open_;  // null between two steps
  std::vector<TokenId> previous_;
  std::vector<WhisperSegment> segments_;
};

}  // namespace pelton::models
