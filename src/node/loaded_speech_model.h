// A speech model, loaded and running: its files, tokenizer and the queue of files before it,
// started and stopped as a whole. Owned by the program's entry; the parts may be used from any
// thread as their headers say.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/engine.h"
#include "executor/compute_threads.h"
#include "kernels/kernels.h"
#include "models/whisper.h"
#include "node/memory_budget.h"
#include "node/whisper_recogniser.h"
#include "speech/transcriber.h"
#include "tokenizer/tokenizer.h"

namespace pelton::node {

// Whether this folder's config.json says that it is a speech model ("whisper"); false also where
// there is none.
bool is_speech_model(const std::string& folder);

class LoadedSpeechModel {
 public:
  struct Options {
    std::string kernels = "auto";  // auto, reference, avx512, avx2, neon
    // All models' threads; they outlive it.
    std::shared_ptr<executor::ComputeThreads> threads;
    speech::ReadSound read_sound;
    speech::Transcriber::Options queue;
    double audio_seconds_max = 1500.0;  // of one file: what memory is claimed for
    // Where several models share this machine's memory, as LoadedModel's. Outlives it; null: it has
    // the machine's to itself.
    MemoryBudget* budget = nullptr;
    std::string name = {};
  };

  // `folder`: config.json, generation_config.json, model.safetensors, tokenizer.json. `clock` and
  // `log` outlive the model. Errors: kBadCheckpoint, kUnsupported, kDoesNotFit.
  static Result<std::unique_ptr<LoadedSpeechModel>> load(const std::string& folder,
                                                         const Options& options,
                                                         const base::Clock& clock, base::Log& log);

  const models::WhisperConfig& config() const { return model_->config(); }
  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  speech::Transcriber& transcriber() { return *transcriber_; }
  // One that computes nothing and refuses every prompt: whoever walks over the engines of all
  // models finds an idle one here.
  engine::Engine& engine() { return *engine_; }

  struct Memory {
    int64_t weights = 0;
    int64_t workspace = 0;  // of the windows of a batch, and of beams
    int64_t sound = 0;      // of files that are read and heard
    int64_t bytes() const { return weights + workspace + sound; }
  };
  const Memory& memory() const { return memory_; }
  // The same before anything is loaded, of the folder's files. Errors: kBadCheckpoint,
  // kUnsupported.
  struct Bounds {
    double audio_seconds_max = 0.0;
    int batch_max = 1;
    int beams_max = 1;
  };
  static Result<Memory> plan(const std::string& folder, const Bounds& bounds);
  std::string_view kernels_name() const { return kernels_->name(); }
  double load_seconds() const { return load_seconds_; }

 private:
  LoadedSpeechModel() = default;

  std::optional<MemoryBudget::Share> share_;  // goes back when all else is gone
  std::shared_ptr<executor::ComputeThreads> threads_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<kernels::Kernels> kernels_;
  std::unique_ptr<models::Whisper> model_;
  std::unique_ptr<WhisperRecogniser> recogniser_;
  std::unique_ptr<engine::Executor> no_tokens_;
  std::unique_ptr<engine::Engine> engine_;
  Memory memory_;
  double load_seconds_ = 0.0;
  std::unique_ptr<speech::Transcriber> transcriber_;  // last: its threads use all of the above
};

}  // namespace pelton::node
