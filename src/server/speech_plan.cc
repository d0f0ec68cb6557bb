#include "server/speech_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/random.h"
#include "server/random_id.h"
#include "server/speech_use.h"
#include "speech/audio_windows.h"

namespace pelton::server {
namespace {

// Of one piece, where the request says nothing: about 49 s of sound, so that a model that finds no
// end is stopped.
constexpr int64_t kPieceTokensMax = 585 * int64_t{speech::kFrameTokens};
static_assert(api::kSpeechTokensMin == int64_t{speech::kWindowTokens});

bool is_compressed(api::SpeechRequest::Format format) {
  using Format = api::SpeechRequest::Format;
  return format != Format::kWav && format != Format::kPcm;
}

bool writes(const speech::CompressedSound& compressed, api::SpeechRequest::Format format) {
  return !is_compressed(format) ||
         std::ranges::find(compressed.formats, api::format_name(format)) !=
             compressed.formats.end();
}

std::vector<std::string> written_formats(const speech::CompressedSound& compressed) {
  std::vector<std::string> formats = {"wav", "pcm"};
  formats.insert(formats.end(), compressed.formats.begin(), compressed.formats.end());
  return formats;
}

}  // namespace

api::ApiError no_speech(const ServedModel& model) {
  return {.status = 501,
          .message = fmt::format("'{}' makes no sound: it is served without a speech decoder "
                                 "(pelton serve --speech-decoder)",
                                 model.id),
          .type = "invalid_request_error",
          .param = "model",
          .code = "modality_not_supported"};
}

std::optional<api::ApiError> SpeechPlan::read(const std::string& body, const ServedModel& model) {
  if (model.speech == nullptr) return no_speech(model);
  return keep(api::parse_speech_request(body, model.request_limits()), request_);
}

std::optional<api::ApiError> SpeechPlan::refusal(const ServedModel& model) const {
  const SpeechUse& speech = *model.speech;
  if (!writes(speech.compressed, request_.format)) {
    return api::api_error(
        {ErrorCode::kInvalidArgument,
         fmt::format("'response_format': this machine's libsndfile does not write '{}'; {} are "
                     "written",
                     api::format_name(request_.format),
                     fmt::join(written_formats(speech.compressed), ", ")),
         "response_format"});
  }
  if (speech.has_voice(request_.voice)) return std::nullopt;
  return api::api_error({ErrorCode::kInvalidArgument,
                         fmt::format("'voice': there is none of this name; '{}' has {}", model.id,
                                     fmt::join(speech.voices, ", ")),
                         "voice"});
}

std::optional<api::ApiError> SpeechPlan::no_room(const ServedModel& model) const {
  const std::optional<int64_t> wanted = request_.generation.max_tokens;
  if (!wanted) return std::nullopt;
  const std::vector<TokenId> prompt =
      model.speech->tokens.prompt(model.tokenizer, request_.voice, request_.input);
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  if (prompt_tokens + *wanted <= model.context_limit()) return std::nullopt;
  return api::context_length_exceeded({.prompt_tokens = prompt_tokens,
                                       .output_tokens = *wanted,
                                       .context_max = model.context_limit()},
                                      "max_tokens");
}

void SpeechPlan::settle(RequestIdentity& identity) {
  using Orpheus = speech::OrpheusSampling;
  api::GenerationFields& fields = request_.generation;
  id_ = answer_id("speech-", fields.request_id, identity.draw());
  seed_ = fields.seed.value_or(identity.draw_seed());
  // What the model was published with, not what its text side would be sampled with.
  fields.temperature = fields.temperature.value_or(Orpheus::kTemperature);
  fields.top_p = fields.top_p.value_or(Orpheus::kTopP);
  fields.top_k = fields.top_k.value_or(0);
  fields.min_p = fields.min_p.value_or(0.0);
  fields.repetition_penalty = fields.repetition_penalty.value_or(Orpheus::kRepetitionPenalty);
}

std::variant<EngineWork, api::ApiError> SpeechPlan::work(size_t piece, const std::string& text,
                                                         std::optional<int64_t> deadline_ns,
                                                         const ModelRequest::Scope& scope) const {
  const SpeechUse& speech = *scope.model.speech;
  std::vector<TokenId> prompt = speech.tokens.prompt(scope.model.tokenizer, request_.voice, text);
  api::GenerationFields fields = request_.generation;
  // The first piece is sampled with the request's own seed.
  fields.seed = piece == 0 ? seed_ : base::random_bits(seed_, piece);
  const int64_t room = scope.model.context_limit() - static_cast<int64_t>(prompt.size());
  // Where there is room for no sound, that is refused as if it had been asked for.
  if (!fields.max_tokens) {
    fields.max_tokens = std::clamp(room, api::kSpeechTokensMin, kPieceTokensMax);
  }
  auto made = engine_work(scope, fields,
                          {.id = fmt::format("{}/{}", id_, piece),
                           .prompt = std::move(prompt),
                           .prompt_field = "input",
                           .deadline_ns = deadline_ns,
                           .guide = grammar::GrammarState(speech.grammar),
                           .seed_if_none = *fields.seed});
  if (auto* work = std::get_if<EngineWork>(&made)) {
    work->request.stop.stop_tokens = speech.tokens.stop_tokens();
  }
  return made;
}

std::unique_ptr<speech::SoundEncoder> SpeechPlan::encoder(const ServedModel& model) const {
  const SpeechUse& speech = *model.speech;
  const speech::EncoderOptions options{.sample_rate = speech.queue.sample_rate(),
                                       .is_whole = !request_.generation.stream};
  if (is_compressed(request_.format)) {
    return speech.compressed.make(api::format_name(request_.format), options);
  }
  return request_.format == api::SpeechRequest::Format::kWav ? speech::wav_encoder(options)
                                                             : speech::pcm_encoder();
}

}  // namespace pelton::server
