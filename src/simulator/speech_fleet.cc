#include "simulator/speech_fleet.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "report/percentile.h"
#include "workload/arrivals.h"
#include "workload/draws.h"

namespace pelton::simulator {
namespace {

using cost_model::SpeechTimeModel;
using cost_model::SpeechWindow;

constexpr uint64_t kSecondsStream = 0x736F756E64;
constexpr double kNever = std::numeric_limits<double>::infinity();

// A file inside a replica.
struct Hearing {
  size_t record = 0;
  std::vector<SpeechWindow> windows;
  size_t next = 0;  // of these
};

class SpeechReplica {
 public:
  SpeechReplica(const SpeechFleetOptions& options, const SpeechTimeModel& model)
      : options_(options), model_(model) {}

  int inside() const { return static_cast<int>(parked_.size() + heard_.size() + batch_.size()); }
  double ready_s() const { return batch_.empty() ? kNever : ready_s_; }
  double busy_s() const { return busy_s_; }

  void take(Hearing file) { parked_.push_back(std::move(file)); }
  // The next batch begins, if there is one and none runs.
  void begin(double now_s, SpeechResult& result);
  // The batch that is ready ends; gives how many files did.
  int end(SpeechResult& result);

 private:
  double seconds_of(const std::deque<Hearing>& files, const SpeechResult& result) const {
    double seconds = 0;
    for (const Hearing& file : files) seconds += result.records[file.record].seconds;
    return seconds;
  }
  void admit(const SpeechResult& result);

  const SpeechFleetOptions& options_;
  const SpeechTimeModel& model_;
  std::deque<Hearing> parked_;
  std::deque<Hearing> heard_;
  std::deque<Hearing> batch_;
  double ready_s_ = 0;
  double busy_s_ = 0;
};

// The first that fits, so that a short one does not wait for a long one's room.
void SpeechReplica::admit(const SpeechResult& result) {
  for (auto file = parked_.begin(); file != parked_.end();) {
    const double seconds = seconds_of(heard_, result) + result.records[file->record].seconds;
    const bool fits = heard_.empty() || (std::ssize(heard_) < options_.heard_max &&
                                         seconds <= options_.heard_seconds_max);
    if (fits) heard_.push_back(std::move(*file));
    file = fits ? parked_.erase(file) : file + 1;
  }
}

void SpeechReplica::begin(double now_s, SpeechResult& result) {
  if (!batch_.empty()) return;
  admit(result);
  if (heard_.empty()) return;
  std::vector<SpeechWindow> windows;
  while (!heard_.empty() && std::ssize(batch_) < options_.batch_max) {
    Hearing& file = heard_.front();
    if (file.next == 0) result.records[file.record].began_s = now_s;
    windows.push_back(file.windows[file.next]);
    batch_.push_back(std::move(file));
    heard_.pop_front();
  }
  const double takes_s = model_.seconds(windows);
  ready_s_ = now_s + takes_s;
  busy_s_ += takes_s;
  ++result.batches;
  result.windows += std::ssize(windows);
}

int SpeechReplica::end(SpeechResult& result) {
  int ended = 0;
  for (Hearing& file : std::exchange(batch_, {})) {
    SpeechRecord& record = result.records[file.record];
    if (file.next++ == 0) record.first_text_s = ready_s_;
    if (file.next < file.windows.size()) {
      heard_.push_back(std::move(file));
      continue;
    }
    record.end_s = ready_s_;
    ++ended;
  }
  return ended;
}

class SpeechFleet {
 public:
  SpeechFleet(const SpeechFleetOptions& options, const SpeechTimeModel& model)
      : options_(options),
        model_(model),
        replicas_(static_cast<size_t>(options.replicas), SpeechReplica(options, model)) {}

  SpeechResult play(const std::vector<SpeechFile>& files);

 private:
  void send(const SpeechFile& file, double now_s);

  const SpeechFleetOptions& options_;
  const SpeechTimeModel& model_;
  std::vector<SpeechReplica> replicas_;
  SpeechResult result_;
  int under_way_ = 0;
};

void SpeechFleet::send(const SpeechFile& file, double now_s) {
  const auto replica = std::ranges::min_element(replicas_, {}, &SpeechReplica::inside);
  result_.records.push_back({.seconds = file.seconds, .sent_s = now_s});
  if (replica->inside() >= options_.waiting_max) return;
  result_.records.back().replica = static_cast<int>(replica - replicas_.begin());
  ++under_way_;
  replica->take({.record = result_.records.size() - 1,
                 .windows = cost_model::speech_windows(model_.options().shape,
                                                       options_.text_tokens_per_s, file.seconds)});
}

SpeechResult SpeechFleet::play(const std::vector<SpeechFile>& files) {
  size_t next = 0;
  double now_s = 0;
  for (;;) {
    // Files that are there, and whose clients have their turn.
    const int most = options_.concurrency_max.value_or(std::numeric_limits<int>::max());
    while (next < files.size() && files[next].at_s <= now_s && under_way_ < most) {
      send(files[next++], now_s);
    }
    double wakes_s = kNever;
    for (SpeechReplica& replica : replicas_) {
      replica.begin(now_s, result_);
      wakes_s = std::min(wakes_s, replica.ready_s());
    }
    if (next < files.size() && under_way_ < most) wakes_s = std::min(wakes_s, files[next].at_s);
    if (wakes_s == kNever) break;
    now_s = wakes_s;
    for (SpeechReplica& replica : replicas_) {
      if (replica.ready_s() <= now_s) under_way_ -= replica.end(result_);
    }
  }
  result_.duration_s = now_s;
  for (const SpeechReplica& replica : replicas_) result_.busy_s.push_back(replica.busy_s());
  return std::move(result_);
}

// Of the files that were heard.
struct Figures {
  std::vector<double> queue_s;
  std::vector<double> first_text_s;
  std::vector<double> text_s;
  std::vector<double> factor;  // seconds to the text for each second of sound
  double sound_s = 0;
  int64_t refused = 0;
  double utilisation = 0;
  double batch = 0;  // windows in one, a mean
};

Figures figures_of(const SpeechResult& result) {
  Figures figures;
  for (const SpeechRecord& record : result.records) {
    if (record.replica < 0) {
      ++figures.refused;
      continue;
    }
    figures.queue_s.push_back(record.began_s - record.sent_s);
    figures.first_text_s.push_back(record.first_text_s - record.sent_s);
    figures.text_s.push_back(record.end_s - record.sent_s);
    figures.factor.push_back((record.end_s - record.sent_s) / record.seconds);
    figures.sound_s += record.seconds;
  }
  for (auto* values : {&figures.queue_s, &figures.first_text_s, &figures.text_s, &figures.factor}) {
    std::ranges::sort(*values);
  }
  const double busy_s = std::accumulate(result.busy_s.begin(), result.busy_s.end(), 0.0);
  const double all_s = result.duration_s * static_cast<double>(result.busy_s.size());
  figures.utilisation = all_s > 0 ? busy_s / all_s : 0;
  figures.batch = result.batches > 0
                      ? static_cast<double>(result.windows) / static_cast<double>(result.batches)
                      : 0;
  return figures;
}

struct Row {
  const char* key;
  const char* label;
  const std::vector<double>& values;
};
std::vector<Row> rows_of(const Figures& figures) {
  return {{"queue_s", "Queue time (s)", figures.queue_s},
          {"first_text_s", "Time to first text (s)", figures.first_text_s},
          {"text_s", "Time to all text (s)", figures.text_s},
          {"real_time_factor", "Seconds for a second of sound", figures.factor}};
}

double hours_per_hour(const Figures& figures, const SpeechResult& result) {
  return result.duration_s > 0 ? figures.sound_s / result.duration_s : 0;
}

}  // namespace

Result<std::vector<SpeechFile>> speech_files(const SpeechLoad& load) {
  TRY_ASSIGN(const std::vector<double> at_s,
             workload::arrival_times({.rate = load.rate, .seed = load.seed}, load.count));
  workload::Draws draws(load.seed, kSecondsStream);
  std::vector<SpeechFile> files;
  for (const double at : at_s) {
    const double vary = (2 * draws.unit() - 1) * load.range_ratio;
    files.push_back({.at_s = at, .seconds = load.seconds * (1 + vary)});
  }
  return files;
}

SpeechResult simulate_speech(const SpeechFleetOptions& options,
                             const std::vector<SpeechFile>& files, const SpeechTimeModel& model) {
  return SpeechFleet(options, model).play(files);
}

std::string speech_text(const SpeechFleetOptions& options, const SpeechResult& result,
                        const std::vector<double>& percents) {
  const Figures figures = figures_of(result);
  std::string text = fmt::format(
      "{} of {} files heard, {:.2f} hours of sound in {:.2f} h: {:.3g} hours an hour{}\n",
      figures.queue_s.size(), result.records.size(), figures.sound_s / 3600,
      result.duration_s / 3600, hours_per_hour(figures, result),
      figures.refused > 0
          ? fmt::format("; {} refused: {} files are the most inside (--max-num-transcriptions)",
                        figures.refused, options.waiting_max)
          : "");
  for (const Row& row : rows_of(figures)) {
    text += fmt::format("  {:<30} mean {:.3g}", row.label, report::mean(row.values));
    for (const double percent : percents) {
      text += fmt::format(", P{} {:.3g}", report::percent_word(percent),
                          report::percentile(row.values, percent));
    }
    text += "\n";
  }
  return text + fmt::format(
                    "{} replica{}: heard {:.1f} % of the time, with {:.2f} of {} windows in a "
                    "batch; {} windows\nmodelled, not measured: reading files, live sound, beams "
                    "and doubtful windows are not played\n",
                    options.replicas, options.replicas == 1 ? "" : "s", figures.utilisation * 100,
                    figures.batch, options.batch_max, result.windows);
}

Json speech_json(const SpeechFleetOptions& options, const SpeechResult& result,
                 const std::vector<double>& percents) {
  const Figures figures = figures_of(result);
  Json json;
  json.set("files", static_cast<int64_t>(result.records.size()));
  json.set("refused", figures.refused).set("replicas", options.replicas);
  json.set("audio_seconds", figures.sound_s).set("duration_s", result.duration_s);
  json.set("audio_hours_per_hour", hours_per_hour(figures, result));
  json.set("utilisation", figures.utilisation).set("windows", result.windows);
  json.set("batch_windows_mean", figures.batch);
  for (const Row& row : rows_of(figures)) {
    Json one;
    one.set("mean", report::mean(row.values));
    for (const double percent : percents) {
      one.set("p" + report::percent_word(percent), report::percentile(row.values, percent));
    }
    json.set(row.key, std::move(one));
  }
  json.set("modelled", true);
  return json;
}

}  // namespace pelton::simulator
