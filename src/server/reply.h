// Whole HTTP answers with a body: JSON, or an error as OpenAI's clients read it.
#pragma once

#include <string>
#include <string_view>

#include "api/error.h"
#include "net/http_message.h"

namespace pelton::server {

net::HttpResponse json_reply(std::string body);
net::HttpResponse text_reply(std::string_view content_type, std::string body);
// 503: "The model is still being loaded".
api::ApiError not_ready(std::string_view why);
// Why a request is not answered whose adapter was not loaded: 400 where its files are the reason,
// "adapter_refused"; 503 where it may be loaded later.
inline constexpr std::string_view kAdapterUnavailable = "adapter_unavailable";
api::ApiError adapter_not_loaded(std::string_view name, const Error& error);
// 503: what this model computes cannot be believed just now, or no more.
api::ApiError numbers_in_doubt(std::string_view model);
api::ApiError damaged_weights(std::string_view model);
net::HttpResponse error_reply(const api::ApiError& error);
// {"error":"…"}, as Ollama's clients read it.
net::HttpResponse ollama_error_reply(const api::ApiError& error);
// As Anthropic's clients read it.
net::HttpResponse message_error_reply(const api::ApiError& error, std::string_view request_id);

}  // namespace pelton::server
