// How long a model that turns sound into text takes: the roofline of step_time.h for Whisper's
// parts. Of each window of sound an encoder runs once over all its positions, each of which sees
// all others; the decoder's keys and values of these states are computed once; then a prompt and
// one token after the other, a few windows in one step. Pure.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "cost_model/hardware.h"
#include "cost_model/step_cost.h"
#include "cost_model/step_time.h"

namespace pelton::cost_model {

struct SpeechShape {
  struct Stack {
    int layers = 0;
    int inner = 0;
  };
  int hidden = 0;
  int mel_bands = 80;
  int vocab = 0;
  int positions = 1500;      // states of a window, 20 ms of sound each
  int text_positions = 448;  // of the decoder, prompt included
  Stack encoder;
  Stack decoder;
  double weight_bits = 16;      // as the file has them
  double kv_element_bytes = 4;  // float32

  double window_seconds() const { return 0.02 * positions; }
  // Tokens that are said of one window at most.
  double text_tokens_max() const { return text_positions / 2 - 1; }
  // Weights, words and positions; without norms and biases.
  double parameters() const;
};

// What is decoded of a window.
struct SpeechWindow {
  double prompt_tokens = 4;  // before the text: what was said before, and what is asked for
  double text_tokens = 0;    // that are said, the last one's end not counted
};
// Start of text, language and task.
inline constexpr double kAskedTokens = 4;
// Of sound of so many seconds, as much as is said of one window at most.
double text_tokens(const SpeechShape& shape, double tokens_per_s, double seconds);
// Of a file, in order, one at least: whole windows, but for the last; the text of each is the next
// one's prompt.
std::vector<SpeechWindow> speech_windows(const SpeechShape& shape, double tokens_per_s,
                                         double seconds);

class SpeechTimeModel {
 public:
  struct Options {
    Hardware hardware;
    SpeechShape shape;
    Efficiency efficiency;
    Arithmetic arithmetic = Arithmetic::kBf16;
  };
  // kInvalidArgument: arithmetic the hardware lacks.
  static Result<SpeechTimeModel> make(Options options);

  // Of one window: the encoder, and keys and values of its states.
  double encode_seconds() const;
  // Of a window's first tokens in one step, with a row of logits each.
  double prompt_seconds(double tokens) const;
  // One token in each of so many windows, each behind `context` others.
  double step_seconds(int windows, double context) const;
  // All of windows that are heard together: encoders and prompts one after the other, then a token
  // of each in one step, until the last one's text ends.
  double seconds(std::span<const SpeechWindow> windows) const;

  const Options& options() const { return options_; }

 private:
  SpeechTimeModel(Options options, double rate);
  StepCost encoder_cost() const;
  // `rows` tokens in each of `windows`, the first of which stand behind `context` others.
  StepCost decoder_cost(double windows, double rows, double context) const;
  double roofline_seconds(const StepCost& cost) const;

  Options options_;
  double rate_;
};

}  // namespace pelton::cost_model
