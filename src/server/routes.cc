#include "server/routes.h"

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/embedding_request.h"
#include "api/generate_request.h"
#include "api/lora_request.h"
#include "api/messages_request.h"
#include "api/response_request.h"
#include "api/tei_request.h"
#include "api/tokenize_request.h"
#include "server/endpoints.h"

namespace pelton::server {
namespace {

using Access = Endpoint::Access;
using api::FieldTable;

bool fits(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

// A parser reads its fields even of an empty object, and complains of what is missing.
template <auto parse>
void note_fields(FieldTable& table) {
  static_cast<void>(parse("{}", {.vocab_size = 1, .fields_read = &table}));
}

template <api::MessagesUse use>
void note_message_fields(FieldTable& table) {
  const api::RequestLimits limits{.vocab_size = 1, .fields_read = &table};
  static_cast<void>(api::parse_messages_request("{}", limits, use));
}

void note_response_fields(FieldTable& table) {
  const Json empty{Json::Object{}};
  static_cast<void>(api::parse_response_request(empty, {.vocab_size = 1, .fields_read = &table}));
}

// Of what control_chat() reads.
void note_control_fields(FieldTable& table) {
  for (const char* name : {"id", "action"}) {
    table.note({.name = name, .kind = FieldTable::Kind::kText, .size_max = 256});
  }
}
// A text, or a chat.
void note_tokenize_fields(FieldTable& table) {
  note_fields<api::parse_tokenize_request>(table);
  note_fields<api::parse_chat_request>(table);
}

// What any of the endpoints reads that invocations() may choose.
void note_invocation_fields(FieldTable& table) {
  note_fields<api::parse_chat_request>(table);
  note_fields<api::parse_completion_request>(table);
  note_response_fields(table);
  note_fields<api::parse_embedding_request>(table);
  note_fields<api::parse_rerank_request>(table);
  note_fields<api::parse_score_request>(table);
}

// Cohere's and TEI's.
void note_any_rerank_fields(FieldTable& table) {
  note_fields<api::parse_rerank_request>(table);
  note_fields<api::parse_tei_rerank_request>(table);
}

constexpr auto kChatFields = &note_fields<api::parse_chat_request>;
constexpr auto kCompletionFields = &note_fields<api::parse_completion_request>;
constexpr auto kRerankFields = &note_fields<api::parse_rerank_request>;
constexpr auto kScoreFields = &note_fields<api::parse_score_request>;

// In the order of docs/routes.md's tables, as far as one path does not hide another.
constexpr Endpoint kEndpoints[] = {
    {.method = "POST",
     .path = "/v1/chat/completions",
     .function = chat_completions,
     .summary = "Answers a chat",
     .needs = Capability::kChat,
     .request = "ChatRequest",
     .note_fields = kChatFields,
     .response = "ChatCompletion"},
    {.method = "POST",
     .path = "/v1/responses",
     .function = responses,
     .summary = "Makes a response",
     .needs = Capability::kChat,
     .request = "ResponseRequest",
     .note_fields = &note_response_fields,
     .response = "Response"},
    {.method = "GET",
     .path = "/v1/responses",
     .function = response_socket,
     .summary = "The same over a WebSocket",
     .needs = Capability::kChat,
     .response = "none"},
    {.method = "POST",
     .path = "/v1/responses/input_tokens",
     .function = response_input_tokens,
     .summary = "Counts a response's input tokens",
     .needs = Capability::kChat,
     .request = "ResponseRequest",
     .note_fields = &note_response_fields,
     .response = "InputTokens"},
    {.method = "GET",
     .path = "/v1/responses/*",
     .function = get_response,
     .summary = "A stored response, or what it was asked",
     .response = "Response",
     .templates = "/v1/responses/{response_id} /v1/responses/{response_id}/input_items"},
    {.method = "DELETE",
     .path = "/v1/responses/*",
     .function = delete_response,
     .summary = "Deletes a stored response",
     .response = "DeletedResponse",
     .templates = "/v1/responses/{response_id}"},
    {.method = "POST",
     .path = "/v1/responses/*",
     .function = cancel_response,
     .summary = "Ends a response that is being made",
     .response = "Response",
     .templates = "/v1/responses/{response_id}/cancel"},
    {.method = "POST",
     .path = "/v1/chat/completions/input_tokens",
     .function = chat_input_tokens,
     .summary = "Counts the tokens of a chat's prompt",
     .needs = Capability::kChat,
     .request = "ChatRequest",
     .note_fields = kChatFields,
     .response = "InputTokens"},
    {.method = "POST",
     .path = "/v1/chat/completions/control",
     .function = control_chat,
     .summary = "Ends the reasoning of a running answer",
     .request = "ControlRequest",
     .note_fields = &note_control_fields,
     .response = "ControlAccepted"},
    {.method = "POST",
     .path = "/v1/completions",
     .function = completions,
     .summary = "Continues texts or token ids",
     .needs = Capability::kGenerate,
     .request = "CompletionRequest",
     .note_fields = kCompletionFields,
     .response = "Completion"},
    {.method = "POST",
     .path = "/v1/messages",
     .function = messages,
     .summary = "Answers a conversation in Anthropic's protocol",
     .needs = Capability::kChat,
     .request = "MessagesRequest",
     .note_fields = &note_message_fields<api::MessagesUse::kGenerate>,
     .response = "Message",
     .dialect = Dialect::kAnthropic},
    {.method = "POST",
     .path = "/v1/messages/count_tokens",
     .function = count_message_tokens,
     .summary = "Counts the tokens of the same",
     .needs = Capability::kChat,
     .request = "CountTokensRequest",
     .note_fields = &note_message_fields<api::MessagesUse::kCount>,
     .response = "InputTokens",
     .dialect = Dialect::kAnthropic},
    {.method = "POST",
     .path = "/v1/chat/completions/render",
     .function = render_chat,
     .summary = "The prompt of a chat: text and ids",
     .needs = Capability::kChat,
     .request = "ChatRequest",
     .note_fields = kChatFields,
     .response = "RenderedPrompt"},
    {.method = "POST",
     .path = "/v1/completions/render",
     .function = render_completion,
     .summary = "The prompts of a completion: text and ids",
     .needs = Capability::kGenerate,
     .request = "CompletionRequest",
     .note_fields = kCompletionFields,
     .response = "RenderedPrompts"},
    {.method = "POST",
     .path = "/inference/v1/generate",
     .function = generate,
     .summary = "Tokens in, tokens out",
     .needs = Capability::kGenerate,
     .request = "GenerateRequest",
     .note_fields = &note_fields<api::parse_generate_request>,
     .response = "GeneratedTokens"},
    {.method = "POST",
     .path = "/v1/embeddings",
     .function = embeddings,
     .summary = "A vector for each input",
     .needs = Capability::kEmbed,
     .request = "EmbeddingRequest",
     .note_fields = &note_fields<api::parse_embedding_request>,
     .response = "Embeddings"},
    {.method = "POST",
     .path = "/v2/embed",
     .function = embed,
     .summary = "The same in Cohere's protocol",
     .needs = Capability::kEmbed,
     .request = "EmbedRequest",
     .note_fields = &note_fields<api::parse_embed_request>,
     .response = "CohereEmbeddings"},
    {.method = "POST",
     .path = "/v1/rerank",
     .function = rerank,
     .summary = "Orders documents by their likeness to a query",
     .needs = Capability::kEmbed,
     .request = "RerankRequest",
     .note_fields = kRerankFields,
     .response = "Ranking"},
    {.method = "POST",
     .path = "/v2/rerank",
     .function = rerank,
     .summary = "Orders documents by their likeness to a query",
     .needs = Capability::kEmbed,
     .request = "RerankRequest",
     .note_fields = kRerankFields,
     .response = "Ranking"},
    {.method = "POST",
     .path = "/rerank",
     .function = rerank_any,
     .summary = "Orders documents by their likeness to a query",
     .needs = Capability::kEmbed,
     .request = "RerankRequest",
     .note_fields = &note_any_rerank_fields,
     .response = "Ranking"},
    {.method = "POST",
     .path = "/v1/reranking",
     .function = rerank,
     .summary = "Orders documents by their likeness to a query",
     .needs = Capability::kEmbed,
     .request = "RerankRequest",
     .note_fields = kRerankFields,
     .response = "Ranking"},
    {.method = "POST",
     .path = "/reranking",
     .function = rerank,
     .summary = "Orders documents by their likeness to a query",
     .needs = Capability::kEmbed,
     .request = "RerankRequest",
     .note_fields = kRerankFields,
     .response = "Ranking"},
    {.method = "POST",
     .path = "/v1/score",
     .function = score,
     .summary = "How alike two texts are",
     .needs = Capability::kEmbed,
     .request = "ScoreRequest",
     .note_fields = kScoreFields,
     .response = "Scores"},
    {.method = "POST",
     .path = "/score",
     .function = score,
     .summary = "How alike two texts are",
     .needs = Capability::kEmbed,
     .request = "ScoreRequest",
     .note_fields = kScoreFields,
     .response = "Scores"},
    {.method = "POST",
     .path = "/embed",
     .function = tei_embed,
     .summary = "A vector for each input, in TEI's protocol",
     .needs = Capability::kEmbed,
     .request = "TeiEmbedRequest",
     .note_fields = &note_fields<api::parse_tei_embed_request>,
     .response = "Vectors"},
    {.method = "POST",
     .path = "/embed_all",
     .function = tei_embed_all,
     .summary = "A vector for each token of each input",
     .needs = Capability::kEmbed,
     .request = "TeiEmbedRequest",
     .note_fields = &note_fields<api::parse_tei_embed_request>,
     .response = "Vectors"},
    {.method = "POST",
     .path = "/similarity",
     .function = tei_similarity,
     .summary = "How alike sentences are to one",
     .needs = Capability::kEmbed,
     .request = "SimilarityRequest",
     .note_fields = &note_fields<api::parse_tei_similarity_request>,
     .response = "Similarities"},
    {.method = "POST",
     .path = "/predict",
     .function = predict,
     .summary = "A text's labels, in TEI's protocol",
     .needs = Capability::kEmbed,
     .request = "PredictRequest",
     .note_fields = &note_fields<api::parse_predict_request>,
     .response = "Predictions"},
    {.method = "POST",
     .path = "/classify",
     .function = classify,
     .summary = "Texts' labels, in vLLM's protocol",
     .needs = Capability::kEmbed,
     .request = "ClassifyRequest",
     .note_fields = &note_fields<api::parse_classify_request>,
     .response = "Classification"},
    {.method = "GET",
     .path = "/info",
     .function = tei_info,
     .summary = "What TEI's clients ask of a model",
     .response = "Info"},
    {.method = "POST",
     .path = "/tokenize",
     .function = tokenize,
     .summary = "The tokens of a text, or of a chat as it would be rendered",
     .needs = Capability::kGenerate,
     .request = "TokenizeRequest",
     .note_fields = &note_tokenize_fields,
     .response = "Tokenized"},
    {.method = "POST",
     .path = "/detokenize",
     .function = detokenize,
     .summary = "The text of tokens",
     .needs = Capability::kGenerate,
     .request = "DetokenizeRequest",
     .note_fields = &note_fields<api::parse_detokenize_request>,
     .response = "Detokenized"},
    {.method = "GET",
     .path = "/v1/models",
     .function = list_models,
     .summary = "The models that are served",
     .response = "ModelList"},
    {.method = "GET",
     .path = "/v1/models/*",
     .function = get_model,
     .summary = "One of them",
     .response = "Model",
     .templates = "/v1/models/{model}"},
    {.method = "GET",
     .path = "/v1/model_cards/*",
     .function = get_model_card,
     .summary = "What the makers of one of them say: licence and model card",
     .response = "ModelCard",
     .templates = "/v1/model_cards/{model}"},
    {.method = "POST",
     .path = "/invocations",
     .function = invocations,
     .summary = "SageMaker's one route: the body's fields say what is asked",
     .request = "InvocationRequest",
     .note_fields = &note_invocation_fields},
    {.method = "GET",
     .path = "/server_info",
     .function = server_info,
     .summary = "What is in effect: model, kernels, memory, limits"},
    {.method = "GET",
     .path = "/load",
     .function = load,
     .summary = "Requests in progress",
     .response = "Load"},
    {.method = "POST",
     .path = "/sleep",
     .function = sleep,
     .summary = "Gives models' memory back until they are asked for"},
    {.method = "POST",
     .path = "/wake_up",
     .function = wake_up,
     .summary = "Loads models that sleep"},
    {.method = "GET",
     .path = "/is_sleeping",
     .function = is_sleeping,
     .summary = "Whether no model is in memory",
     .response = "Sleeping"},
    {.method = "POST",
     .path = "/reset_prefix_cache",
     .function = reset_prefix_cache,
     .summary = "Forgets what was computed so far, in every tier",
     .access = Access::kAdminKey},
    {.method = "POST",
     .path = "/v1/load_lora_adapter",
     .function = load_lora_adapter,
     .summary = "Loads a LoRA adapter",
     .request = "LoadLoraRequest",
     .note_fields = &note_fields<api::parse_load_lora_request>,
     .response = "text",
     .access = Access::kAdminKey},
    {.method = "POST",
     .path = "/v1/unload_lora_adapter",
     .function = unload_lora_adapter,
     .summary = "Takes a LoRA adapter's name away",
     .request = "UnloadLoraRequest",
     .note_fields = &note_fields<api::parse_unload_lora_request>,
     .response = "text",
     .access = Access::kAdminKey},
    {.method = "GET",
     .path = "/version",
     .function = version,
     .summary = "Pelton's version",
     .response = "Version"},
    {.method = "GET", .path = "/openapi.json", .function = openapi, .summary = "This document"},
    {.method = "GET",
     .path = "/health",
     .function = health,
     .summary = "Whether it is worth keeping",
     .response = "Health",
     .access = Access::kOpen},
    {.method = "GET",
     .path = "/v1/health",
     .function = health,
     .summary = "The same",
     .response = "Health",
     .access = Access::kOpen},
    {.method = "GET",
     .path = "/health/live",
     .function = live,
     .summary = "The same; also while it is loading",
     .response = "Health",
     .access = Access::kOpen},
    {.method = "GET",
     .path = "/health/ready",
     .function = ready,
     .summary = "Whether it takes requests",
     .response = "Health",
     .access = Access::kOpen},
    {.method = "GET",
     .path = "/ready",
     .function = ready,
     .summary = "The same",
     .response = "Health",
     .access = Access::kOpen},
    {.method = "GET",
     .path = "/ping",
     .function = ping,
     .summary = "The same, by SageMaker's name",
     .response = "none",
     .access = Access::kOpen},
    {.method = "POST",
     .path = "/ping",
     .function = ping,
     .summary = "The same",
     .response = "none",
     .access = Access::kOpen},
    {.method = "GET",
     .path = "/metrics",
     .function = metrics,
     .summary = "Prometheus metrics",
     .response = "text"},
    {.method = "GET",
     .path = "/console",
     .function = console_page,
     .summary = "The web console",
     .response = "html",
     .access = Access::kOpen},
    {.method = "GET",
     .path = "/console/",
     .function = console_page,
     .summary = "Leads to the same",
     .response = "none",
     .access = Access::kOpen},
    {.method = "GET",
     .path = "/console/*",
     .function = console_page,
     .summary = "The files of its page",
     .response = "html",
     .access = Access::kOpen,
     .templates = "/console/{file}"},
    {.method = "GET",
     .path = "/",
     .function = index,
     .summary = "A list of these routes",
     .response = "text",
     .access = Access::kOpen},
};

}  // namespace

std::span<const Endpoint> endpoints() {
  return kEndpoints;
}

std::string endpoint_listing() {
  std::string text;
  for (const Endpoint& endpoint : endpoints()) {
    text.append(endpoint.method).append(endpoint.method.size() < 4 ? "  " : " ");
    text.append(endpoint.path).append("\n");
  }
  return text;
}

EndpointMatch find_endpoint(std::string_view method, std::string_view path) {
  // A HEAD is a GET whose body stays here; net/ sees to that.
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  EndpointMatch match;
  for (const Endpoint& endpoint : endpoints()) {
    if (!fits(endpoint.path, path)) continue;
    if (endpoint.method == wanted) return {.endpoint = &endpoint, .allowed_methods = {}};
    if (!match.allowed_methods.empty()) match.allowed_methods += ", ";
    match.allowed_methods += endpoint.method == "GET" ? "GET, HEAD" : endpoint.method;
  }
  return match;
}

}  // namespace pelton::server
