#include "net/http_message.h"

#include <algorithm>

#include "base/json_writer.h"

namespace pelton::net {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

bool equals_without_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view HttpHeaders::get(std::string_view name) const {
  for (const auto& [key, value] : fields_) {
    if (equals_without_case(key, name)) return value;
  }
  return {};
}

bool HttpHeaders::has(std::string_view name) const {
  return std::any_of(fields_.begin(), fields_.end(),
                     [&](const auto& field) { return equals_without_case(field.first, name); });
}

size_t HttpHeaders::count(std::string_view name) const {
  return static_cast<size_t>(std::count_if(fields_.begin(), fields_.end(), [&](const auto& field) {
    return equals_without_case(field.first, name);
  }));
}

bool header_list_contains(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view item = list.substr(0, comma);
    while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) item.remove_suffix(1);
    if (equals_without_case(item, token)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    // clang-format off
    case 100: return "Continue";
    case 101: return "Switching Protocols";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 426: return "Upgrade Required";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    default: return "Status";
      // clang-format on
  }
}

HttpResponse error_response(const HttpReject& reject) {
  std::string_view type = "invalid_request_error";
  if (reject.status == 503) {
    type = "service_unavailable";
  } else if (reject.status >= 500 && reject.status != 501 && reject.status != 505) {
    type = "server_error";
  }
  HttpResponse response;
  response.status = reject.status;
  response.headers.add("Content-Type", "application/json");
  base::JsonWriter json(response.body);
  json.begin_object().key("error").begin_object();
  json.key("message").string(reject.message).key("type").string(type);
  json.key("param").null().key("code").string(reject.code);
  json.end_object().end_object();
  return response;
}

}  // namespace pelton::net
