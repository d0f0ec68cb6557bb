// pelton bench speech: how soon a running server speaks, and how many streams it keeps in real
// time.
#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/bench_lock.h"
#include "apps/input.h"
#include "apps/load_flags.h"
#include "apps/server_address.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/split.h"
#include "bench/sound_load.h"
#include "bench/speech_answer.h"
#include "bench/stream_load.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "net/http_client.h"

namespace pelton::apps {
namespace {

using bench::percentile;
using bench::SpeechAnswer;
using cli::Flag;

constexpr int kStreamsMax = 4096;
constexpr std::string_view kSentences[] = {
    "The wheel turns slowly, and the water falls into the next bucket.",
    "Please leave a message after the tone, and we will call you back.",
    "In the morning the fog lifts, and one can see as far as the other shore.",
    "Your train leaves from platform four in about seven minutes.",
    "She opened the letter, read it twice, and put it back on the table.",
    "There is a good chance of rain this evening, so take an umbrella with you."};

struct Plan {
  net::HttpCall call;
  std::string base_url;
  std::string model;
  std::string voice;
  std::vector<std::string> texts;
  std::vector<int> levels;  // streams at once
  int rounds = 0;
  int64_t max_tokens = 0;  // 0: the server's
  double buffer_s = 0.0;
};

// So many streams at once, and what came of it.
struct Level {
  int streams = 0;
  double seconds = 0.0;
  std::vector<std::shared_ptr<SpeechAnswer>> answers;  // also those that failed

  std::vector<double> first_sounds_s() const {
    std::vector<double> times;
    for (const auto& answer : answers) {
      if (answer->failure().empty()) times.push_back(answer->first_sound_s());
    }
    return times;
  }
  std::string failure() const {
    for (const auto& answer : answers) {
      if (!answer->failure().empty()) return answer->failure();
    }
    return {};
  }
  int64_t failed() const {
    return std::ranges::count_if(answers,
                                 [](const auto& answer) { return !answer->failure().empty(); });
  }
  int64_t kept() const {
    return std::ranges::count_if(answers,
                                 [](const auto& answer) { return answer->keeps_real_time(); });
  }
  bool keeps_real_time() const { return kept() == static_cast<int64_t>(answers.size()); }

  template <typename Of>
  double sum(const Of& of) const {
    double sum = 0.0;
    for (const auto& answer : answers) sum += static_cast<double>(of(answer->player()));
    return sum;
  }
  double sound_s() const {
    return sum([](const auto& player) { return player.sound_s(); });
  }
  int64_t underruns() const {
    return static_cast<int64_t>(sum([](const auto& player) { return player.underruns(); }));
  }
  double waited_s() const {
    return sum([](const auto& player) { return player.waited_s(); });
  }
};

Error bad(std::string what, std::string field) {
  return {ErrorCode::kInvalidArgument, std::move(what), std::move(field)};
}

Result<std::vector<int>> read_levels(const std::string& text) {
  std::vector<int> levels;
  for (const std::string_view word : base::split(text, ',')) {
    int streams = 0;
    const char* const word_end = word.data() + word.size();
    const auto [end, failure] = std::from_chars(word.data(), word_end, streams);
    if (failure != std::errc() || end != word_end || streams < 1 || streams > kStreamsMax) {
      return bad(fmt::format("--streams wants numbers from 1 to {}, as 1,2,4; not '{}'",
                             kStreamsMax, text),
                 "streams");
    }
    levels.push_back(streams);
  }
  return levels;
}

Result<std::vector<std::string>> read_texts(const cli::Arguments& arguments) {
  if (arguments.has("--input")) return arguments.list("--input");
  if (!arguments.has("--input-file")) {
    return std::vector<std::string>(std::begin(kSentences), std::end(kSentences));
  }
  TRY_ASSIGN(const std::string text, read_input(arguments.text("--input-file")));
  std::vector<std::string> texts;
  for (const std::string_view line : base::split(text, '\n')) {
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) texts.emplace_back(line);
  }
  if (texts.empty()) return bad("--input-file: no line with a text", "input-file");
  return texts;
}

// The model and the voice that were not named: the first that the server lists.
Result<void> ask_for_voices(Plan& plan) {
  if (!plan.model.empty() && !plan.voice.empty()) return {};
  net::HttpCall call = plan.call;
  call.method = "GET";
  constexpr std::string_view kOwn = "/v1/audio/speech";
  call.target.replace(call.target.size() - kOwn.size(), kOwn.size(), "/v1/audio/voices");
  TRY_ASSIGN(const net::HttpResponse answer, net::http_fetch(std::move(call)));
  const Result<Json> list = Json::parse(answer.body);
  const Json* const voices = list.ok() && list->is_object() ? list->find("data") : nullptr;
  if (answer.status == 200 && voices != nullptr && voices->is_array()) {
    for (const Json& voice : voices->as_array()) {
      if (!voice.is_object()) continue;
      const std::string model = voice.string("model").value_or("");
      if (!plan.model.empty() && model != plan.model) continue;
      plan.model = model;
      if (plan.voice.empty()) plan.voice = voice.string("id").value_or("");
      return {};
    }
  }
  return Error{ErrorCode::kUnavailable,
               fmt::format("{} lists no voices (HTTP {}): name a --model and a --voice",
                           plan.base_url, answer.status),
               {}};
}

Result<Plan> read_plan(const cli::Arguments& arguments) {
  TRY_ASSIGN(bench::Target target, server_target(arguments, {.base_url = {},
                                                             .endpoint = "/v1/audio/speech",
                                                             .model = arguments.text("--model"),
                                                             .headers = {}}));
  Plan plan{.call = std::move(target.call),
            .base_url = target.base_url,
            .model = target.model,
            .voice = arguments.text("--voice"),
            .rounds = static_cast<int>(arguments.integer("--rounds")),
            .buffer_s = arguments.number("--buffer")};
  if (arguments.has("--max-tokens")) plan.max_tokens = arguments.integer("--max-tokens");
  plan.call.quiet_time_max = plan.call.head_time_max =
      std::chrono::milliseconds(static_cast<int64_t>(arguments.number("--timeout-sec") * 1000));
  TRY_ASSIGN(plan.levels, read_levels(arguments.text("--streams")));
  TRY_ASSIGN(plan.texts, read_texts(arguments));
  return plan;
}

// The same number asks for the same sound: by its text and its seed.
std::string body(const Plan& plan, int number) {
  std::string out;
  base::JsonWriter writer(out);
  writer.begin_object().key("model").string(plan.model).key("voice").string(plan.voice);
  writer.key("input").string(plan.texts[static_cast<size_t>(number) % plan.texts.size()]);
  writer.key("response_format").string("wav").key("seed").integer(number);
  if (plan.max_tokens > 0) writer.key("max_tokens").integer(plan.max_tokens);
  writer.end_object();
  return out;
}

Result<Level> measure(const Plan& plan, int streams, const cli::Interrupt& interrupt,
                      cli::Progress& progress) {
  Level level{.streams = streams};
  const int count = streams * plan.rounds;
  for (int i = 0; i < count; ++i) {
    level.answers.push_back(std::make_shared<SpeechAnswer>(plan.buffer_s));
  }
  progress.begin(fmt::format("{} stream{} at once", streams, streams == 1 ? "" : "s"),
                 cli::Progress::Unit::kCount);
  bench::SoundLoad load;
  level.seconds = load.run({.count = count,
                            .at_once = streams,
                            .ask =
                                [&](int number) {
                                  net::HttpCall call = plan.call;
                                  call.body = body(plan, number);
                                  return bench::SoundLoad::Asked{
                                      .call = std::move(call),
                                      .answer = level.answers[static_cast<size_t>(number)]};
                                },
                            .stops = [&] { return interrupt.pending(); },
                            .on_done = [&](int done) { progress.update(done, count); }});
  progress.clear();
  if (interrupt.pending()) return Error{ErrorCode::kCancelled, "interrupted", {}};
  if (level.failed() < count) return level;
  return Error{ErrorCode::kUnavailable,
               fmt::format("no answer at {} at once: {}", streams, level.failure()),
               {}};
}

int streams_in_real_time(const std::vector<Level>& levels) {
  int most = 0;
  for (const Level& level : levels) {
    if (level.keeps_real_time()) most = std::max(most, level.streams);
  }
  return most;
}

std::string to_text(const Plan& plan, const std::vector<Level>& levels) {
  std::string out = fmt::format(
      "{}, voice {}: {} answers for each stream; a player begins with {:.2f} s of sound\n"
      "{:>7} {:>8} {:>6} {:>12} {:>12} {:>14} {:>9} {:>9} {:>12}\n",
      plan.model, plan.voice, plan.rounds, plan.buffer_s, "streams", "answers", "failed",
      "first p50 s", "first p99 s", "sound s/s", "underruns", "waited s", "in real time");
  for (const Level& level : levels) {
    const std::vector<double> firsts = level.first_sounds_s();
    out += fmt::format("{:>7} {:>8} {:>6} {:>12.3f} {:>12.3f} {:>14.2f} {:>9} {:>9.2f} {:>12}\n",
                       level.streams, level.answers.size(), level.failed(), percentile(firsts, 0.5),
                       percentile(firsts, 0.99), level.sound_s() / level.seconds, level.underruns(),
                       level.waited_s(), level.kept());
  }
  for (const Level& level : levels) {
    if (level.failed() == 0) continue;
    out += fmt::format("failed at {} at once: {}\n", level.streams, level.failure());
  }
  const int most = streams_in_real_time(levels);
  out += most == 0 ? "no number of streams was in real time throughout\n"
                   : fmt::format("in real time throughout: {} stream{} at once\n", most,
                                 most == 1 ? "" : "s");
  return out;
}

std::string to_json(const Plan& plan, const std::vector<Level>& levels) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("base_url").string(plan.base_url).key("model").string(plan.model);
  w.key("voice").string(plan.voice).key("rounds").integer(plan.rounds);
  w.key("buffer_s").number(plan.buffer_s);
  w.key("streams_in_real_time").integer(streams_in_real_time(levels));
  w.key("levels").begin_array();
  for (const Level& level : levels) {
    const std::vector<double> firsts = level.first_sounds_s();
    w.begin_object().key("streams").integer(level.streams);
    w.key("answers").integer(static_cast<int64_t>(level.answers.size()));
    w.key("failed").integer(level.failed()).key("failure").string(level.failure());
    w.key("seconds").number(level.seconds).key("audio_s").number(level.sound_s());
    w.key("first_audio_p50_s").number(percentile(firsts, 0.5));
    w.key("first_audio_p99_s").number(percentile(firsts, 0.99));
    w.key("first_audio_max_s").number(percentile(firsts, 1.0));
    w.key("underruns").integer(level.underruns()).key("waited_s").number(level.waited_s());
    w.key("in_real_time").integer(level.kept()).end_object();
  }
  w.end_array().end_object();
  out += '\n';
  return out;
}

Result<void> run_bench_speech(const cli::Arguments& arguments) {
  TRY_ASSIGN(Plan plan, read_plan(arguments));
  const cli::Interrupt interrupt;
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(&interrupt));
  TRY(ask_for_voices(plan));
  const base::SystemClock clock;
  cli::Progress progress("", cli::Progress::Unit::kCount, clock);
  std::vector<Level> levels;
  for (const int streams : plan.levels) {
    TRY_ASSIGN(Level level, measure(plan, streams, interrupt, progress));
    levels.push_back(std::move(level));
  }
  if (arguments.has("--json")) {
    const std::string json = to_json(plan, levels);
    if (arguments.text("--json") == "-") return write_output(json);
    TRY(base::write_file(arguments.text("--json"), json));
  }
  return write_text(to_text(plan, levels));
}

}  // namespace

cli::Verb bench_speech_verb() {
  Flag input = text_flag("--input", "TEXT", "what is said, in turn; default six sentences");
  input.many = true;
  input.not_with = {{"--input-file"}};
  std::vector<Flag> flags = server_address_flags();
  for (Flag& flag : std::vector<Flag>{
           text_flag("--model", "NAME", "default the first that has voices"),
           text_flag("--voice", "NAME", "default the model's first"),
           text_flag("--streams", "N,N", "how many at once, one measurement each", "1,2,4,8"),
           count_flag("--rounds", "R", "answers one behind the other of each stream", "2", 1, 1000),
           std::move(input), text_flag("--input-file", "FILE", "the same, a text a line"),
           count_flag("--max-tokens", "N", "of an answer; default the server's", "", 1, 1e6),
           number_flag("--buffer", "S", "seconds of sound that a player has before it begins", "0",
                       0, 60),
           number_flag("--timeout-sec", "S", "silence after which an answer has failed", "600", 0.1,
                       86'400),
           text_flag("--json", "FILE", "also write the numbers; - is stdout")}) {
    flags.push_back(std::move(flag));
  }
  return {
      .name = "bench speech",
      .summary = "Measures how soon a server speaks, and how many streams it keeps in real time.",
      .about =
          "Asks /v1/audio/speech of a running server for WAV, --streams at once, and plays what\n"
          "comes: a player begins with the first sound (or --buffer) and waits whenever it has "
          "none\n"
          "left, an underrun. Prints the time to the first sound, seconds of sound for each "
          "second\n"
          "of all streams together, and how many at once were played without a break.\n"
          "$OPENAI_API_KEY is sent as the key.",
      .positionals = {},
      .flags = std::move(flags),
      .examples = {"pelton bench speech",
                   "pelton bench speech --streams 1,4,16 --rounds 4 --json -",
                   "pelton bench speech --voice tara --input 'Hello there.' --buffer 0.2"},
      .run = run_bench_speech,
  };
}

}  // namespace pelton::apps
