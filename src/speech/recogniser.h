// The seam between who hears and who queues: a model that turns sound into text, window by window:
// of recordings, and of sound that is still being said.
// Real: node/whisper_recogniser.h; scripted in tests.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "speech/transcript.h"

namespace pelton::speech {

// How a window's text is searched for, as openai/whisper does.
struct Search {
  int beam_size = 1;      // at temperature 0: so many texts are followed
  double patience = 1.0;  // until so many times beam_size have ended
  int best_of = 1;        // at others: so many are drawn
  // Which of them is the best: likelihood over ((5 + tokens) / 6) to this power; none: over tokens.
  std::optional<double> length_penalty = {};
};

struct Task {
  std::string language;  // empty: detected in the first window
  bool translates = false;
  bool timestamps = true;
  bool uses_previous = true;  // what was said before is the next window's prompt
  std::string prompt;         // stands before the first window
  // Of every window; none: 0, and higher ones up to 1 where a window's text is doubtful.
  std::optional<double> temperature = {};
  bool words = false;  // their times
  Search search = {};
};

// At most 30 s of sound that is still being said.
struct LiveWindow {
  std::vector<float> samples;     // mono, of 16 kHz
  std::string language;           // empty: detected
  std::string prompt;             // stands before `previous`
  std::vector<TokenId> previous;  // what was said before the window
  std::vector<TokenId> begun;     // its first tokens, which stand already
  bool is_last = false;           // all its sound is there: doubtful text is decoded anew
};
struct LiveText {
  std::vector<TokenId> tokens;  // all of the window's, with `begun` before all else
  std::string language;         // as it was named, or detected
  bool is_repetitive = false;   // it repeats itself, which mostly is not what was said
};

// One recording on its way. One thread at a time.
class Recognition {
 public:
  virtual ~Recognition() = default;

  // One window more; its segments stand behind those before it. False: that was the last one. Asks
  // `go_on` often, and ends with kCancelled when that says no.
  virtual Result<bool> step(const std::function<bool()>& go_on) = 0;
  virtual const Transcript& transcript() const = 0;
};

// A recording whose window is next, and whether it is still wanted.
struct Turn {
  Recognition* recognition = nullptr;
  std::function<bool()> go_on;
};

class Recogniser {
 public:
  virtual ~Recogniser() = default;

  // Errors: what this model cannot do of the task: kInvalidArgument, kUnsupported, with the field.
  // Any thread.
  virtual Result<void> check(const Task& task) const = 0;
  // samples: mono, of 16 kHz. Computes what needs no model (a spectrogram); asks `go_on` often, and
  // ends with kCancelled when that says no. Any thread; it outlives what it has begun.
  virtual Result<std::unique_ptr<Recognition>> begin(std::vector<float> samples, const Task& task,
                                                     const std::function<bool()>& go_on) const = 0;

  // One window more of each, as its step() gives it alone, in one batch: of recordings that it has
  // begun itself, on the thread that steps them.
  virtual std::vector<Result<bool>> step_all(std::span<const Turn> turns) const = 0;

  // One window's text so far. On the thread that steps recognitions; asks `go_on` often. Errors:
  // kCancelled, and the task's.
  virtual Result<LiveText> hear(LiveWindow window, const std::function<bool()>& go_on) const = 0;
  // Any thread.
  virtual std::string text_of(std::span<const TokenId> tokens) const = 0;
};

}  // namespace pelton::speech
