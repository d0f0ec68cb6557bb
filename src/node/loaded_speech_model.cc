#include "node/loaded_speech_model.h"

#include <filesystem>

#include <fmt/format.h>

#include "audio/log_mel.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/tensor_file.h"
#include "models/whisper_config.h"
#include "node/model_tokenizer.h"

namespace pelton::node {
namespace {

constexpr size_t kConfigBytesMax = size_t{4} << 20;
// Of the longest kind: so many are heard in turn, and so many more wait for room.
constexpr double kHeardFiles = 2.0;
constexpr double kParkedFiles = 3.0;

// The engine's check refuses whatever is asked of a context of no tokens, so there are no steps.
class NoTokens final : public engine::Executor {
 public:
  NoTokens() {
    capacity_.groups.push_back({.spec = {.name = "none"}, .block_counts = {1, 0, 0}});
    capacity_.sequences_max = 1;
    capacity_.batch_tokens_max = 1;
    capacity_.context_tokens_max = 0;
  }
  const engine::ExecutorCapacity& capacity() const override { return capacity_; }
  void submit(engine::StepPlan) override { CHECK(false, "a speech model has no steps"); }
  engine::StepResult collect() override { CHECK(false, "a speech model has no steps"); }

 private:
  engine::ExecutorCapacity capacity_;
};

// What the longest files take: two that are read, each with its samples, once more while they grow,
// and its spectrogram; the spectrograms of those parked and heard.
int64_t sound_bytes(const models::WhisperConfig& config, double seconds) {
  const double samples = double{sizeof(float)} * audio::LogMel::kSampleRate;
  const double frames = double{audio::LogMel::kSampleRate} / audio::LogMel::kHop;
  const double mel = frames * config.mel_bands * sizeof(float);
  return static_cast<int64_t>(seconds *
                              (2.0 * (2.0 * samples + mel) + (kParkedFiles + kHeardFiles) * mel));
}

LoadedSpeechModel::Memory memory_of(const models::WhisperConfig& config, int64_t weight_bytes,
                                    const LoadedSpeechModel::Bounds& bounds) {
  // Beams of one window at a time, beside the text that it begins with.
  const int beams = bounds.beams_max > 1 ? bounds.beams_max : 0;
  return {.weights = weight_bytes,
          .workspace = config.workspace_bytes() + (bounds.batch_max - 1) * config.kv_bytes() +
                       beams * config.text_bytes(),
          .sound = sound_bytes(config, bounds.audio_seconds_max)};
}

}  // namespace

Result<LoadedSpeechModel::Memory> LoadedSpeechModel::plan(const std::string& folder,
                                                          const Bounds& bounds) {
  TRY_ASSIGN(const models::WhisperConfig config, models::read_whisper_config(folder));
  TRY_ASSIGN(const checkpoint::TensorFile file,
             checkpoint::TensorFile::open(folder + "/model.safetensors"));
  return memory_of(config, file.weight_bytes(), bounds);
}

bool is_speech_model(const std::string& folder) {
  const Result<std::string> text = base::read_file(folder + "/config.json", kConfigBytesMax);
  if (!text.ok()) return false;
  const Result<Json> config = Json::parse(*text);
  return config.ok() && config->is_object() &&
         config->string("model_type") == std::optional<std::string>("whisper");
}

Result<std::unique_ptr<LoadedSpeechModel>> LoadedSpeechModel::load(const std::string& folder,
                                                                   const Options& options,
                                                                   const base::Clock& clock,
                                                                   base::Log& log) {
  const int64_t begin_ns = clock.now_ns();
  std::unique_ptr<LoadedSpeechModel> loaded(new LoadedSpeechModel());
  loaded->threads_ = options.threads;
  const std::string file = folder + "/tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("{} has no tokenizer.json: nothing could be said in words", folder),
                 {}};
  }
  TRY_ASSIGN(tokenizer::Tokenizer tokenizer, read_tokenizer_file(file));
  loaded->tokenizer_ = std::make_unique<tokenizer::Tokenizer>(std::move(tokenizer));
  TRY_ASSIGN(const kernels::KernelChoice choice, kernels::parse_kernel_choice(options.kernels));
  {
    const executor::ComputeThreads::Turn turn = options.threads->take_turn();
    TRY_ASSIGN(loaded->kernels_, kernels::make_kernels(choice, options.threads->pool()));
    TRY_ASSIGN(loaded->model_, models::Whisper::load(folder, *loaded->kernels_));
  }
  const Memory& memory = loaded->memory_ =
      memory_of(loaded->config(), loaded->model_->weight_bytes(),
                {.audio_seconds_max = options.audio_seconds_max,
                 .batch_max = options.queue.batch_max,
                 .beams_max = options.queue.beams_max});
  if (options.budget != nullptr) {
    TRY_ASSIGN(MemoryBudget::Share share, options.budget->take(options.name, memory.bytes()));
    loaded->share_.emplace(std::move(share));
  }
  loaded->recogniser_ = std::make_unique<WhisperRecogniser>(
      WhisperRecogniser::Parts{.model = *loaded->model_,
                               .tokenizer = loaded->tokenizer_.get(),
                               .threads = options.threads.get()});
  loaded->no_tokens_ = std::make_unique<NoTokens>();
  loaded->engine_ = std::make_unique<engine::Engine>(engine::Engine::Options{.prefix_cache = false},
                                                     *loaded->no_tokens_, clock, log);
  speech::Transcriber::Options queue = options.queue;
  queue.heard_seconds_max = kHeardFiles * options.audio_seconds_max;
  queue.parked_seconds_max = options.audio_seconds_max;  // and two that were being read by then
  loaded->transcriber_ =
      std::make_unique<speech::Transcriber>(queue, *loaded->recogniser_, options.read_sound, clock);
  loaded->load_seconds_ = static_cast<double>(clock.now_ns() - begin_ns) * 1e-9;
  return loaded;
}

}  // namespace pelton::node
