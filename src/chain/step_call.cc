#include "chain/step_call.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::chain {
namespace {

Error bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}};
}

// The first characters of a text, on one line.
std::string shortened(std::string_view text) {
  constexpr size_t kShown = 160;
  std::string shown;
  for (const char c : text.substr(0, kShown)) {
    shown += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  // A character is not cut.
  if (text.size() > kShown) {
    while (!shown.empty() && (static_cast<unsigned char>(shown.back()) & 0x80) != 0) {
      shown.pop_back();
    }
    shown += "...";
  }
  return shown;
}

Json message(std::string_view role, const Json& content) {
  Json one{Json::Object{}};
  one.set("role", role);
  one.set("content", content);
  return one;
}

// "prompt" and "system" become messages; all else stays as it is.
Json chat_body(const Json& arguments) {
  Json body{Json::Object{}};
  const Json* const prompt = arguments.find("prompt");
  if (prompt != nullptr) {
    Json::Array messages;
    const Json* const system = arguments.find("system");
    if (system != nullptr && system->is_string()) messages.push_back(message("system", *system));
    messages.push_back(message("user", *prompt));
    body.set("messages", Json(std::move(messages)));
  }
  for (const Json::Member& member : arguments.as_object()) {
    if (member.key != "prompt" && member.key != "system") body.set(member.key, member.value);
  }
  return body;
}

std::string_view path_of(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChat:
      return "/v1/chat/completions";
    case Endpoint::kCompletions:
      return "/v1/completions";
    case Endpoint::kEmbeddings:
      return "/v1/embeddings";
    case Endpoint::kRerank:
      return "/v1/rerank";
  }
  return "";
}

Result<StepCall> http_call(const Step& step, const Json& arguments) {
  StepCall call;
  call.step = &step;
  if (step.posts) {
    call.body = arguments.dump();
    return call;
  }
  for (const Json::Member& member : arguments.as_object()) {
    if (member.value.is_array() || member.value.is_object()) {
      return bad(
          fmt::format("'{}' is {}, which no query holds", member.key, member.value.kind_name()));
    }
    if (member.value.is_null()) continue;
    call.query.emplace_back(
        member.key, member.value.is_string() ? member.value.as_string() : member.value.dump());
  }
  return call;
}

// The first of "choices": its text and why it ended.
Result<Json> choice_value(const Step& step, const Json& answer) {
  const Json* const choices = answer.find("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) {
    return bad("the answer has no 'choices'");
  }
  const Json& choice = choices->as_array().front();
  const Json* const text_holder =
      step.endpoint == Endpoint::kChat ? choice.find("message") : &choice;
  if (text_holder == nullptr) return bad("the answer's choice has no 'message'");
  Json value{Json::Object{}};
  const bool is_chat = step.endpoint == Endpoint::kChat;
  value.set("text", text_holder->string(is_chat ? "content" : "text").value_or(""));
  value.set("finish_reason", choice.string("finish_reason").value_or(""));
  return value;
}

bool is_vector(const Json& value) {
  return value.is_array() &&
         std::ranges::all_of(value.as_array(), [](const Json& one) { return one.is_number(); });
}

Result<Json> embeddings_value(const Json& answer) {
  const Json* const data = answer.find("data");
  if (data == nullptr || !data->is_array()) return bad("the answer has no 'data'");
  Json::Array vectors;
  for (const Json& one : data->as_array()) {
    const Json* const vector = one.find("embedding");
    if (vector == nullptr || !is_vector(*vector))
      return bad("the answer has an 'embedding' that is no list of numbers");
    vectors.push_back(*vector);
  }
  Json value{Json::Object{}};
  value.set("vectors", Json(std::move(vectors)));
  return value;
}

// A document comes back as a text or as {"text"}.
std::string document_text(const Json& result) {
  const Json* const document = result.find("document");
  if (document == nullptr) return {};
  return document->is_string() ? document->as_string() : document->string("text").value_or("");
}

Result<Json> rerank_value(const Json& answer) {
  const Json* const results = answer.find("results");
  if (results == nullptr || !results->is_array()) return bad("the answer has no 'results'");
  Json::Array indices;
  Json::Array scores;
  Json::Array documents;
  for (const Json& one : results->as_array()) {
    const std::optional<int64_t> index = one.integer("index");
    const std::optional<double> score = one.number("relevance_score");
    if (!index || !score) return bad("the answer has a result without index or relevance_score");
    indices.emplace_back(*index);
    scores.emplace_back(*score);
    documents.emplace_back(document_text(one));
  }
  Json value{Json::Object{}};
  value.set("indices", Json(std::move(indices)));
  value.set("scores", Json(std::move(scores)));
  value.set("documents", Json(std::move(documents)));
  return value;
}

Result<Json> model_value(const Step& step, const Json& answer) {
  switch (step.endpoint) {
    case Endpoint::kEmbeddings:
      return embeddings_value(answer);
    case Endpoint::kRerank:
      return rerank_value(answer);
    default:
      return choice_value(step, answer);
  }
}

}  // namespace

Result<StepCall> make_call(const Step& step, const Json& arguments, std::string_view any_model) {
  CHECK(step.kind != Step::Kind::kBuiltin, step.name);
  if (step.kind == Step::Kind::kHttp) return http_call(step, arguments);
  StepCall call;
  call.step = &step;
  call.path = path_of(step.endpoint);
  Json body = step.endpoint == Endpoint::kChat ? chat_body(arguments) : arguments;
  if (step.endpoint == Endpoint::kRerank && body.find("return_documents") == nullptr) {
    body.set("return_documents", Json(true));
  }
  const std::string_view model = step.target == "*" ? any_model : std::string_view(step.target);
  if (!model.empty()) body.set("model", model);
  call.body = body.dump();
  return call;
}

Result<Json> answer_value(const Step& step, const CallAnswer& answer) {
  Json value{Json::Object{}};
  if (step.kind == Step::Kind::kHttp) value.set("status", Json(answer.status));
  if (step.kind == Step::Kind::kHttp && step.takes_text) {
    value.set("text", answer.body);
    return value;
  }
  Result<Json> body = Json::parse(answer.body);
  if (!body.ok()) {
    const size_t begin = answer.body.find_first_not_of(" \t\r\n");
    const bool is_html = begin != std::string::npos && answer.body[begin] == '<';
    return bad(fmt::format("the answer is no JSON{}: '{}'", is_html ? " but HTML" : "",
                           shortened(answer.body)));
  }
  if (step.kind == Step::Kind::kHttp) {
    value.set("body", *std::move(body));
    return value;
  }
  TRY_ASSIGN(value, model_value(step, *body));
  const Usage usage = usage_of(*body);
  // Of thousands of pieces each keeps it: the sums only.
  Json sums{Json::Object{}};
  sums.set("prompt_tokens", Json(usage.prompt_tokens));
  sums.set("completion_tokens", Json(usage.completion_tokens));
  value.set("usage", std::move(sums));
  return value;
}

std::string streamed_body(Endpoint endpoint, std::string_view text, std::string_view finish_reason,
                          const Json& usage) {
  Json choice{Json::Object{}};
  if (endpoint == Endpoint::kChat) {
    choice.set("message", message("assistant", Json(text)));
  } else {
    choice.set("text", Json(text));
  }
  choice.set("finish_reason", Json(finish_reason));
  Json body{Json::Object{}};
  body.set("choices", Json(Json::Array{std::move(choice)}));
  if (usage.is_object()) body.set("usage", usage);
  return body.dump();
}

std::string error_text(const CallAnswer& answer) {
  const Result<Json> body = Json::parse(answer.body);
  if (body.ok()) {
    const Json* const error = body->find("error");
    if (error != nullptr && error->is_string()) return shortened(error->as_string());
    const std::optional<std::string> message =
        error != nullptr ? error->string("message") : body->string("message");
    if (message) return shortened(*message);
  }
  return shortened(answer.body);
}

Usage& Usage::operator+=(const Usage& other) {
  prompt_tokens += other.prompt_tokens;
  completion_tokens += other.completion_tokens;
  return *this;
}

Usage usage_of(const Json& value) {
  const Json* const usage = value.find("usage");
  if (usage == nullptr) return {};
  // What a foreign server says is not added up beyond what a number holds.
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto tokens = [&](std::string_view key) {
    return std::clamp<int64_t>(usage->integer(key).value_or(0), 0, kMost);
  };
  return {.prompt_tokens = tokens("prompt_tokens"),
          .completion_tokens = tokens("completion_tokens")};
}

}  // namespace pelton::chain
