#include "api/generate_request.h"

#include <utility>

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
void read_generation(const Fields& body, RequestLimits limits, GenerateRequest& request) {
  limits.request_id_bytes_max = kRenderedIdBytesMax;
  request.generation = read_generation_fields(body, limits);
  const Json* params = body.object("sampling_params");
  if (params == nullptr) return;
  const Fields fields(*params, "sampling_params", body.complaint());
  GenerationFields sampling = read_generation_fields(fields, limits);
  if (!sampling.format) sampling.format = std::move(request.generation.format);
  sampling.stream = request.generation.stream;
  sampling.include_usage = request.generation.include_usage;
  sampling.priority = request.generation.priority;
  sampling.user = std::move(request.generation.user);
  sampling.cache_salt = std::move(request.generation.cache_salt);
  sampling.timeout_s = request.generation.timeout_s;
  request.generation = std::move(sampling);
  if (!request.generation.stop.empty()) {
    fields.refuse_unsupported("stop", "a stop string, where there are only tokens,");
  }
  const auto logprobs = fields.integer("logprobs", {.low = 0, .high = kTopLogprobsMax});
  if (logprobs) request.logprobs = static_cast<int>(*logprobs);
}

}  // namespace

Result<GenerateRequest> parse_generate_request(std::string_view body, const RequestLimits& limits) {
  TRY_ASSIGN(const Json json, parse_object(body));
  std::optional<Error> complaint;
  const Fields fields(json, "", complaint);
  GenerateRequest request;
  if (const std::string* model = fields.text("model", 512)) request.model = *model;
  if (const std::string* id = fields.text("request_id", kRenderedIdBytesMax))
    request.request_id = *id;
  read_tokens(fields, limits, request);
  read_generation(fields, limits, request);
  refuse_unless_empty(fields, "features");
  // What the tokens are, messages or plain text, only the caller knows.
  if (const std::optional<OutputFormat>& format = request.generation.format) {
    fields.refuse_unsupported(format->field, "an output format, where there are only tokens,");
  }
  if (complaint) return std::move(*complaint);
  return request;
}

}  // namespace pelton::api
