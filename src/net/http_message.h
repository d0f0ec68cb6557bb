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
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;
  std::string body;
};

}  // namespace pelton::net
