#include "c_api/generation.h"

#include <cmath>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "c_api/sized_struct.h"
#include "c_api/status.h"
#include "chat/text_network.h"

namespace pelton::c_api {
namespace {

// Below it a number is none; the bounds are those of the server's requests.
struct Bound {
  std::string_view field;
  float value;
  float least;
  float most;
};

Result<void> check_sampling(const pelton_request& request) {
  const Bound bounds[] = {{"temperature", request.temperature, 0.0f, 2.0f},
                          {"top_p", request.top_p, 1e-6f, 1.0f},
                          {"min_p", request.min_p, 0.0f, 1.0f},
                          {"repetition_penalty", request.repetition_penalty, 0.01f, 100.0f},
                          {"frequency_penalty", request.frequency_penalty, -2.0f, 2.0f},
                          {"presence_penalty", request.presence_penalty, -2.0f, 2.0f}};
  for (const Bound& bound : bounds) {
    if (bound.value >= bound.least && bound.value <= bound.most) continue;  // NaN is neither
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is from {} to {}, not {}", bound.field, bound.least, bound.most,
                             bound.value),
                 std::string(bound.field)};
  }
  if (request.top_k >= 0 && request.max_tokens >= 0) return {};
  const bool is_top_k = request.top_k < 0;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'{}' is 0 or more, not {}", is_top_k ? "top_k" : "max_tokens",
                           is_top_k ? request.top_k : request.max_tokens),
               is_top_k ? "top_k" : "max_tokens"};
}

request::SamplingParams sampling_of(const pelton_request& request) {
  request::SamplingParams sampling;
  sampling.temperature = request.temperature;
  sampling.top_p = request.top_p;
  sampling.min_p = request.min_p;
  sampling.top_k = request.top_k;
  sampling.repetition_penalty = request.repetition_penalty;
  sampling.frequency_penalty = request.frequency_penalty;
  sampling.presence_penalty = request.presence_penalty;
  sampling.logprobs = request.logprobs != 0 ? 0 : -1;
  if (request.has_seed != 0) {
    sampling.seed = request.seed;
  } else {
    std::random_device device;
    sampling.seed = (uint64_t{device()} << 32) | device();
  }
  return sampling;
}

Result<grammar::GrammarState> guide_of(Model& model, const pelton_request& request,
                                       const Prompt& prompt) {
  if (request.grammar->model.get() != &model) {
    return Error{ErrorCode::kInvalidArgument, "'grammar' was compiled for another model",
                 "grammar"};
  }
  if (request.ignore_stop_tokens != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "'ignore_stop_tokens' does not go with 'grammar', whose end is one",
                 "ignore_stop_tokens"};
  }
  if (!prompt.is_chat) {
    return grammar::GrammarState(
        chat::text_network(request.grammar->compiled, model.loaded->stop_tokens()));
  }
  if (prompt.has_tools) {
    return Error{ErrorCode::kUnsupported, "'grammar' does not go with 'tools'", "grammar"};
  }
  TRY_ASSIGN(const std::shared_ptr<const chat::ChatFormat> format, model.loaded->chat_format());
  chat::TurnRules rules;
  rules.answer = request.grammar->compiled;
  TRY_ASSIGN(auto network, format->turn_grammar(rules, model.trie()));
  return grammar::GrammarState(std::move(network));
}

Result<int> room_for(const Model& model, const Prompt& prompt, int asked) {
  const int context = model.loaded->engine().capacity().context_tokens_max;
  const int room = context - static_cast<int>(prompt.tokens.size());
  if (room >= std::max(asked, 1)) return asked > 0 ? asked : room;
  return Error{ErrorCode::kDoesNotFit,
               fmt::format("the prompt has {} tokens{}, and the context {}", prompt.tokens.size(),
                           asked > 0 ? fmt::format(", the answer up to {}", asked) : "", context),
               "max_tokens"};
}

}  // namespace

Result<std::unique_ptr<Generation>> Generation::start(std::shared_ptr<Model> model,
                                                      const pelton_request* request) {
  TRY_ASSIGN(const pelton_request asked, read_request(*model, request));
  TRY(check_sampling(asked));
  TRY_ASSIGN(Prompt prompt, prompt_of(*model, asked));
  request::GenerationRequest wanted{.id = "library"};
  wanted.prompt = prompt.tokens;
  wanted.sampling = sampling_of(asked);
  TRY_ASSIGN(wanted.stop.max_new_tokens, room_for(*model, prompt, asked.max_tokens));
  if (asked.ignore_stop_tokens == 0) wanted.stop.stop_tokens = model->loaded->stop_tokens();
  if (asked.grammar != nullptr) {
    TRY_ASSIGN(wanted.guide, guide_of(*model, asked, prompt));
  }
  TRY_ASSIGN(engine::TokenStream stream, model->loaded->engine().submit(std::move(wanted)));
  return std::unique_ptr<Generation>(
      new Generation(std::move(model), std::move(prompt), std::move(stream)));
}

Generation::Generation(std::shared_ptr<Model> model, Prompt prompt, engine::TokenStream stream)
    : model_(std::move(model)), prompt_(std::move(prompt)), stream_(std::move(stream)) {
  if (!prompt_.is_chat) return;
  const auto calls = prompt_.has_tools ? chat::Calls::kRead : chat::Calls::kAsText;
  builder_.emplace((*model_->loaded->chat_format())->parser({calls, prompt_.functions}),
                   chat::ReplyBuilder::Options{});
}

Result<pelton_result> Generation::read(pelton_callback callback, void* data) {
  if (std::exchange(was_read_, true)) {
    return Error{ErrorCode::kInvalidArgument, "a generation is read once", ""};
  }
  callback_ = callback;
  data_ = data;
  // What the prompt has written of the turn is no part of the answer.
  for (const TokenId token : prompt_.opening) builder_->push(token, delta_);
  pelton_result result{};
  bool goes_on = true;
  while (true) {
    const engine::TokenStream::Batch batch = stream_.wait();
    for (const engine::SampledToken& token : batch.tokens) {
      if (goes_on && !push(token)) {
        goes_on = false;
        stream_.cancel();
      }
    }
    if (!batch.end) continue;
    if (batch.end->error) return *batch.end->error;
    if (goes_on) goes_on = end(*batch.end, result);
    if (!goes_on) result.finish = PELTON_FINISH_CANCELLED;
    result.prompt_tokens = batch.end->prompt_tokens;
    result.cached_tokens = batch.end->cached_tokens;
    result.output_tokens = batch.end->output_tokens;
    const engine::RequestTimes& times = batch.end->times;
    if (times.first_token_ns > 0) {
      result.first_token_ns = times.first_token_ns - times.queued_ns;
      result.total_ns = times.last_token_ns - times.queued_ns;
    }
    return result;
  }
}

bool Generation::push(const engine::SampledToken& token) {
  token_ = token.token;
  logprob_ = token.logprob;
  bool goes_on = true;
  if (builder_) {
    builder_->push(token.token, delta_);
    goes_on = push_delta(delta_);
  } else {
    goes_on = push_text(token.token);
  }
  // Every token is in an event.
  if (goes_on && token_ >= 0) goes_on = emit(PELTON_TOKEN, std::string());
  return goes_on;
}

bool Generation::push_text(TokenId token) {
  const tokenizer::Tokenizer& tokenizer = model_->text();
  if (tokenizer.is_special(token)) return true;
  text_.clear();
  decoder_.push(tokenizer.bytes(token), text_);
  return text_.empty() || emit(PELTON_TEXT, text_);
}

bool Generation::push_delta(const chat::ReplyDelta& delta) {
  if (!delta.reasoning.empty() && !emit(PELTON_REASONING, delta.reasoning)) return false;
  if (!delta.content.empty() && !emit(PELTON_TEXT, delta.content)) return false;
  for (const chat::ToolCallDelta& call : delta.tool_calls) {
    if (call.begins && !emit(PELTON_TOOL_CALL, call.name, call.index)) return false;
    if (!call.arguments.empty() && !emit(PELTON_TOOL_ARGUMENTS, call.arguments, call.index)) {
      return false;
    }
  }
  return true;
}

bool Generation::emit(pelton_event_kind kind, const std::string& text, int call) {
  const TokenId token = std::exchange(token_, -1);
  if (callback_ == nullptr) return true;
  const pelton_event event{.size = sizeof(pelton_event),
                           .kind = kind,
                           .text = text.c_str(),
                           .bytes = text.size(),
                           .call = call,
                           .token = token,
                           .logprob = token >= 0 ? logprob_ : 0.0f,
                           .reserved = 0};
  return callback_(data_, &event) == 0;
}

bool Generation::end(const engine::StreamEnd& end, pelton_result& result) {
  const bool is_cut = end.reason == engine::FinishReason::kLength;
  result.finish = is_cut                                           ? PELTON_FINISH_LENGTH
                  : end.reason == engine::FinishReason::kCancelled ? PELTON_FINISH_CANCELLED
                                                                   : PELTON_FINISH_STOP;
  if (!builder_) {
    text_.clear();
    decoder_.finish(text_);
    return text_.empty() || emit(PELTON_TEXT, text_);
  }
  const chat::Reply reply =
      builder_->finish(end.reason == engine::FinishReason::kStop ? chat::StopCause::kStopToken
                                                                 : chat::StopCause::kLength,
                       delta_);
  if (reply.finish == chat::ReplyFinish::kToolCalls) result.finish = PELTON_FINISH_TOOL_CALLS;
  return push_delta(delta_);
}

}  // namespace pelton::c_api

using namespace pelton::c_api;  // NOLINT: of the functions below, which stand in no namespace

void pelton_result_init(pelton_result* result, size_t size) {
  init_struct(pelton_result{}, result, size);
}

pelton_status pelton_start(pelton_model* model, const pelton_request* request,
                           pelton_generation** generation) {
  return guarded([&]() -> pelton::Result<pelton_status> {
    TRY(check_given(model, "model"));
    TRY(check_given(generation, "generation"));
    *generation = nullptr;
    TRY_ASSIGN(std::unique_ptr<Generation> begun, Generation::start(model->shared, request));
    *generation = new pelton_generation{std::move(begun)};
    return PELTON_OK;
  });
}

pelton_status pelton_read(pelton_generation* generation, pelton_callback callback, void* data,
                          pelton_result* result) {
  return guarded([&]() -> pelton::Result<pelton_status> {
    TRY(check_given(generation, "generation"));
    if (result != nullptr) TRY(check_sized(result, "result"));
    TRY_ASSIGN(const pelton_result made, generation->generation->read(callback, data));
    write_struct(made, result);
    return PELTON_OK;
  });
}

void pelton_cancel(pelton_generation* generation) {
  if (generation != nullptr) generation->generation->cancel();
}

void pelton_generation_free(pelton_generation* generation) {
  delete generation;
}

pelton_status pelton_generate(pelton_model* model, const pelton_request* request,
                              pelton_callback callback, void* data, pelton_result* result) {
  pelton_generation* generation = nullptr;
  const pelton_status status = pelton_start(model, request, &generation);
  if (status != PELTON_OK) return status;
  const std::unique_ptr<pelton_generation> owner(generation);
  return pelton_read(generation, callback, data, result);
}
