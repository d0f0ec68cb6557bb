#include "api/generate_request.h"

#include <limits>
#include <utility>

#include "api/documented_fields.h"
#include "api/json_object.h"
#include "api/token_ids.h"

namespace pelton::api {
namespace {

void read_tokens(const Fields& body, const RequestLimits& limits, GenerateRequest& request) {
  const Json* items = body.array("token_ids", kGenerateTokensMax);
  if (body.failed()) return;
  if (items == nullptr || items->as_array().empty()) {
    body.refuse("token_ids", items == nullptr ? "'token_ids' is missing"
                                              : "'token_ids' must have at least one token");
    return;
  }
  auto tokens = read_token_ids(items->as_array(), "token_ids", body, limits);
  if (tokens) request.tokens = std::move(*tokens);
}

// "sampling_params" says how to sample; who asks, and how the answer comes, stands beside it.
// Without it, all of that stands in the body.
void read_generation(const Fields& body, RequestLimits limits, GenerateRequest& request) {
  limits.request_id_bytes_max = kRenderedIdBytesMax;
  const Json* params = body.object("sampling_params");
  if (params == nullptr) {
    request.generation = read_generation_fields(body, limits);
    read_token_reports(body, limits, request.generation);
    check_logprob_tokens(body, request.generation, false);
    return;
  }
  const Fields fields(*params, "sampling_params", body.complaint(), Fields::Reads::kKept);
  request.generation = read_generation_fields(fields, limits);
  read_token_reports(fields, limits, request.generation);
  read_caller_fields(body, limits, request.generation);
  if (!request.generation.format) request.generation.format = read_output_format(body);
  if (!request.generation.stop.empty()) {
    fields.refuse_unsupported("stop", "a stop string, where there are only tokens,");
  }
  const auto logprobs = fields.integer("logprobs", {.low = 0, .high = limits.top_logprobs_max});
  if (logprobs) request.logprobs = static_cast<int>(*logprobs);
  check_logprob_tokens(fields, request.generation, logprobs.has_value());
  check_unread_fields(fields, BodyKind::kText, limits.unknown_fields, request.warnings);
}

}  // namespace

Result<GenerateRequest> read_generate_request(const Json& json, const RequestLimits& limits) {
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint, Fields::Reads::kKept, limits.fields_read);
  GenerateRequest request;
  if (const std::string* model = fields.text("model", 512)) request.model = *model;
  if (const std::string* id = fields.text("request_id", kRenderedIdBytesMax))
    request.request_id = *id;
  read_tokens(fields, limits, request);
  read_generation(fields, limits, request);
  if (request.generation.prompt_logprobs && request.generation.stream) {
    fields.refuse("prompt_logprobs",
                  "'prompt_logprobs' of tokens come in whole answers, not with 'stream': true");
  }
  // What the tokens are, messages or plain text, only the caller knows.
  if (const std::optional<OutputFormat>& format = request.generation.format) {
    fields.refuse_unsupported(format->field, "an output format, where there are only tokens,");
  }
  // What a rendered body says of its tokens.
  fields.text("prompt", std::numeric_limits<size_t>::max());
  fields.integer("count", {.low = 0});
  if (request.generation.timings) {
    const bool plain = fields.boolean("timings").value_or(false);
    fields.refuse_unsupported(plain ? "timings" : "timings_per_token", "telling times of tokens");
  }
  check_unread_fields(fields, BodyKind::kText, limits.unknown_fields, request.warnings);
  if (complaint) return std::move(*complaint);
  return request;
}

Result<GenerateRequest> parse_generate_request(std::string_view body, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  return read_generate_request(json, limits);
}

}  // namespace pelton::api
