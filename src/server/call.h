// One HTTP request being answered: the way back and the headers that every answer to it carries.
// Passed along on the exchange's net thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/error.h"
#include "base/result.h"
#include "engine/token_stream.h"
#include "net/http_message.h"
#include "net/http_server.h"
#include "server/request_book.h"

namespace pelton::server {

// Whose clients an error is told to.
enum class Dialect { kOpenAi, kAnthropic };

struct Call {
  net::HttpRequest request;
  std::shared_ptr<net::Exchange> exchange;
  net::HttpHeaders headers;  // x-request-id, CORS, warnings
  std::string tenant;        // by its key; empty: all who have no name of their own
  int64_t arrived_ns = 0;
  Dialect dialect = Dialect::kOpenAi;
  std::unique_ptr<RequestEntry> entry;  // null in tests of parts

  void send(net::HttpResponse response) const;
  void send(const api::ApiError& error) const;
  // When the client no longer wants an answer, on the server's clock: as many milliseconds after
  // its arrival as the header x-request-timeout-ms says; none if it does not.
  Result<std::optional<int64_t>> deadline_ns() const;
  // What was ignored in the request, each in a header of the answer.
  void add_warnings(const std::vector<std::string>& warnings);
  // One of its answers is over.
  void note_end(const engine::StreamEnd& end) const;
  // For whoever streams: when all is said.
  void note_answered(int status) const;
};

}  // namespace pelton::server
