// pelton bench transcribe: files through a running server: how fast it hears, and how much of it
// wrong.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/bench_lock.h"
#include "apps/bench_transcribe_live.h"
#include "apps/input.h"
#include "apps/load_flags.h"
#include "apps/server_address.h"
#include "apps/sound_files.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "bench/sound_load.h"
#include "bench/stream_load.h"
#include "bench/transcript_answer.h"
#include "bench/word_errors.h"
#include "cli/interrupt.h"
#include "cli/progress.h"

namespace pelton::apps {
namespace {

using bench::percentile;
using bench::TranscriptAnswer;
using cli::Flag;

struct Plan {
  net::HttpCall call;
  std::string base_url;
  std::vector<std::pair<std::string, std::string>> fields;
  std::vector<SoundFile> files;
  int rounds = 0;
  int at_once = 0;
  bool streams = false;

  double sound_s() const {
    double seconds = 0.0;
    for (const SoundFile& file : files) seconds += file.seconds;
    return seconds * rounds;
  }
};

// What came of the files, one answer for each file of each round.
struct Heard {
  double seconds = 0.0;
  std::vector<std::shared_ptr<TranscriptAnswer>> answers;
  double sound_s = 0.0;        // of those that are transcripts
  bench::WordErrors words;     // of files with a reference
  int64_t with_reference = 0;  // answers
  int64_t failed = 0;
  std::string failure;  // the first one's

  // Seconds for each second of sound.
  double real_time_factor() const { return sound_s > 0.0 ? seconds / sound_s : 0.0; }
  std::vector<double> times(double (TranscriptAnswer::*of)() const) const {
    std::vector<double> all;
    for (const auto& answer : answers) {
      if (answer->failure().empty()) all.push_back((*answer.*of)());
    }
    return all;
  }
};

Result<Plan> read_plan(const cli::Arguments& arguments, const cli::Interrupt& interrupt) {
  TRY_ASSIGN(bench::Target target,
             server_target(arguments, {.base_url = {},
                                       .endpoint = arguments.text("--endpoint"),
                                       .model = arguments.text("--model"),
                                       .headers = {},
                                       .content_type = {}}));
  Plan plan{.call = std::move(target.call),
            .base_url = target.base_url,
            .rounds = static_cast<int>(arguments.integer("--rounds")),
            .at_once = static_cast<int>(arguments.integer("--max-concurrency")),
            .streams = arguments.has("--stream")};
  plan.call.quiet_time_max = plan.call.head_time_max =
      std::chrono::milliseconds(static_cast<int64_t>(arguments.number("--timeout-sec") * 1000));
  for (const auto& [flag, field] :
       {std::pair("--model", "model"), {"--language", "language"}, {"--prompt", "prompt"}}) {
    if (arguments.has(flag)) plan.fields.emplace_back(field, arguments.text(flag));
  }
  plan.fields.emplace_back("response_format", "json");
  if (plan.streams) plan.fields.emplace_back("stream", "true");
  TRY_ASSIGN(plan.files,
             read_sound_files(arguments.list("FILE"), [&] { return !interrupt.pending(); }));
  return plan;
}

void add_up(const Plan& plan, Heard& heard) {
  for (size_t i = 0; i < heard.answers.size(); ++i) {
    const TranscriptAnswer& answer = *heard.answers[i];
    const SoundFile& file = plan.files[i % plan.files.size()];
    if (!answer.failure().empty()) {
      ++heard.failed;
      if (heard.failure.empty()) heard.failure = fmt::format("{}: {}", file.name, answer.failure());
      continue;
    }
    heard.sound_s += file.seconds;
    if (!file.reference) continue;
    ++heard.with_reference;
    heard.words += bench::word_errors(bench::spoken_words(*file.reference),
                                      bench::spoken_words(answer.text()));
  }
}

Result<Heard> measure(const Plan& plan, const cli::Interrupt& interrupt) {
  const base::SystemClock clock;
  cli::Progress progress("transcribed", cli::Progress::Unit::kCount, clock);
  Heard heard;
  const int count = static_cast<int>(plan.files.size()) * plan.rounds;
  for (int i = 0; i < count; ++i) heard.answers.push_back(std::make_shared<TranscriptAnswer>());
  bench::SoundLoad load;
  heard.seconds = load.run({.count = count,
                            .at_once = plan.at_once,
                            .ask =
                                [&](int number) {
                                  const auto index = static_cast<size_t>(number);
                                  net::HttpCall call = plan.call;
                                  bench::SoundForm form = bench::sound_form(
                                      plan.fields, plan.files[index % plan.files.size()].bytes);
                                  call.headers.add("Content-Type", std::move(form.content_type));
                                  call.body = std::move(form.body);
                                  return bench::SoundLoad::Asked{.call = std::move(call),
                                                                 .answer = heard.answers[index]};
                                },
                            .stops = [&] { return interrupt.pending(); },
                            .on_done = [&](int done) { progress.update(done, count); }});
  progress.clear();
  if (interrupt.pending()) return Error{ErrorCode::kCancelled, "interrupted", {}};
  add_up(plan, heard);
  if (heard.failed < count) return heard;
  return Error{ErrorCode::kUnavailable, fmt::format("no transcript: {}", heard.failure), {}};
}

std::string to_text(const Plan& plan, const Heard& heard) {
  const std::vector<double> times = heard.times(&TranscriptAnswer::whole_s);
  std::string out = fmt::format(
      "{} files, {:.1f} s of sound, {} at once\n{:<24} {} ({} failed)\n{:<24} {:.2f} s\n"
      "{:<24} {:.4f} (sound {:.2f} times as fast as it is spoken)\n"
      "{:<24} p50 {:.3f}, p99 {:.3f}, longest {:.3f}\n",
      plan.files.size(), plan.sound_s(), plan.at_once, "transcripts",
      static_cast<int64_t>(heard.answers.size()) - heard.failed, heard.failed, "took",
      heard.seconds, "real-time factor", heard.real_time_factor(), heard.sound_s / heard.seconds,
      "seconds for each", percentile(times, 0.5), percentile(times, 0.99), percentile(times, 1.0));
  if (plan.streams) {
    const std::vector<double> firsts = heard.times(&TranscriptAnswer::first_text_s);
    out += fmt::format("{:<24} p50 {:.3f}, p99 {:.3f}\n", "first text after s",
                       percentile(firsts, 0.5), percentile(firsts, 0.99));
  }
  out += word_error_text(heard.words, heard.with_reference);
  if (heard.failed > 0) out += fmt::format("failed: {}\n", heard.failure);
  return out;
}

std::string to_json(const Plan& plan, const Heard& heard) {
  const std::vector<double> times = heard.times(&TranscriptAnswer::whole_s);
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("base_url").string(plan.base_url);
  w.key("max_concurrency").integer(plan.at_once).key("rounds").integer(plan.rounds);
  w.key("answers").integer(static_cast<int64_t>(heard.answers.size()));
  w.key("failed").integer(heard.failed).key("failure").string(heard.failure);
  w.key("seconds").number(heard.seconds).key("audio_s").number(heard.sound_s);
  w.key("real_time_factor").number(heard.real_time_factor());
  w.key("p50_s").number(percentile(times, 0.5)).key("p99_s").number(percentile(times, 0.99));
  if (plan.streams) {
    const std::vector<double> firsts = heard.times(&TranscriptAnswer::first_text_s);
    w.key("first_text_p50_s").number(percentile(firsts, 0.5));
    w.key("first_text_p99_s").number(percentile(firsts, 0.99));
  }
  if (heard.with_reference > 0) add_words(w, heard.words);
  w.key("files").begin_array();
  for (size_t i = 0; i < heard.answers.size(); ++i) {
    const SoundFile& file = plan.files[i % plan.files.size()];
    const TranscriptAnswer& answer = *heard.answers[i];
    w.begin_object().key("file").string(file.name).key("audio_s").number(file.seconds);
    w.key("seconds").number(answer.whole_s()).key("text").string(answer.text());
    if (!answer.failure().empty()) w.key("failure").string(answer.failure());
    if (file.reference && answer.failure().empty()) {
      add_words(w, bench::word_errors(bench::spoken_words(*file.reference),
                                      bench::spoken_words(answer.text())));
    }
    w.end_object();
  }
  w.end_array().end_object();
  out += '\n';
  return out;
}

Result<void> run_bench_transcribe(const cli::Arguments& arguments) {
  const cli::Interrupt interrupt;
  if (arguments.has("--live")) return bench_live(arguments, interrupt);
  TRY_ASSIGN(const Plan plan, read_plan(arguments, interrupt));
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(&interrupt));
  TRY_ASSIGN(const Heard heard, measure(plan, interrupt));
  if (arguments.has("--json")) {
    const std::string json = to_json(plan, heard);
    if (arguments.text("--json") == "-") return write_output(json);
    TRY(base::write_file(arguments.text("--json"), json));
  }
  return write_text(to_text(plan, heard));
}

// Of what files are heard by alone.
Flag not_live(Flag flag) {
  flag.not_with = {{"--live"}};
  return flag;
}

}  // namespace

cli::Verb bench_transcribe_verb() {
  std::vector<Flag> flags = server_address_flags();
  for (Flag& flag : live_flags()) flags.push_back(std::move(flag));
  for (Flag& flag : std::vector<Flag>{
           not_live(text_flag("--endpoint", "PATH", "whom to ask", "/v1/audio/transcriptions")),
           text_flag("--model", "NAME", "default the only one that hears"),
           text_flag("--language", "LANG", "of all files; default: the model finds it"),
           text_flag("--prompt", "TEXT", "before each file's first window"),
           not_live(
               switch_flag("--stream", "as events: the time to the first text is measured, too")),
           count_flag("--max-concurrency", "N", "files at once; with --live streams", "1", 1, 4096),
           count_flag("--rounds", "R", "how often each file is asked for", "1", 1, 1000),
           number_flag("--timeout-sec", "S", "silence after which a file has failed", "600", 0.1,
                       86'400),
           text_flag("--json", "FILE", "also write the numbers and texts; - is stdout")}) {
    flags.push_back(std::move(flag));
  }
  return {
      .name = "bench transcribe",
      .summary = "Measures how fast a server transcribes files, and how much of it wrong.",
      .about =
          "Sends each FILE (of a folder all but its .txt) to a running server, --max-concurrency "
          "at\n"
          "once. Prints the real-time factor (seconds for each second of sound, all files\n"
          "together), the time for each, and, where what is said stands beside a file (talk.txt "
          "of\n"
          "talk.wav), the word error rate: words in lower case without punctuation, substituted,\n"
          "left out and added. $OPENAI_API_KEY is sent as the key.\n"
          "\n"
          "With --live each file is a stream over the server's WebSocket, sent as fast as it is\n"
          "spoken: how long after the last sound the whole text is there, when the first words\n"
          "come, and how many streams kept real time.",
      .positionals = {{.name = "FILE", .help = "sound, or folders of it", .many = true}},
      .flags = std::move(flags),
      .examples = {"pelton bench transcribe talk.wav --rounds 8 --max-concurrency 4",
                   "pelton bench transcribe ./recordings --language de --stream --json -",
                   "pelton bench transcribe talk.wav --live --rounds 8 --max-concurrency 8"},
      .run = run_bench_transcribe,
  };
}

}  // namespace pelton::apps
