#include "node/whisper_recogniser.h"

#include <algorithm>
#include <utility>

#include "models/whisper_live.h"
#include "models/whisper_transcription.h"
#include "node/spoken_words.h"

namespace pelton::node {
namespace {

// Between two layers of an encoder's pass other models' steps get the threads.
class Turns {
 public:
  Turns(models::Whisper& model, executor::ComputeThreads* threads)
      : model_(model), threads_(threads) {
    if (threads_ == nullptr) return;
    held_.emplace(*threads_);
    model_.set_between([this] {
      held_.reset();
      held_.emplace(*threads_);
    });
  }
  ~Turns() { model_.set_between({}); }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

 private:
  struct Held {
    explicit Held(executor::ComputeThreads& threads) : turn(threads.take_turn()) {}
    executor::ComputeThreads::Turn turn;
  };
  models::Whisper& model_;
  executor::ComputeThreads* const threads_;
  std::optional<Held> held_;
};

class WhisperRecognition final : public speech::Recognition {
 public:
  WhisperRecognition(const WhisperRecogniser::Parts& parts, models::WhisperTranscription made,
                     const speech::Task& task)
      : parts_(parts), made_(std::move(made)), has_words_(task.words) {
    transcript_.language = made_.language();
    transcript_.translates = task.translates;
    transcript_.seconds = made_.seconds();
  }

  Result<bool> step(const std::function<bool()>& go_on) override {
    const Turns turns(parts_.model, parts_.threads);
    const Result<bool> more = made_.step(parts_.model, go_on);
    note_segments();
    return more;
  }
  models::WhisperTranscription& made() { return made_; }
  // What it has come to since is in the transcript.
  void note_segments() {
    transcript_.language = made_.language();
    for (size_t i = transcript_.segments.size(); i < made_.segments().size(); ++i) {
      transcript_.segments.push_back(segment_of(made_.segments()[i]));
    }
  }
  const speech::Transcript& transcript() const override { return transcript_; }

 private:
  speech::Segment segment_of(const models::WhisperSegment& made) const {
    speech::Segment segment;
    segment.begin_s = made.begin_s;
    segment.end_s = made.end_s;
    segment.seek = made.seek;
    segment.tokens = made.tokens;
    segment.temperature = made.temperature;
    segment.average_logprob = made.average_logprob;
    segment.compression_ratio = made.compression_ratio;
    segment.no_speech = made.no_speech;
    if (parts_.tokenizer == nullptr) return segment;
    std::vector<TokenId> text = made.tokens;
    std::erase_if(text, [&](TokenId id) { return id >= parts_.model.config().end_of_text; });
    segment.text = parts_.tokenizer->decode(text);
    if (has_words_ && made.aligned.size() == text.size()) {
      segment.words = spoken_words(text, made.aligned, *parts_.tokenizer, transcript_.language);
    }
    return segment;
  }

  const WhisperRecogniser::Parts parts_;
  models::WhisperTranscription made_;
  const bool has_words_;
  speech::Transcript transcript_;
};

models::TranscriptionTask model_task(const speech::Task& task) {
  return {.language = task.language,
          .translates = task.translates,
          .timestamps = task.timestamps,
          .uses_previous = task.uses_previous,
          .prompt = {},
          .temperature = task.temperature.value_or(0.0),
          .falls_back = true,
          .aligns = task.words,
          .search = {.beam_size = task.search.beam_size,
                     .patience = task.search.patience,
                     .best_of = task.search.best_of,
                     .length_penalty = task.search.length_penalty}};
}

std::string without_blanks_around(const std::string& text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace

WhisperRecogniser::WhisperRecogniser(Parts parts)
    : parts_(parts), front_(parts.model.config().mel_bands) {}

Result<void> WhisperRecogniser::check(const speech::Task& task) const {
  return models::check_task(parts_.model.config(), model_task(task));
}

std::vector<TokenId> WhisperRecogniser::prompt_tokens(const std::string& prompt) const {
  if (parts_.tokenizer == nullptr || prompt.empty()) return {};
  std::vector<TokenId> tokens = parts_.tokenizer->encode(" " + without_blanks_around(prompt));
  std::erase_if(tokens,
                [end = parts_.model.config().end_of_text](TokenId id) { return id >= end; });
  return tokens;
}

models::CompressionOf WhisperRecogniser::compression() const {
  const tokenizer::Tokenizer* const tokenizer = parts_.tokenizer;
  if (tokenizer == nullptr) return {};
  return [tokenizer](std::span<const TokenId> text) {
    return speech::compression_ratio(without_blanks_around(tokenizer->decode(text)));
  };
}

Result<std::unique_ptr<speech::Recognition>> WhisperRecogniser::begin(
    std::vector<float> samples, const speech::Task& task,
    const std::function<bool()>& go_on) const {
  TRY(check(task));
  models::TranscriptionTask asked = model_task(task);
  asked.prompt = prompt_tokens(task.prompt);
  const audio::LogMel& front = front_;
  models::WhisperTranscription made(
      parts_.model.config(), std::move(samples), std::move(asked),
      [&](std::span<const float> sound) { return front.of_while(sound, go_on); }, compression());
  if (!go_on()) return Error{ErrorCode::kCancelled, "stopped", ""};
  return std::unique_ptr<speech::Recognition>(
      std::make_unique<WhisperRecognition>(parts_, std::move(made), task));
}

std::vector<Result<bool>> WhisperRecogniser::step_all(std::span<const speech::Turn> turns) const {
  std::vector<WhisperRecognition*> begun;
  std::vector<models::WhisperTranscription::Turn> wanted;
  for (const speech::Turn& turn : turns) {
    begun.push_back(static_cast<WhisperRecognition*>(turn.recognition));
    wanted.push_back({.recording = &begun.back()->made(), .go_on = turn.go_on});
  }
  const Turns held(parts_.model, parts_.threads);
  std::vector<Result<bool>> results = models::WhisperTranscription::step_all(parts_.model, wanted);
  for (WhisperRecognition* const one : begun) one->note_segments();
  return results;
}

Result<speech::LiveText> WhisperRecogniser::hear(speech::LiveWindow window,
                                                 const std::function<bool()>& go_on) const {
  models::LiveWindowTask task{.language = std::move(window.language),
                              .previous = prompt_tokens(window.prompt),
                              .begun = std::move(window.begun),
                              .falls_back = window.is_last};
  task.previous.insert(task.previous.end(), window.previous.begin(), window.previous.end());
  // Its spectrogram needs none of the threads that all models share.
  std::optional<Turns> turns;
  const auto mel = [&](std::span<const float> sound) {
    std::vector<float> made = front_.of_while(sound, go_on);
    turns.emplace(parts_.model, parts_.threads);
    return made;
  };
  TRY_ASSIGN(models::LiveWindowText heard,
             models::hear_live_window(parts_.model, std::move(window.samples), task, mel,
                                      compression(), go_on));
  return speech::LiveText{.tokens = std::move(heard.tokens),
                          .language = std::move(heard.language),
                          .is_repetitive = heard.is_repetitive};
}

std::string WhisperRecogniser::text_of(std::span<const TokenId> tokens) const {
  return parts_.tokenizer == nullptr ? std::string() : parts_.tokenizer->decode(tokens);
}

}  // namespace pelton::node
