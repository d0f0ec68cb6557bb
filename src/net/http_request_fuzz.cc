// Any bytes, cut at will: never a crash, never more held than the limits allow, and the same
// outcome as when they come whole.
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "net/http_reader.h"

namespace {

using pelton::net::HttpLimits;
using pelton::net::HttpRequest;
using pelton::net::RequestReader;
using pelton::net::ResponseReader;

struct Outcome {
  std::vector<std::string> requests;
  int status = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome read_requests(std::string_view text, size_t step) {
  HttpLimits limits;
  limits.body_bytes_max = 4096;
  RequestReader reader(limits);
  Outcome outcome;
  for (size_t at = 0; at < text.size(); at += step) {
    reader.append(text.substr(at, step));
    while (reader.advance() == RequestReader::State::kDone) {
      const HttpRequest request = reader.take();
      CHECK(request.body.size() <= limits.body_bytes_max);
      CHECK(request.path.starts_with('/') || request.path == "*");
      std::string summary = request.method + " " + request.path + "?" + request.query;
      for (const auto& [name, value] : request.headers.fields())
        summary += name + ":" + value + ";";
      outcome.requests.push_back(summary + request.body);
    }
  }
  outcome.status = reader.reject().status;
  if (reader.state() != RequestReader::State::kBad) outcome.status = 0;
  return outcome;
}

void read_response(std::string_view text, size_t step) {
  ResponseReader reader({});
  for (size_t at = 0; at < text.size(); at += step) {
    reader.append(text.substr(at, step));
    const ResponseReader::State before = reader.state();
    reader.advance([](std::string_view) {});
    if (before != reader.state()) reader.advance([](std::string_view) {});
  }
  reader.finish_at_eof();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  // Now and then byte by byte; mostly in a few pieces, which costs a tenth.
  const size_t step = data[0] % 8 == 0 ? 1 + data[0] / 8 % 16 : 1 + size_t{data[0]};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  CHECK(read_requests(text, text.size() + 1) == read_requests(text, step));
  read_response(text, step);
  return 0;
}
