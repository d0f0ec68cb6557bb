// A Whisper model as whoever queues files knows it: sound to segments of text. begin() and check():
// any thread; the recognitions that it has begun are stepped one at a time, on one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "audio/log_mel.h"
#include "base/result.h"
#include "executor/compute_threads.h"
#include "models/whisper.h"
#include "models/whisper_fallback.h"
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
  std::vector<Result<bool>> step_all(std::span<const speech::Turn> turns) const override;
  Result<speech::LiveText> hear(speech::LiveWindow window,
                                const std::function<bool()>& go_on) const override;
  std::string text_of(std::span<const TokenId> tokens) const override;

 private:
  std::vector<TokenId> prompt_tokens(const std::string& prompt) const;
  models::CompressionOf compression() const;

  const Parts parts_;
  const audio::LogMel front_;
};

}  // namespace pelton::node
