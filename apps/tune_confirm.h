// pelton tune --confirm: what the simulator said of the best few, measured on a real server, by
// turns, and how far the two are apart. Main thread; one server at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/tune_play.h"
#include "apps/tune_point.h"
#include "base/clock.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "cli/interrupt.h"
#include "cost_model/calibration.h"
#include "cost_model/request_overhead.h"
#include "tokenizer/tokenizer.h"
#include "workload/spec.h"
#include "workload/vocabulary.h"

namespace pelton::apps {

// --confirm and what goes with it.
std::vector<cli::Flag> confirm_flags();

// Of those that were measured; null: none was. What keeps the objectives goes before what does not.
const Point* best_measured(const std::vector<Point>& points);

class Confirmation {
 public:
  // Checks what can be wrong before anything is played. `axes`: what is varied. Errors:
  // kInvalidArgument.
  static Result<std::unique_ptr<Confirmation>> make(const cli::Arguments& arguments,
                                                    const std::vector<Variation>& axes);
  ~Confirmation();
  Confirmation(const Confirmation&) = delete;
  Confirmation& operator=(const Confirmation&) = delete;

  // With the calibration of this machine, which is measured where none is given: closed loops of a
  // few streams, on a server with the largest batches that are varied.
  Result<cli::Arguments> calibrated(PointPlayer& player, const std::vector<Variation>& axes);

  // Measures the best few of `points` and the flags as they stand (appended to `points` where they
  // are none of them), each once a round, and fills in `measured`. Returns the report. Errors:
  // kInvalidArgument where it would take longer than --confirm-seconds, or the server's.
  Result<std::string> measure(PointPlayer& player, const cli::Arguments& arguments,
                              const std::vector<report::Objective>& objectives, BestBy best_by,
                              std::vector<Point>& points);

 private:
  struct Run;
  struct Candidate;
  explicit Confirmation(const cli::Arguments& arguments);

  double seconds_left() const;
  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  Result<workload::WorkloadSpec> spec_of(const cli::Arguments& arguments) const;
  Result<Run> ask(const std::string& url, const workload::WorkloadSpec& spec);
  Result<Run> measure_once(PointPlayer& player, const cli::Arguments& arguments,
                           const Settings& settings, const std::string& step_log);
  Result<void> check_time(const std::vector<Point>& points,
                          const std::vector<Candidate>& candidates, int64_t rounds) const;
  Result<void> play_rounds(PointPlayer& player, const cli::Arguments& arguments,
                           const std::vector<report::Objective>& objectives,
                           const std::vector<Point>& points, std::vector<Candidate>& candidates);
  Result<void> fit(const std::string& model, const std::vector<std::string>& logs,
                   const std::string& out) const;
  Result<void> forecast_again(PointPlayer& player, const cli::Arguments& arguments,
                              const std::vector<report::Objective>& objectives,
                              std::vector<Point>& points, std::vector<Candidate>& candidates);

  const cli::Arguments& arguments_;
  const bool is_local_;
  const base::SystemClock clock_;
  std::optional<cli::Interrupt> interrupt_;  // while something is measured
  int64_t deadline_ns_ = 0;
  std::string folder_;  // of step logs and calibrations; goes with this
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  // null: prompts are of common words
  workload::Vocabulary vocabulary_;
  std::vector<cost_model::MeasuredRequest> idle_;  // of one stream
  std::string idle_log_;           // of the server that was calibrated on; empty: none was
  std::vector<std::string> logs_;  // of those that were confirmed
};

}  // namespace pelton::apps
