#include "apps/bench_transcribe_live.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "apps/bench_lock.h"
#include "apps/input.h"
#include "apps/load_flags.h"
#include "apps/server_address.h"
#include "apps/sound_files.h"
#include "audio/resample.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "bench/live_transcript.h"
#include "bench/stream_load.h"
#include "bench/target.h"
#include "bench/word_errors.h"
#include "cli/progress.h"
#include "net/url.h"

namespace pelton::apps {
namespace {

using bench::LiveOutcome;
using bench::LiveStream;
using bench::percentile;
using std::chrono::milliseconds;

constexpr int kRate = 24'000;  // of audio/pcm
// The server hears an open item again for each half second of new sound; streams begin apart in it.
constexpr milliseconds kApart{500};

struct Plan {
  std::string base_url;
  std::vector<SoundFile> files;
  std::vector<std::string> pcm;  // of each
  LiveStream stream;             // what all have
  int rounds = 0;
  int at_once = 0;
  double delay_max_s = 0.0;

  size_t count() const { return files.size() * static_cast<size_t>(rounds); }
  double sound_s() const {
    double seconds = 0.0;
    for (const SoundFile& file : files) seconds += file.seconds;
    return seconds * rounds;
  }
};

struct Heard {
  double seconds = 0.0;
  std::vector<LiveOutcome> outcomes;  // one for each file of each round
  bench::WordErrors words;
  int64_t with_reference = 0;
  int64_t failed = 0;
  int64_t in_real_time = 0;
  std::string failure;  // the first one's
  std::vector<double> delays;
  std::vector<double> firsts;
  double late_s = 0.0;  // the latest piece of sound
};

// 16 bits, little-endian, at kRate.
std::string pcm_of(const std::vector<float>& samples) {
  std::vector<float> resampled;
  audio::Resampler resampler(static_cast<int>(kSoundRate), kRate);
  resampler.push(samples, resampled);
  resampler.finish(resampled);
  std::string pcm;
  pcm.reserve(resampled.size() * 2);
  for (const float sample : resampled) {
    const auto value = static_cast<int>(std::lround(std::clamp(sample, -1.0F, 1.0F) * 32'767.0F));
    pcm += static_cast<char>(value & 0xFF);
    pcm += static_cast<char>(value >> 8 & 0xFF);
  }
  return pcm;
}

// Items end where this side says so: a pause in a file is none of its end.
std::string session_of(const cli::Arguments& arguments) {
  Json transcription;
  for (const auto& [flag, field] :
       {std::pair("--model", "model"), {"--language", "language"}, {"--prompt", "prompt"}}) {
    if (arguments.has(flag)) transcription.set(field, arguments.text(flag));
  }
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("type").string("session.update").key("session").begin_object();
  w.key("type").string("transcription").key("audio").begin_object().key("input").begin_object();
  w.key("format").raw(R"({"type":"audio/pcm","rate":24000})").key("turn_detection").raw("null");
  w.key("transcription").raw(transcription.dump());
  w.end_object().end_object().end_object().end_object();
  return out;
}

Result<Plan> read_plan(const cli::Arguments& arguments, const cli::Interrupt& interrupt) {
  std::string endpoint = "/v1/realtime?intent=transcription";
  if (arguments.has("--model"))
    endpoint += "&model=" + net::percent_encode(arguments.text("--model"));
  TRY_ASSIGN(bench::Target target, server_target(arguments, {.base_url = {},
                                                             .endpoint = endpoint,
                                                             .model = arguments.text("--model"),
                                                             .headers = {},
                                                             .content_type = {}}));
  Plan plan{.base_url = target.base_url,
            .rounds = static_cast<int>(arguments.integer("--rounds")),
            .at_once = static_cast<int>(arguments.integer("--max-concurrency")),
            .delay_max_s = arguments.number("--delay-max")};
  plan.stream.call = std::move(target.call);
  plan.stream.session = session_of(arguments);
  plan.stream.rate = kRate;
  plan.stream.chunk = milliseconds(arguments.integer("--chunk-ms"));
  plan.stream.quiet_time_max = plan.stream.call.head_time_max =
      milliseconds(static_cast<int64_t>(arguments.number("--timeout-sec") * 1000));
  plan.stream.stops = [&interrupt] { return interrupt.pending(); };
  TRY_ASSIGN(plan.files, read_sound_files(
                             arguments.list("FILE"), [&] { return !interrupt.pending(); }, true));
  for (SoundFile& file : plan.files) {
    plan.pcm.push_back(pcm_of(file.samples));
    std::vector<float>().swap(file.samples);
  }
  return plan;
}

void add_up(const Plan& plan, Heard& heard) {
  for (size_t i = 0; i < heard.outcomes.size(); ++i) {
    const LiveOutcome& outcome = heard.outcomes[i];
    const SoundFile& file = plan.files[i % plan.files.size()];
    heard.late_s = std::max(heard.late_s, outcome.late_s);
    if (!outcome.transcript.failure().empty()) {
      ++heard.failed;
      if (heard.failure.empty()) {
        heard.failure = fmt::format("{}: {}", file.name, outcome.transcript.failure());
      }
      continue;
    }
    const double delay_s = outcome.transcript.delay_s();
    heard.delays.push_back(delay_s);
    heard.firsts.push_back(outcome.transcript.first_text_s());
    const double chunk_s = static_cast<double>(plan.stream.chunk.count()) / 1e3;
    if (delay_s <= plan.delay_max_s && outcome.late_s <= chunk_s) ++heard.in_real_time;
    if (!file.reference) continue;
    ++heard.with_reference;
    heard.words += bench::word_errors(bench::spoken_words(*file.reference),
                                      bench::spoken_words(outcome.transcript.text()));
  }
}

Result<Heard> measure(const Plan& plan, const cli::Interrupt& interrupt) {
  const base::SystemClock clock;
  cli::Progress progress("streamed", cli::Progress::Unit::kCount, clock);
  Heard heard;
  heard.outcomes.resize(plan.count());
  std::atomic<size_t> next = 0;
  std::atomic<size_t> done = 0;
  const auto begun = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  const size_t at_once = std::min(static_cast<size_t>(plan.at_once), plan.count());
  for (size_t thread = 0; thread < at_once; ++thread) {
    threads.emplace_back([&, thread] {
      milliseconds head_start = kApart * static_cast<int>(thread) / static_cast<int>(at_once);
      for (size_t i = next++; i < plan.count() && !interrupt.pending(); i = next++) {
        LiveStream stream = plan.stream;
        stream.pcm = plan.pcm[i % plan.pcm.size()];
        stream.head_start = std::exchange(head_start, milliseconds(0));
        heard.outcomes[i] = bench::run_live_stream(stream);
        ++done;
      }
      ++done;  // of this thread's
    });
  }
  const auto count = static_cast<int64_t>(plan.count());
  while (done < plan.count() + at_once && !interrupt.pending()) {
    progress.update(std::min(static_cast<int64_t>(done), count), count);
    std::this_thread::sleep_for(milliseconds(100));
  }
  for (std::thread& thread : threads) thread.join();
  progress.clear();
  if (interrupt.pending()) return Error{ErrorCode::kCancelled, "interrupted", {}};
  heard.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  add_up(plan, heard);
  if (heard.failed < count) return heard;
  return Error{ErrorCode::kUnavailable, fmt::format("no transcript: {}", heard.failure), {}};
}

std::string to_text(const Plan& plan, const Heard& heard) {
  std::string out = fmt::format(
      "{} streams of {} files, {:.1f} s of sound, {} at once, pieces of {} ms\n"
      "{:<24} {} ({} failed)\n"
      "{:<24} {} (text within {:g} s of the last sound, and sound sent on its time)\n"
      "{:<24} p50 {:.3f}, p95 {:.3f}, p99 {:.3f}, longest {:.3f}\n"
      "{:<24} p50 {:.3f}, p99 {:.3f}\n",
      plan.count(), plan.files.size(), plan.sound_s(), plan.at_once, plan.stream.chunk.count(),
      "transcripts", static_cast<int64_t>(heard.outcomes.size()) - heard.failed, heard.failed,
      "kept real time", heard.in_real_time, plan.delay_max_s, "text after the sound s",
      percentile(heard.delays, 0.5), percentile(heard.delays, 0.95), percentile(heard.delays, 0.99),
      percentile(heard.delays, 1.0), "first text after s", percentile(heard.firsts, 0.5),
      percentile(heard.firsts, 0.99));
  if (heard.late_s > static_cast<double>(plan.stream.chunk.count()) / 1e3) {
    out += fmt::format("{:<24} {:.3f} s at most: this machine is too busy to send it in time\n",
                       "sound sent late", heard.late_s);
  }
  out += word_error_text(heard.words, heard.with_reference);
  if (heard.failed > 0) out += fmt::format("failed: {}\n", heard.failure);
  return out;
}

std::string to_json(const Plan& plan, const Heard& heard) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("base_url").string(plan.base_url).key("live").boolean(true);
  w.key("max_concurrency").integer(plan.at_once).key("rounds").integer(plan.rounds);
  w.key("chunk_ms").integer(plan.stream.chunk.count());
  w.key("streams").integer(static_cast<int64_t>(plan.count())).key("failed").integer(heard.failed);
  w.key("failure").string(heard.failure).key("seconds").number(heard.seconds);
  w.key("audio_s").number(plan.sound_s()).key("delay_max_s").number(plan.delay_max_s);
  w.key("streams_in_real_time").integer(heard.in_real_time);
  w.key("sound_late_s").number(heard.late_s);
  for (const auto& [name, share] : {std::pair("delay_p50_s", 0.5),
                                    {"delay_p95_s", 0.95},
                                    {"delay_p99_s", 0.99},
                                    {"delay_max_measured_s", 1.0}}) {
    w.key(name).number(percentile(heard.delays, share));
  }
  w.key("first_text_p50_s").number(percentile(heard.firsts, 0.5));
  w.key("first_text_p99_s").number(percentile(heard.firsts, 0.99));
  if (heard.with_reference > 0) add_words(w, heard.words);
  w.key("outcomes").begin_array();
  for (size_t i = 0; i < heard.outcomes.size(); ++i) {
    const bench::LiveTranscript& transcript = heard.outcomes[i].transcript;
    const SoundFile& file = plan.files[i % plan.files.size()];
    w.begin_object().key("file").string(file.name).key("audio_s").number(file.seconds);
    w.key("delay_s")
        .number(transcript.delay_s())
        .key("first_text_s")
        .number(transcript.first_text_s());
    w.key("sound_late_s").number(heard.outcomes[i].late_s).key("text").string(transcript.text());
    if (!transcript.failure().empty()) w.key("failure").string(transcript.failure());
    w.end_object();
  }
  w.end_array().end_object();
  return out + "\n";
}

}  // namespace

std::vector<cli::Flag> live_flags() {
  std::vector<cli::Flag> flags = {
      switch_flag("--live",
                  "each file is a stream over the server's WebSocket, as fast as it is spoken"),
      count_flag("--chunk-ms", "MS", "milliseconds of sound in a message", "100", 10, 10'000),
      number_flag("--delay-max", "S",
                  "a stream has kept real time whose whole text is there so many seconds after its "
                  "last sound",
                  "2", 0.001, 3600)};
  for (size_t i = 1; i < flags.size(); ++i) flags[i].only_with = {{"--live"}};
  return flags;
}

Result<void> bench_live(const cli::Arguments& arguments, const cli::Interrupt& interrupt) {
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

}  // namespace pelton::apps
