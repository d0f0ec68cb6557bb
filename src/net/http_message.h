// HTTP messages as values. Header names compare without case.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pelton::net {

class HttpHeaders {
 public:
  void add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  // The first field of that name; empty if there is none.
  std::string_view get(std::string_view name) const;
  bool has(std::string_view name) const;
  size_t count(std::string_view name) const;
  const std::vector<std::pair<std::string, std::string>>& fields() const { return fields_; }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

struct HttpRequest {
  std::string method;  // "POST"
  std::string path;    // percent-decoded, without the query
  std::string query;   // raw, without "?"
  HttpHeaders headers;
  std::string body;
  std::string remote;  // "127.0.0.1:51234"
  bool tls = false;    // came over TLS, to this very server
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;
  std::string body;
};

// Why this room itself turns a request away, before any handler has seen it.
struct HttpReject {
  int status = 400;
  std::string code;  // "header_too_large": for programs
  std::string message;
};

// That refusal in OpenAI's shape: {"error":{"message","type","param","code"}}.
HttpResponse error_response(const HttpReject& reject);

// "Not Found"; "Status" for a number we do not use.
std::string_view reason_phrase(int status);

// ASCII only, as header names and tokens are.
bool equals_without_case(std::string_view a, std::string_view b);

// Whether "keep-alive, Upgrade" has the token "upgrade".
bool header_list_contains(std::string_view list, std::string_view token);

}  // namespace pelton::net
