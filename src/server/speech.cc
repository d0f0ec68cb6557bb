// POST /v1/audio/speech: text -> pieces -> prompts -> engine -> Generation -> sound. GET
// /v1/audio/voices.
#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "api/speech_request.h"
#include "base/random.h"
#include "net/url.h"
#include "server/endpoints.h"
#include "server/random_id.h"
#include "server/reply.h"
#include "server/request_pipeline.h"
#include "server/speech_answer.h"
#include "server/speech_use.h"
#include "speech/sound_encoder.h"
#include "speech/text_pieces.h"

namespace pelton::server {
namespace {

// Of one piece, where the request says nothing: about 49 s of sound, so that a model that finds no
// end is stopped.
constexpr int64_t kPieceTokensMax = 585 * int64_t{speech::kFrameTokens};

api::ApiError no_speech(const ServedModel& model) {
  return {.status = 501,
          .message = fmt::format("'{}' makes no sound: it is served without a speech decoder "
                                 "(pelton serve --speech-decoder)",
                                 model.id),
          .type = "invalid_request_error",
          .param = "model",
          .code = "modality_not_supported"};
}

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

std::unique_ptr<speech::SoundEncoder> encoder(const SpeechUse& speech,
                                              api::SpeechRequest::Format format, bool is_whole) {
  const speech::EncoderOptions options{.sample_rate = speech.queue.sample_rate(),
                                       .is_whole = is_whole};
  if (is_compressed(format)) return speech.compressed.make(api::format_name(format), options);
  return format == api::SpeechRequest::Format::kWav ? speech::wav_encoder(options)
                                                    : speech::pcm_encoder();
}

class Speech final : public ModelRequest {
 public:
  std::optional<api::ApiError> read(const std::string& body, const Scope& scope) override {
    if (scope.model.speech == nullptr) return no_speech(scope.model);
    return keep(api::parse_speech_request(body, scope.model.request_limits()), request_);
  }

  Fields fields(const ServedModel&) const override {
    return fields_of(request_.generation, request_.model, request_.warnings);
  }

  std::optional<api::ApiError> refusal(const Call&, const Scope& scope) const override {
    const SpeechUse& speech = *scope.model.speech;
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
                           fmt::format("'voice': there is none of this name; '{}' has {}",
                                       scope.model.id, fmt::join(speech.voices, ", ")),
                           "voice"});
  }

  std::optional<api::ApiError> prepare(Prepared with, const Scope& scope) override;
  void start(Call call, Services& services) override;

 private:
  std::optional<api::ApiError> prepare_piece(size_t index, const std::string& text,
                                             const Prepared& with, const Scope& scope);

  api::SpeechRequest request_;
  std::string id_;
  uint64_t seed_ = 0;
  std::vector<EngineWork> work_;  // of each piece
};

std::optional<api::ApiError> Speech::prepare(Prepared with, const Scope& scope) {
  using Orpheus = speech::OrpheusSampling;
  api::GenerationFields& fields = request_.generation;
  id_ = answer_id("speech-", fields.request_id, scope.identity.draw());
  seed_ = fields.seed.value_or(scope.identity.draw_seed());
  // What the model was published with, not what its text side would be sampled with.
  fields.temperature = fields.temperature.value_or(Orpheus::kTemperature);
  fields.top_p = fields.top_p.value_or(Orpheus::kTopP);
  fields.top_k = fields.top_k.value_or(0);
  fields.min_p = fields.min_p.value_or(0.0);
  fields.repetition_penalty = fields.repetition_penalty.value_or(Orpheus::kRepetitionPenalty);
  const std::vector<std::string> pieces =
      speech::text_pieces(request_.input, speech::kPieceCharsMax);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (auto error = prepare_piece(i, pieces[i], with, scope)) return error;
  }
  return std::nullopt;
}

std::optional<api::ApiError> Speech::prepare_piece(size_t index, const std::string& text,
                                                   const Prepared& with, const Scope& scope) {
  const SpeechUse& speech = *scope.model.speech;
  std::vector<TokenId> prompt = speech.tokens.prompt(scope.model.tokenizer, request_.voice, text);
  api::GenerationFields fields = request_.generation;
  // The first piece is sampled with the request's own seed.
  fields.seed = index == 0 ? seed_ : base::random_bits(seed_, index);
  const int64_t room = scope.model.context_limit() - static_cast<int64_t>(prompt.size());
  if (!fields.max_tokens && room > 0) fields.max_tokens = std::min(room, kPieceTokensMax);
  EngineWork work;
  auto error = keep(engine_work(scope, fields,
                                {.id = fmt::format("{}/{}", id_, index),
                                 .prompt = std::move(prompt),
                                 .prompt_field = "input",
                                 .deadline_ns = with.deadline_ns,
                                 .guide = grammar::GrammarState(speech.grammar),
                                 .seed_if_none = *fields.seed}),
                    work);
  if (error) return error;
  work.request.stop.stop_tokens = speech.tokens.stop_tokens();
  work_.push_back(std::move(work));
  return std::nullopt;
}

void Speech::start(Call call, Services& services) {
  // Sound that has been heard cannot be made again elsewhere from where it broke off.
  call.observer = nullptr;
  call.resumed = nullptr;
  const bool streams = request_.generation.stream;
  const auto tokens_max = work_.front().request.stop.max_new_tokens;
  const SpeechAnswer::Options options{
      .pieces = work_.size(),
      .format = request_.format,
      .is_sse = request_.is_sse,
      .is_whole = !streams,
      .encoder = encoder(*call.model->speech, request_.format, !streams),
      .arrived_ns = call.arrived_ns};
  auto made = services.submit(call, std::move(work_));
  if (!made) return;
  auto answer = std::make_unique<SpeechAnswer>(*call.model, options, services.clock);
  run_generation(services, {.id = std::move(id_),
                            .call = std::move(call),
                            .streams = *std::move(made),
                            .answer = std::move(answer),
                            .mode = streams ? Generation::Mode::kStream : Generation::Mode::kWhole,
                            .output_tokens_max = tokens_max});
}

}  // namespace

void create_speech(Call call, Services& services) {
  run_request(std::move(call), services, std::make_unique<Speech>(), Work::kSampled);
}

void list_voices(Call call, Services& services) {
  const std::vector<std::shared_ptr<const ServedModel>> serving = services.catalogue.serving();
  const std::string asked = net::query_value(call.request.query, "model").value_or("");
  std::vector<api::VoiceList> models;
  for (const auto& model : serving) {
    if (model->speech == nullptr || !model->answers_to(asked)) continue;
    models.push_back({.model = model->id, .voices = model->speech->voices});
  }
  call.send(json_reply(api::voices_body(models)));
}

}  // namespace pelton::server
