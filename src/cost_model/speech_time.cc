#include "cost_model/speech_time.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cost_model/step_parts.h"

namespace pelton::cost_model {
namespace {

constexpr double kTaps = 3;        // of either convolution
constexpr double kFramesEach = 2;  // of a position: the first convolution has one for each

// Matrices of one layer: queries, keys, values and what leaves attention; what feeds forward.
double own_attention(double hidden) {
  return 4 * hidden * hidden;
}
double feed_forward(double hidden, double inner) {
  return 2 * hidden * inner;
}
// Of the decoder's look at the sound, for each of its tokens: keys and values are a window's.
double cross_attention(double hidden) {
  return 2 * hidden * hidden;
}

double encoder_layers(const SpeechShape& shape) {
  return shape.encoder.layers *
         (own_attention(shape.hidden) + feed_forward(shape.hidden, shape.encoder.inner));
}
double decoder_layers(const SpeechShape& shape) {
  return shape.decoder.layers * (own_attention(shape.hidden) + cross_attention(shape.hidden) +
                                 feed_forward(shape.hidden, shape.decoder.inner));
}
double cross_keys(const SpeechShape& shape) {
  return shape.decoder.layers * 2.0 * shape.hidden * shape.hidden;
}
double words(const SpeechShape& shape) {
  return static_cast<double>(shape.hidden) * shape.vocab;
}

// Two convolutions, of which the first runs over all frames.
double first_convolution(const SpeechShape& shape) {
  return kTaps * shape.mel_bands * shape.hidden;
}
double second_convolution(const SpeechShape& shape) {
  return kTaps * shape.hidden * static_cast<double>(shape.hidden);
}

}  // namespace

double SpeechShape::parameters() const {
  return first_convolution(*this) + second_convolution(*this) + encoder_layers(*this) +
         decoder_layers(*this) + cross_keys(*this) + words(*this) +
         static_cast<double>(hidden) * (positions + text_positions);
}

Result<SpeechTimeModel> SpeechTimeModel::make(Options options) {
  TRY_ASSIGN(const double rate, options.hardware.rate(options.arithmetic));
  return SpeechTimeModel(std::move(options), rate);
}

SpeechTimeModel::SpeechTimeModel(Options options, double rate)
    : options_(std::move(options)), rate_(rate) {}

StepCost SpeechTimeModel::encoder_cost() const {
  const SpeechShape& shape = options_.shape;
  const double bytes = shape.weight_bits / 8;
  const double positions = shape.positions;
  const double each = second_convolution(shape) + encoder_layers(shape) + cross_keys(shape);
  StepCost cost{.tokens = positions};
  cost.projections = {
      .bytes = (first_convolution(shape) + each) * bytes,
      .operations = 2 * positions * (kFramesEach * first_convolution(shape) + each)};
  // A head's keys and values stay in a cache while all rows see them.
  const double seen = positions * shape.hidden * shape.encoder.layers;
  cost.attention = {.bytes = 2 * shape.kv_element_bytes * seen, .operations = 4 * positions * seen};
  return cost;
}

StepCost SpeechTimeModel::decoder_cost(double windows, double rows, double context) const {
  const SpeechShape& shape = options_.shape;
  const double bytes = shape.weight_bits / 8;
  const double tokens = windows * rows;
  StepCost cost{.tokens = tokens};
  cost.projections = {.bytes = decoder_layers(shape) * bytes,
                      .operations = 2 * decoder_layers(shape) * tokens};
  cost.head = {.bytes = words(shape) * bytes, .operations = 2 * words(shape) * tokens};
  const double seen = shape.positions + context + (rows + 1) / 2;  // by each row, a mean
  const double keys = windows * seen * shape.hidden * shape.decoder.layers;
  cost.attention = {.bytes = 2 * shape.kv_element_bytes * keys, .operations = 4 * rows * keys};
  return cost;
}

double SpeechTimeModel::roofline_seconds(const StepCost& cost) const {
  const Efficiency& efficiency = options_.efficiency;
  const StepTime time =
      roofline_parts(cost, efficiency,
                     {.bytes_per_second = options_.hardware.bytes_per_second * efficiency.bandwidth,
                      .rate = rate_,
                      .negligible = negligible_share(efficiency)});
  return time.weights_s + time.attention_s + efficiency.step_s + efficiency.token_s * cost.tokens;
}

double SpeechTimeModel::encode_seconds() const {
  const SpeechShape& shape = options_.shape;
  return roofline_seconds(encoder_cost()) +
         options_.efficiency.layer_s * (shape.encoder.layers + shape.decoder.layers);
}

double SpeechTimeModel::prompt_seconds(double tokens) const {
  const Efficiency& efficiency = options_.efficiency;
  return roofline_seconds(decoder_cost(1, tokens, 0)) +
         efficiency.layer_s * options_.shape.decoder.layers + efficiency.row_s +
         efficiency.sample_s;
}

double SpeechTimeModel::step_seconds(int windows, double context) const {
  const Efficiency& efficiency = options_.efficiency;
  return roofline_seconds(decoder_cost(windows, 1, context)) +
         efficiency.layer_s * options_.shape.decoder.layers +
         (efficiency.row_s + efficiency.sample_s) * windows;
}

// A step's time is all but linear in what stands before, so the middle of what all that still run
// say stands for all of it. The prompt's step gives the first token, and the last one's the end.
double SpeechTimeModel::seconds(std::span<const SpeechWindow> windows) const {
  double seconds = 0;
  std::vector<double> texts;
  double prompts = 0;
  for (const SpeechWindow& window : windows) {
    seconds += encode_seconds() + prompt_seconds(window.prompt_tokens);
    texts.push_back(window.text_tokens);
    prompts += window.prompt_tokens / static_cast<double>(windows.size());
  }
  std::ranges::sort(texts);
  double said = 0;
  for (size_t ended = 0; ended < texts.size(); ++ended) {
    const double steps = texts[ended] - said;
    if (steps <= 0) continue;
    const auto running = static_cast<int>(texts.size() - ended);
    seconds += steps * step_seconds(running, prompts + said + steps / 2);
    said = texts[ended];
  }
  return seconds;
}

double text_tokens(const SpeechShape& shape, double tokens_per_s, double seconds) {
  return std::min(tokens_per_s * seconds, shape.text_tokens_max());
}

std::vector<SpeechWindow> speech_windows(const SpeechShape& shape, double tokens_per_s,
                                         double seconds) {
  const double whole = shape.window_seconds();
  const auto count = std::max<size_t>(static_cast<size_t>(std::ceil(seconds / whole)), 1);
  std::vector<SpeechWindow> windows;
  double before = 0;
  for (size_t i = 0; i < count; ++i) {
    const double left = seconds - static_cast<double>(i) * whole;
    const double said = text_tokens(shape, tokens_per_s, std::min(left, whole));
    windows.push_back({.prompt_tokens = kAskedTokens + before, .text_tokens = said});
    before = said;
  }
  return windows;
}

}  // namespace pelton::cost_model
