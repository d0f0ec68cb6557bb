#include "server/reply.h"

#include <utility>

namespace pelton::server {

net::HttpResponse text_reply(std::string_view content_type, std::string body) {
  net::HttpResponse response;
  response.headers.add("Content-Type", std::string(content_type));
  response.body = std::move(body);
  return response;
}

net::HttpResponse json_reply(std::string body) {
  return text_reply("application/json", std::move(body));
}

net::HttpResponse error_reply(const api::ApiError& error) {
  net::HttpResponse response = json_reply(api::error_body(error));
  response.status = error.status;
  if (error.retry_after_s > 0) {
    response.headers.add("Retry-After", std::to_string(error.retry_after_s));
  }
  return response;
}

}  // namespace pelton::server
