#include "planner/speech_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "planner/fleet_plan.h"

namespace pelton::planner {
namespace {

using cost_model::SpeechShape;
using cost_model::SpeechTimeModel;
using cost_model::SpeechWindow;

constexpr double kPassStep_s = 0.5;  // of new sound between two passes over an open window
constexpr int64_t kStreamsMax = 100'000;

double d(int64_t value) {
  return static_cast<double>(value);
}

// Of live sound: a pass over a window that is half full, of whose text all stands but what two
// passes have not agreed on.
double live_pass_seconds(const SpeechPlanOptions& options, const SpeechTimeModel& model,
                         double interval_s) {
  const SpeechShape& shape = options.timing.shape;
  const auto said = [&](double seconds) {
    return cost_model::text_tokens(shape, options.text_tokens_per_s, seconds);
  };
  const double half = shape.window_seconds() / 2;
  const double fresh = said(std::min(2 * interval_s, half));
  const SpeechWindow window{.prompt_tokens = cost_model::kAskedTokens + said(half) - fresh,
                            .text_tokens = fresh};
  return model.seconds({&window, 1});
}

// From one pass over a stream to its next, where so many have them in turn; nothing: they come
// further behind with each.
std::optional<double> live_interval_seconds(const SpeechPlanOptions& options,
                                            const SpeechTimeModel& model, int64_t streams) {
  double interval = kPassStep_s;
  const double most = options.timing.shape.window_seconds();
  constexpr int kRounds = 64;  // it only rises, and mostly stands after a few
  for (int round = 0; round < kRounds && interval < most; ++round) {
    const double next =
        std::max(kPassStep_s, d(streams) * live_pass_seconds(options, model, interval));
    if (next <= interval * 1.0001) return interval;
    interval = next;
  }
  return std::nullopt;
}

// Sound that just missed a pass is in the next one, and its text stands when the one behind that
// agrees.
bool is_in_time(const SpeechPlanOptions& options, const SpeechTimeModel& model, int64_t streams) {
  const auto interval = live_interval_seconds(options, model, streams);
  if (!interval) return false;
  return 2 * *interval + live_pass_seconds(options, model, *interval) <= options.live_delay_s;
}

int64_t live_streams_in_time(const SpeechPlanOptions& options, const SpeechTimeModel& model) {
  int64_t low = 0;
  int64_t high = kStreamsMax;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (is_in_time(options, model, middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

double taken_bytes(const SpeechPlanOptions& options) {
  double bytes = 0;
  for (const MemoryLine& line : options.memory) bytes += line.bytes;
  return bytes;
}

std::string key_of(std::string name) {
  std::ranges::replace(name, ' ', '_');
  return name;
}

Section memory_of_speech(const SpeechPlanOptions& options) {
  Section section{.key = "memory",
                  .title = fmt::format("Memory of one {}", options.timing.hardware.title)};
  for (const MemoryLine& line : options.memory) {
    section.figures.push_back(
        {key_of(line.name), line.name, line.bytes, Unit::kBytes, line.formula});
  }
  const double taken = taken_bytes(options);
  section.figures.push_back({"taken_bytes", "together", taken, Unit::kBytes, "their sum"});
  section.figures.push_back({"allowed_bytes", "allowed", options.allowed_bytes, Unit::kBytes,
                             "--memory-utilization of the device's"});
  section.figures.push_back({"each_more_bytes", "each window more in a batch",
                             options.each_more_bytes, Unit::kBytes,
                             "keys and values of its states and of its text"});
  const double room = std::max(options.allowed_bytes - taken, 0.0) / options.each_more_bytes;
  section.figures.push_back(
      {"windows_that_fit", "windows that fit at once",
       taken > options.allowed_bytes ? 0 : options.batch_max + std::floor(room), Unit::kCount,
       "the batch, and what is left over a window's bytes"});
  return section;
}

Figure ranged(const SpeechPlanOptions& options, Figure figure) {
  const double worse = 1 + options.spread;
  figure.range = Figure::Range{figure.value / worse, figure.value * worse};
  return figure;
}

Section speed_section(const SpeechPlanOptions& options, const SpeechTimeModel& model,
                      const SpeechRates& rates) {
  const SpeechShape& shape = options.timing.shape;
  Section section{.key = "speed",
                  .title = fmt::format("Speed of one {}", options.timing.hardware.title)};
  const SpeechWindow full = full_window(options);
  const auto add = [&](Figure figure) {
    section.figures.push_back(ranged(options, std::move(figure)));
  };
  add({"encode_s", "a window's encoder", model.encode_seconds(), Unit::kSeconds,
       fmt::format("{} positions through {} layers, and keys and values for {}", shape.positions,
                   shape.encoder.layers, shape.decoder.layers)});
  add({"step_s", "a token of one window",
       model.step_seconds(1, full.prompt_tokens + full.text_tokens / 2), Unit::kSeconds,
       fmt::format("{} layers and {} words, in the middle of a window's text", shape.decoder.layers,
                   shape.vocab)});
  add({"first_text_s", "first text of a lone file", rates.first_text_s, Unit::kSeconds,
       fmt::format("one window, {:.0f} tokens", full.text_tokens)});
  add({"file_s", fmt::format("a lone file of {:.0f} s", options.file_seconds), rates.file_s,
       Unit::kSeconds,
       fmt::format("{} windows of {:.0f} s, {} tokens a second of sound",
                   std::ceil(options.file_seconds / shape.window_seconds()), shape.window_seconds(),
                   options.text_tokens_per_s)});
  add({"real_time_factor", "its real-time factor", rates.file_factor, Unit::kRatio,
       "seconds for each second of sound"});
  add({"batch_factor", fmt::format("of {} files together", options.batch_max), rates.batch_factor,
       Unit::kRatio, "encoders one after the other, a token of each in one step"});
  add({"audio_hours", "hours of sound in an hour", 1 / rates.batch_factor, Unit::kRatio,
       fmt::format("files, {} at once: 1 / {:.4g}", options.batch_max, rates.batch_factor)});
  add({"live_pass_s", "a pass over a live window", rates.live_pass_s, Unit::kSeconds,
       "half full, of a lone stream: the encoder, and what has not been agreed on"});
  section.figures.push_back({"half_second_streams", "live streams with a pass each half second",
                             d(rates.half_second_streams), Unit::kCount,
                             "in turn, one window at a time"});
  section.figures.push_back(
      {"live_streams",
       fmt::format("live streams, text at most {:.3g} s late", options.live_delay_s),
       d(rates.live_streams), Unit::kCount,
       "two rounds of passes and one pass: text stands where two passes agree"});
  section.notes.push_back(fmt::format(
      "{} tokens of text are taken for each second of sound: people say 150 words a minute, a word "
      "is 1.3 tokens, and each segment has two timestamps. A doubtful window is decoded up to six "
      "times, and beams, reading files and their spectrograms are not counted.",
      options.text_tokens_per_s));
  section.notes.push_back(fmt::format(
      "Taken of the hardware: {} of its bandwidth, {} of its {} rate, {} of it in attention: {}. "
      "Ranges: {:.0f} % quicker or slower.",
      format_modelled(options.timing.efficiency.bandwidth, Unit::kShare),
      format_modelled(options.timing.efficiency.compute, Unit::kShare),
      cost_model::arithmetic_name(options.timing.arithmetic),
      format_modelled(options.timing.efficiency.attention, Unit::kShare), options.efficiency_source,
      options.spread * 100));
  return section;
}

std::string target_words(const SpeechPlanOptions& options) {
  std::vector<std::string> parts;
  if (options.audio_hours_per_hour) {
    parts.push_back(fmt::format("{:.4g} hours of sound an hour", *options.audio_hours_per_hour));
  }
  if (options.live_streams) parts.push_back(fmt::format("{} live streams", *options.live_streams));
  return fmt::format("{}", fmt::join(parts, " and "));
}

void add_replicas(const SpeechPlanOptions& options, const SpeechRates& rates, PlanReport& report) {
  const Result<SpeechReplicas> replicas = speech_replicas(options, rates);
  report.meets_objectives = replicas.ok();
  if (!replicas.ok()) {
    report.headline.push_back(replicas.error().message);
    return;
  }
  const int64_t all = replicas->together();
  const int64_t machines = (all + options.devices - 1) / options.devices;
  Section section{.key = "replicas", .title = "Replicas for " + target_words(options)};
  const double kept = 1 - options.headroom;
  if (options.audio_hours_per_hour) {
    section.figures.push_back(
        {"for_files", "for files", d(replicas->for_files), Unit::kCount,
         fmt::format("{:.4g} x {:.4g} / (1 - {:.2f} headroom), rounded up",
                     *options.audio_hours_per_hour, rates.batch_factor, options.headroom)});
  }
  if (options.live_streams) {
    section.figures.push_back(
        {"for_live", "for live streams", d(replicas->for_live), Unit::kCount,
         fmt::format("{} / {:.0f}, rounded up", *options.live_streams,
                     std::max(std::floor(d(rates.live_streams) * kept), 1.0))});
  }
  section.figures.push_back({"machines", "machines", d(machines), Unit::kCount,
                             fmt::format("{} replicas, {} on a machine", all, options.devices)});
  if (options.price_per_hour > 0) {
    section.figures.push_back(
        {"cost_per_hour", "an hour", d(machines) * options.price_per_hour, Unit::kDollars,
         fmt::format("{} x ${}; {}", machines, options.price_per_hour, options.price_source)});
  }
  report.headline.push_back(fmt::format(
      "{} replica{} on {} machine{} for {}, {:.0f} % left unused.", all, all == 1 ? "" : "s",
      machines, machines == 1 ? "" : "s", target_words(options), options.headroom * 100));
  report.sections.insert(report.sections.begin(), std::move(section));
}

std::string speed_sentence(const SpeechPlanOptions& options, const SpeechRates& rates) {
  return fmt::format(
      "One replica hears a lone file in {} of its time, {} hours of sound an hour "
      "where {} files are there at once, and {} live stream{}.",
      format_modelled(rates.file_factor, Unit::kRatio),
      format_modelled(1 / rates.batch_factor, Unit::kRatio), options.batch_max, rates.live_streams,
      rates.live_streams == 1 ? "" : "s");
}

const std::string& place_name(const SpeechPlanOptions& options) {
  return options.machine.empty() ? options.timing.hardware.title : options.machine;
}

std::string first_sentence(const SpeechPlanOptions& options, const SpeechRates& rates,
                           double taken) {
  const std::string& title = options.timing.hardware.title;
  if (taken > options.allowed_bytes) {
    return fmt::format("{} does not fit on one {}: it takes {}, {} are allowed, short by {}.",
                       options.model, title, format(taken, Unit::kBytes),
                       format(options.allowed_bytes, Unit::kBytes),
                       format(taken - options.allowed_bytes, Unit::kBytes));
  }
  if (options.memory.empty()) return speed_sentence(options, rates);
  return fmt::format("{} fits on one {}.{}", options.model, title,
                     options.memory_only ? "" : " " + speed_sentence(options, rates));
}

}  // namespace

SpeechWindow full_window(const SpeechPlanOptions& options) {
  const SpeechShape& shape = options.timing.shape;
  const double text =
      cost_model::text_tokens(shape, options.text_tokens_per_s, shape.window_seconds());
  return {.prompt_tokens = cost_model::kAskedTokens + text, .text_tokens = text};
}

SpeechRates speech_rates(const SpeechPlanOptions& options, const SpeechTimeModel& model) {
  const double window = options.timing.shape.window_seconds();
  SpeechRates rates;
  const std::vector<SpeechWindow> file = cost_model::speech_windows(
      options.timing.shape, options.text_tokens_per_s, options.file_seconds);
  for (const SpeechWindow& one : file) rates.file_s += model.seconds({&one, 1});
  rates.first_text_s = model.seconds({file.data(), 1});
  rates.file_factor = rates.file_s / options.file_seconds;
  const std::vector<SpeechWindow> batch(static_cast<size_t>(options.batch_max),
                                        full_window(options));
  rates.batch_factor = model.seconds(batch) / (options.batch_max * window);
  rates.live_pass_s = live_pass_seconds(
      options, model, live_interval_seconds(options, model, 1).value_or(window / 2));
  rates.half_second_streams =
      static_cast<int64_t>(kPassStep_s / live_pass_seconds(options, model, kPassStep_s));
  rates.live_streams = live_streams_in_time(options, model);
  return rates;
}

Result<SpeechReplicas> speech_replicas(const SpeechPlanOptions& options, const SpeechRates& rates) {
  SpeechReplicas replicas;
  const double kept = 1 - options.headroom;
  if (options.audio_hours_per_hour) {
    replicas.for_files =
        static_cast<int64_t>(std::ceil(*options.audio_hours_per_hour * rates.batch_factor / kept));
  }
  if (!options.live_streams) return replicas;
  if (rates.live_streams == 0) {
    return Error{
        ErrorCode::kDoesNotFit,
        fmt::format("No live stream's text comes within {:.3g} s: a pass over its window "
                    "takes {}, and text stands after two rounds of them and one more.",
                    options.live_delay_s, format_modelled(rates.live_pass_s, Unit::kSeconds)),
        "live-streams"};
  }
  const int64_t each = std::max<int64_t>(static_cast<int64_t>(d(rates.live_streams) * kept), 1);
  replicas.for_live = (*options.live_streams + each - 1) / each;
  return replicas;
}

Result<PlanReport> plan_speech(const SpeechPlanOptions& options) {
  TRY_ASSIGN(const SpeechTimeModel model, SpeechTimeModel::make(options.timing));
  const SpeechRates rates = speech_rates(options, model);
  const double taken = taken_bytes(options);
  PlanReport report{.title = fmt::format("{} on {}", options.model, place_name(options)),
                    .sections = {}};
  report.fits = taken <= options.allowed_bytes;
  report.headline = {options.timing.hardware.is_processor()
                         ? worth_sentence(options.timing.hardware, {})
                         : "Modelled, and nothing that `pelton serve` can run: it turns sound into "
                           "text on processors alone.",
                     first_sentence(options, rates, taken)};
  if (!options.memory.empty()) report.sections.push_back(memory_of_speech(options));
  if (options.memory_only) return report;
  report.sections.push_back(speed_section(options, model, rates));
  if (report.fits && (options.audio_hours_per_hour || options.live_streams)) {
    add_replicas(options, rates, report);
  }
  return report;
}

}  // namespace pelton::planner
