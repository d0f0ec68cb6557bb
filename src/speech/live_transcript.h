// What is said in a stream of sound while it comes: items that begin and end with speech, or where
// the client says so, each heard in windows of at most 30 s. While an item is open its window is
// heard again for each half second of sound that has come; text on which two passes in a row agree
// stands from then on, and every later pass begins with it (Liu, Spanakis, Niehues 2020:
// local agreement). A window that is full is cut where it is quietest. Knows no model: its owner
// has next_window() heard and gives the text back. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "speech/recogniser.h"
#include "speech/speech_detector.h"

namespace pelton::speech {

class LiveTranscript {
 public:
  static constexpr size_t kRate = 16'000;
  static constexpr size_t kWindow = 30 * kRate;
  static constexpr size_t kPassStep = kRate / 2;  // sound between two passes over an open window
  static constexpr size_t kBufferedMax = 60 * kRate;  // that no window has taken for good
  static constexpr size_t kItemMax = 3600 * kRate;
  static constexpr size_t kItemMin = kRate / 10;  // that may be committed
  static constexpr size_t kItemsMax = 16;         // that wait for their text

  struct Options {
    std::string language;                             // empty: detected, for each item
    std::string prompt;                               // stands before each item
    std::optional<SpeechDetector::Options> detector;  // none: the client commits
  };
  using TextOf = std::function<std::string(std::span<const TokenId>)>;

  struct Event {
    enum class What { kBegins, kEnds, kCommitted, kDelta, kCompleted, kFailed };
    What what = What::kDelta;
    int64_t item = 0;
    std::string text = {};            // of kDelta; of kCompleted all of it
    int64_t ms = 0;                   // of kBegins and kEnds: sound before it in the whole stream
    double seconds = 0.0;             // of kCompleted: of its sound
    std::optional<Error> error = {};  // of kFailed
  };
  using Events = std::vector<Event>;

  LiveTranscript(Options options, TextOf text_of);

  // For windows from now on.
  void set_options(Options options);

  // samples: mono, of 16 kHz. Errors: kInvalidArgument: more at once than ever fits; kOverloaded:
  // more than is kept beside what waits. Nothing is taken of them then.
  Result<Events> push(std::span<const float> samples);
  // The open item is over. Errors: kInvalidArgument: there is none, or too little of it;
  // kOverloaded: too many wait.
  Result<Events> commit();
  // The sound of the open item is forgotten, and it has no more text.
  void clear();
  bool is_open() const { return !items_.empty() && !items_.back().is_committed; }

  // What is to be heard now; nothing, while a window is being heard or too little has come.
  std::optional<LiveWindow> next_window();
  // Of the last one.
  Events heard(Result<LiveText> text);
  // Whether no committed item waits for its text.
  bool is_settled() const { return items_.empty() || !items_.front().is_committed; }

 private:
  struct Item {
    int64_t number = 0;
    bool is_committed = false;
    std::vector<float> samples;  // of the window, and behind it
    size_t sample_count = 0;     // in all
    size_t passed = 0;           // of `samples`, when they were heard last
    std::string language;        // of the first text; empty: none yet
    std::string before;          // text of the windows before
    std::vector<TokenId> previous;
    std::vector<TokenId> begun;  // what stands of the window
    std::vector<TokenId> last;   // as it was heard last
    std::string emitted;
  };
  struct Pass {
    int64_t item = 0;
    size_t sample_count = 0;
    bool is_last = false;
  };

  Item& open_item();
  void commit_open(Events& events);
  size_t buffered() const;
  void push_frame(std::span<const float> frame, Events& events);
  void append(Item& item, std::span<const float> samples);
  // Tokens that both have, to the end of a character.
  std::vector<TokenId> agreed(std::span<const TokenId> one, std::span<const TokenId> other) const;
  void emit(Item& item, Events& events) const;
  void end_window(Item& item, size_t sample_count);

  Options options_;
  const TextOf text_of_;
  std::optional<SpeechDetector> detector_;
  std::vector<float> padding_;  // before speech
  std::vector<float> rest_;     // of a frame
  size_t taken_ = 0;            // samples in frames, of the whole stream
  std::deque<Item> items_;      // in order; the last one may be open
  int64_t items_begun_ = 0;
  std::optional<Pass> pass_;
};

// Where a full window is cut: the middle of the quietest 0.2 s of its last five seconds.
// samples: at least LiveTranscript::kWindow.
size_t quiet_cut(std::span<const float> samples);

}  // namespace pelton::speech
