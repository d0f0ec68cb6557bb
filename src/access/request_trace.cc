#include "access/request_trace.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"

namespace pelton::access {
namespace {

using telemetry::Span;

// Turns times of the monotonic clock into calendar ones, and adds spans below the request's own.
class SpanList {
 public:
  SpanList(const RequestRecord& record, std::string name, uint64_t seed)
      : record_(record),
        seed_(seed),
        unix_minus_clock_ns_(record.arrived_unix_ms * 1'000'000 - record.arrived_ns) {
    spans_.push_back({.trace_id = record.trace.trace_id,
                      .span_id = record.trace.span_id,
                      .parent_id = record.trace_parent,
                      .name = std::move(name),
                      .kind = Span::Kind::kServer,
                      .start_unix_ns = unix(record.arrived_ns),
                      .end_unix_ns = unix(record.ended_ns),
                      .failed = record.status >= 500,
                      .attributes = {}});
  }

  struct Child {
    uint64_t parent_id;
    std::string name;
    int64_t start_ns;
    int64_t end_ns;
  };

  Span& root() { return spans_.front(); }
  // Nothing if the request did not come so far. Valid until the next one is added.
  Span* add(Child child) {
    if (child.start_ns == 0 || child.end_ns < child.start_ns) return nullptr;
    const uint64_t id = base::random_bits(seed_, spans_.size());
    spans_.push_back({.trace_id = record_.trace.trace_id,
                      .span_id = id == 0 ? 1 : id,
                      .parent_id = child.parent_id,
                      .name = std::move(child.name),
                      .kind = Span::Kind::kInternal,
                      .start_unix_ns = unix(child.start_ns),
                      .end_unix_ns = unix(child.end_ns),
                      .failed = false,
                      .attributes = {}});
    return &spans_.back();
  }
  std::vector<Span> take() { return std::move(spans_); }

 private:
  int64_t unix(int64_t clock_ns) const { return clock_ns + unix_minus_clock_ns_; }

  const RequestRecord& record_;
  const uint64_t seed_;
  const int64_t unix_minus_clock_ns_;
  std::vector<Span> spans_;
};

constexpr std::string_view kGrpcPrefix = "/pelton.v1.Inference/";

constexpr std::string_view kNoRoute = "none";

// By OpenTelemetry's conventions: "POST /v1/chat/completions", or "pelton.v1.Inference/Generate".
// Without a route the method alone, "HTTP" where that is none that is known: no foreign words.
std::string request_name(const RequestRecord& record) {
  if (record.handler.starts_with(kGrpcPrefix)) return std::string(record.handler.substr(1));
  if (record.handler == kNoRoute) {
    return record.http_method == kOtherMethod ? "HTTP" : std::string(record.http_method);
  }
  return fmt::format("{} {}", record.method, record.handler);
}

// gen_ai.operation.name, of the values that the conventions know.
std::string_view operation_of(std::string_view handler) {
  static constexpr std::pair<std::string_view, std::string_view> kOperations[] = {
      {"/v1/completions", "text_completion"},
      {"/inference/v1/generate", "text_completion"},
      {"/pelton.v1.Inference/Generate", "generate_content"},
      {"/v1/embeddings", "embeddings"},
      {"/v2/embed", "embeddings"},
      {"/v1/rerank", "embeddings"},
      {"/v1/score", "embeddings"},
      {"/classify", "embeddings"},
      {"/embed", "embeddings"},
      {"/embed_all", "embeddings"},
      {"/embed_sparse", "embeddings"},
      {"/similarity", "embeddings"},
      {"/predict", "embeddings"},
      {"/pelton.v1.Inference/Embed", "embeddings"},
  };
  for (const auto& [route, operation] : kOperations) {
    if (route == handler) return operation;
  }
  return "chat";
}

// "chat MODEL"
std::string inference_name(const RequestRecord& record) {
  const std::string_view operation = operation_of(record.handler);
  return record.model.empty() ? std::string(operation)
                              : fmt::format("{} {}", operation, record.model);
}

void describe_request(const RequestRecord& record, Span& root) {
  const std::string_view method = record.http_method.empty() ? record.method : record.http_method;
  root.attributes = {
      {"http.request.method", std::string(method)},
      {"url.path", record.path},
      {"http.response.status_code", static_cast<int64_t>(record.status)},
      {"http.request.body.size", record.request_bytes},
      {"pelton.request_id", record.request_id},
  };
  if (record.handler != kNoRoute) {
    root.attributes.push_back({"http.route", std::string(record.handler)});
  }
  if (record.handler.starts_with(kGrpcPrefix)) {
    root.attributes.push_back({"rpc.system", "grpc"});
    root.attributes.push_back({"rpc.service", "pelton.v1.Inference"});
    root.attributes.push_back(
        {"rpc.method", std::string(record.handler.substr(kGrpcPrefix.size()))});
  }
  if (root.failed) root.attributes.push_back({"error.type", std::to_string(record.status)});
}

// One for each answer.
std::vector<std::string> finish_reasons(const GenerationFacts& made) {
  std::vector<std::string> reasons(static_cast<size_t>(made.answers), "stop");
  std::fill_n(reasons.begin(), made.cut_answers, "length");
  return reasons;
}

// gen_ai.request.*: what was asked for, and nothing of the server's defaults.
void describe_asked(const SamplingAsked& asked, Span& span) {
  const auto add = [&](std::string_view key, auto value) {
    span.attributes.push_back({key, value});
  };
  if (asked.max_tokens) add("gen_ai.request.max_tokens", *asked.max_tokens);
  if (asked.temperature) add("gen_ai.request.temperature", *asked.temperature);
  if (asked.top_p) add("gen_ai.request.top_p", *asked.top_p);
  if (asked.top_k) add("gen_ai.request.top_k", static_cast<double>(*asked.top_k));
  if (asked.frequency_penalty != 0) {
    add("gen_ai.request.frequency_penalty", asked.frequency_penalty);
  }
  if (asked.presence_penalty != 0) add("gen_ai.request.presence_penalty", asked.presence_penalty);
  if (asked.seed) add("gen_ai.request.seed", static_cast<int64_t>(*asked.seed));
  if (asked.choices != 1) add("gen_ai.request.choice.count", int64_t{asked.choices});
  if (asked.json) add("gen_ai.output.type", std::string("json"));
  if (asked.dimensions) {
    add("gen_ai.embeddings.dimension.count", static_cast<int64_t>(*asked.dimensions));
  }
}

// OpenTelemetry's span of an inference.
void describe_inference(const RequestRecord& record, Span& span) {
  const std::string_view operation = operation_of(record.handler);
  span.attributes = {{"gen_ai.operation.name", std::string(operation)},
                     {"gen_ai.provider.name", "pelton"}};
  if (!record.model.empty()) {
    span.attributes.push_back({"gen_ai.request.model", record.model});
    span.attributes.push_back({"gen_ai.response.model", record.model});
  }
  if (!record.adapter.empty()) span.attributes.push_back({"pelton.adapter", record.adapter});
  describe_asked(record.asked, span);
  span.failed = record.status >= 500;
  if (span.failed) span.attributes.push_back({"error.type", std::to_string(record.status)});
  const GenerationFacts& made = record.generation;
  if (made.answers == 0) return;
  if (operation != "embeddings") {
    span.attributes.push_back({"gen_ai.response.finish_reasons", finish_reasons(made)});
    span.attributes.push_back({"gen_ai.usage.output_tokens", made.output_tokens});
  }
  span.attributes.push_back({"gen_ai.usage.input_tokens", made.prompt_tokens});
  span.attributes.push_back({"gen_ai.usage.cache_read.input_tokens", made.cached_tokens});
}

}  // namespace

std::vector<telemetry::Span> request_spans(const RequestRecord& record, uint64_t seed) {
  SpanList spans(record, request_name(record), seed);
  describe_request(record, spans.root());
  const GenerationTimes& times = record.generation.times;
  const auto add_compile = [&](uint64_t parent_id) {
    spans.add({.parent_id = parent_id,
               .name = "format.compile",
               .start_ns = record.compile_began_ns,
               .end_ns = record.compile_ended_ns});
  };
  if (times.queued_ns == 0) {  // perhaps because its format is none
    add_compile(record.trace.span_id);
    return spans.take();
  }
  Span* inference = spans.add({.parent_id = record.trace.span_id,
                               .name = inference_name(record),
                               .start_ns = record.arrived_ns,
                               .end_ns = record.ended_ns});
  if (inference == nullptr) return spans.take();
  describe_inference(record, *inference);
  const uint64_t parent_id = inference->span_id;
  const auto add = [&](std::string name, int64_t start_ns, int64_t end_ns) {
    spans.add(
        {.parent_id = parent_id, .name = std::move(name), .start_ns = start_ns, .end_ns = end_ns});
  };
  add("tokenize", record.arrived_ns, times.queued_ns);  // body to tokens
  add_compile(parent_id);
  add("admission", times.queued_ns, times.scheduled_ns);
  // A vector is there when its prompt has been computed: it has no first token.
  add("engine.prefill", times.scheduled_ns,
      times.first_token_ns != 0 ? times.first_token_ns : record.ended_ns);
  add("engine.decode", times.first_token_ns, times.last_token_ns);
  add("net", times.last_token_ns, record.ended_ns);  // the last token's way out
  return spans.take();
}

}  // namespace pelton::access
