// Replicas of a speech model in virtual time: files come, each goes to the replica with the fewest
// inside, and is heard there as speech/transcriber.h has it: of the files that are heard each has a
// window in turn, a few of them in one batch. Reading files, live sound and beams are not played.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cost_model/speech_time.h"

namespace pelton::simulator {

struct SpeechFile {
  double at_s = 0;     // when it is there
  double seconds = 0;  // of sound
};

struct SpeechLoad {
  int64_t count = 200;
  double rate = 0;         // files a second; infinite: all at once
  double seconds = 300;    // of a file
  double range_ratio = 0;  // by which share that varies, both ways, evenly
  uint64_t seed = 0;
};
// Errors: kInvalidArgument.
Result<std::vector<SpeechFile>> speech_files(const SpeechLoad& load);

struct SpeechFleetOptions {
  int replicas = 1;
  double text_tokens_per_s = 4;
  // As speech::Transcriber::Options has them, of each replica.
  int waiting_max = 64;  // files that wait or are heard; more are refused
  int heard_max = 16;
  double heard_seconds_max = 3000;
  int batch_max = 4;
  std::optional<int> concurrency_max;  // of the clients; files that are there wait for their turn
};

struct SpeechRecord {
  double seconds = 0;  // of sound
  double sent_s = 0;
  double began_s = 0;       // its first window
  double first_text_s = 0;  // that one's end
  double end_s = 0;
  int replica = -1;  // -1: refused
};
struct SpeechResult {
  std::vector<SpeechRecord> records;  // in the order of their sending
  double duration_s = 0;              // until the last one's end
  std::vector<double> busy_s;         // of each replica
  int64_t windows = 0;
  int64_t batches = 0;
};
// Files in the order in which they come.
SpeechResult simulate_speech(const SpeechFleetOptions& options,
                             const std::vector<SpeechFile>& files,
                             const cost_model::SpeechTimeModel& model);

std::string speech_text(const SpeechFleetOptions& options, const SpeechResult& result,
                        const std::vector<double>& percents);
Json speech_json(const SpeechFleetOptions& options, const SpeechResult& result,
                 const std::vector<double>& percents);

}  // namespace pelton::simulator
