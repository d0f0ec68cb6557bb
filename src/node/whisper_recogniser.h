// A Whisper model as whoever queues files knows it: sound to segments of text. begin() and check():
// any thread; the recognitions that it has begun are stepped one at a time, on one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "audio/log_mel.h"
#include "base/result.h"
#include "executor/compute_threads.h"
#include "models/whisper.h"
#include "speech/recogniser.h"
#include "tokenizer/tokenizer.h"

namespace pelton::node {

class WhisperRecogniser final : public speech::Recogniser {
 public:
  struct Parts {  // all outlive it
    models::Whisper& model;
    const tokenizer::Tokenizer* tokenizer;  // null: segments have tokens and no text
    // That the model's kernels compute on, with other models; null: its own.
    executor::ComputeThreads* threads = nullptr;
  };
  explicit WhisperRecogniser(Parts parts);

  Result<void> check(const speech::Task& task) const override;
  Result<std::unique_ptr<speech::Recognition>> begin(
      std::vector<float> samples, const speech::Task& task,
      const std::function<bool()>& go_on) const override;

 private:
  const Parts parts_;
  const audio::LogMel front_;
};

}  // namespace pelton::node
