#include "api/ollama_response.h"

#include "base/digest.h"
#include "base/json_writer.h"
#include "base/utc_time.h"

namespace pelton::api {
namespace {

using base::JsonWriter;

int64_t ns_of(double ms) {
  return static_cast<int64_t>(ms * 1e6);
}

// An object, as clients read them: what a model has written that is none stands in one by itself.
void write_arguments(JsonWriter& writer, const std::string& arguments) {
  const Result<Json> parsed = Json::parse(arguments);
  if (parsed.ok() && parsed->is_object()) {
    writer.value(*parsed);
  } else {
    writer.begin_object().key("arguments").string(arguments).end_object();
  }
}

void write_message(JsonWriter& writer, const OllamaPiece& piece) {
  writer.key("message").begin_object().key("role").string("assistant");
  writer.key("content").string(piece.content);
  if (!piece.thinking.empty()) writer.key("thinking").string(piece.thinking);
  if (!piece.calls.empty()) {
    writer.key("tool_calls").begin_array();
    for (const OllamaCall& call : piece.calls) {
      writer.begin_object().key("function").begin_object().key("name").string(call.name);
      writer.key("arguments");
      write_arguments(writer, call.arguments);
      writer.end_object().end_object();
    }
    writer.end_array();
  }
  writer.end_object();
}

void write_end(JsonWriter& writer, const OllamaEnd& end) {
  writer.key("done").boolean(true).key("done_reason").string(end.reason);
  if (end.reason == "load" || end.reason == "unload") return;
  writer.key("total_duration").integer(end.total_ns).key("load_duration").integer(0);
  writer.key("prompt_eval_count").integer(end.timings.prompt_tokens);
  writer.key("prompt_eval_duration").integer(ns_of(end.timings.prefill_ms));
  writer.key("eval_count").integer(end.timings.output_tokens);
  writer.key("eval_duration").integer(ns_of(end.timings.decode_ms));
}

void write_details(JsonWriter& writer, const OllamaModel& model) {
  writer.key("details").begin_object().key("parent_model").string(model.parent);
  writer.key("format").string("safetensors").key("family").string("").key("families").null();
  writer.key("parameter_size").string("");
  writer.key("quantization_level").string(model.quantization).end_object();
}

void write_model(JsonWriter& writer, const OllamaModel& model) {
  writer.key("name").string(model.name).key("model").string(model.name);
  writer.key("modified_at").string(base::utc_time(model.modified_s * 1000));
  writer.key("size").integer(0).key("digest").string(model.digest);
  write_details(writer, model);
}

}  // namespace

void append_ollama_object(const OllamaHead& head, int64_t created_ms, const OllamaPiece& piece,
                          const OllamaEnd* end, std::string& out) {
  JsonWriter writer(out);
  writer.begin_object().key("model").string(head.model);
  writer.key("created_at").string(base::utc_time(created_ms));
  if (head.is_chat) {
    write_message(writer, piece);
  } else {
    writer.key("response").string(piece.content);
    if (!piece.thinking.empty()) writer.key("thinking").string(piece.thinking);
  }
  if (!piece.logprobs.empty()) {
    writer.key("logprobs");
    write_token_logprobs(writer, piece.logprobs);
  }
  if (end == nullptr) {
    writer.key("done").boolean(false);
  } else {
    write_end(writer, *end);
  }
  writer.end_object();
}

std::string ollama_embedding_body(std::string_view model,
                                  std::span<const std::vector<float>> vectors,
                                  int64_t prompt_tokens, int64_t total_ns) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("model").string(model).key("embeddings").begin_array();
  for (const std::vector<float>& vector : vectors) {
    writer.begin_array();
    for (const float value : vector) writer.number(static_cast<double>(value));
    writer.end_array();
  }
  writer.end_array().key("total_duration").integer(total_ns).key("load_duration").integer(0);
  writer.key("prompt_eval_count").integer(prompt_tokens).end_object();
  return body;
}

std::string ollama_digest(std::string_view name) {
  return base::sha256(name);
}

std::string ollama_tags_body(std::span<const OllamaModel> models) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("models").begin_array();
  for (const OllamaModel& model : models) {
    writer.begin_object();
    write_model(writer, model);
    writer.end_object();
  }
  writer.end_array().end_object();
  return body;
}

std::string ollama_ps_body(std::span<const OllamaModel> models, std::span<const int64_t> ends_ms) {
  // As Ollama writes what stays for good: a day that nobody lives to see.
  constexpr std::string_view kForGood = "2318-01-01T00:00:00.000Z";
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("models").begin_array();
  for (size_t i = 0; i < models.size(); ++i) {
    writer.begin_object();
    write_model(writer, models[i]);
    writer.key("expires_at");
    writer.string(ends_ms[i] == INT64_MAX ? std::string(kForGood) : base::utc_time(ends_ms[i]));
    writer.key("size_vram").integer(0);
    writer.key("context_length").integer(models[i].context_max).end_object();
  }
  writer.end_array().end_object();
  return body;
}

std::string ollama_show_body(const OllamaModel& model) {
  std::string body;
  JsonWriter writer(body);
  writer.begin_object().key("modelfile").string("").key("parameters").string("");
  writer.key("template").string("").key("license").string(model.license);
  write_details(writer, model);
  writer.key("model_info").begin_object().key("general.architecture").string("pelton");
  writer.key("pelton.context_length").integer(model.context_max);
  writer.key("pelton.vocab_size").integer(model.vocab_size).end_object();
  writer.key("capabilities").begin_array();
  if (!model.can_embed) writer.string("completion");
  if (model.can_chat) writer.string("tools").string("thinking");
  if (model.can_embed) writer.string("embedding");
  writer.end_array().key("modified_at").string(base::utc_time(model.modified_s * 1000));
  writer.end_object();
  return body;
}

}  // namespace pelton::api
