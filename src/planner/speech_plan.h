// What turning sound into text takes of a machine, and how much of it one does: files by the hour,
// live streams, and replicas for a target. Sound is heard in windows, of which a few are decoded
// together (speech/transcriber.h); a stream that is still being said has its open window heard
// again and again (speech/live_transcript.h). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost_model/speech_time.h"
#include "planner/memory_plan.h"
#include "planner/plan_report.h"

namespace pelton::planner {

struct SpeechPlanOptions {
  std::string model;
  std::string machine;  // the instance's name; empty: devices alone
  cost_model::SpeechTimeModel::Options timing;
  std::string efficiency_source;
  // What one replica, which has a device to itself, takes of its memory, and what each window more
  // in a batch does. Without lines nothing is said of memory: it is known otherwise.
  std::vector<MemoryLine> memory;
  double each_more_bytes = 0;
  double allowed_bytes = 0;

  double text_tokens_per_s = 4;  // of sound
  double file_seconds = 300;     // of the file whose time is said
  int batch_max = 4;             // windows decoded together
  double live_delay_s = 5;       // by which live text may be late

  bool memory_only = false;

  int devices = 1;  // of the machine that is bought or rented as one
  double spread = 0.3;
  double headroom = 0.2;
  double price_per_hour = 0;  // of that machine
  std::string price_source;
  std::optional<double> audio_hours_per_hour;  // the target: of files
  std::optional<int64_t> live_streams;         // and of live sound
};

// In the middle of a file: a window's text, and as its prompt the text of the one before.
cost_model::SpeechWindow full_window(const SpeechPlanOptions& options);

struct SpeechRates {
  double file_s = 0;                // a lone file, from its first window to its last
  double file_factor = 0;           // of its length
  double first_text_s = 0;          // its first window
  double batch_factor = 0;          // seconds for each second of sound, a batch heard together
  double live_pass_s = 0;           // of a lone stream's open window, half full
  int64_t live_streams = 0;         // whose text is no later than is allowed
  int64_t half_second_streams = 0;  // each with a pass for every half second
};
SpeechRates speech_rates(const SpeechPlanOptions& options,
                         const cost_model::SpeechTimeModel& model);

struct SpeechReplicas {
  int64_t for_files = 0;
  int64_t for_live = 0;
  int64_t together() const { return for_files + for_live; }
};
// kDoesNotFit: live streams, of which a replica keeps up with none.
Result<SpeechReplicas> speech_replicas(const SpeechPlanOptions& options, const SpeechRates& rates);

// kInvalidArgument: arithmetic the hardware lacks.
Result<PlanReport> plan_speech(const SpeechPlanOptions& options);

}  // namespace pelton::planner
