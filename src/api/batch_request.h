// POST /v1/batches, and the lines of a batch's file: each a request to one of this server's own
// endpoints. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "api/generation_fields.h"
#include "base/result.h"

namespace pelton::api {

inline constexpr size_t kBatchMetadataPairsMax = 16;
inline constexpr int64_t kBatchWindowSecondsMax = 7 * 24 * 3600;
// Of a line's request, at the engine: behind all that does not say so itself.
inline constexpr int kBatchPriority = 1000;
inline constexpr size_t kCustomIdBytesMax = 512;

struct BatchRequest {
  std::string input_file;
  std::string endpoint;
  std::string window;  // as it was said: "24h"
  int64_t window_s = 0;
  std::string metadata = "{}";
  int64_t output_age_s = 0;  // 0: the server's own
};

// Errors: kInvalidArgument with the field's path.
Result<BatchRequest> parse_batch_request(std::string_view body, const RequestLimits& limits);

// Whether a batch's requests may be sent there.
bool is_batch_endpoint(std::string_view path);
// "'/v1/chat/completions', ...": all of them.
std::string batch_endpoint_names();

struct BatchLine {
  std::string custom_id;
  std::string url;
  std::string body;  // JSON, of the lowest priority
  // It says how long it may take: if it is refused for that, trying again is no use.
  bool has_timeout = false;
};
struct BatchLineError {
  std::string_view code;  // "invalid_json_line"
  std::string message;
  std::string param;  // empty: null
};
// `endpoint`: where all of its batch's requests go; empty: where each says.
std::variant<BatchLine, BatchLineError> parse_batch_line(std::string_view line,
                                                         std::string_view endpoint);

// What became of a line, as a line of an output file.
struct BatchAnswer {
  std::string_view id;
  std::string_view custom_id;
  int status = 200;
  std::string_view request_id;
  std::string_view body;  // JSON
  // Of fields that were not obeyed: what `x-pelton-warning` says beside other answers.
  std::vector<std::string_view> warnings = {};
};
std::string batch_answer_line(const BatchAnswer& answer);
// One that was not sent at all.
struct BatchOmission {
  std::string_view id;
  std::string_view custom_id;
  std::string_view code;
  std::string_view message;
};
std::string batch_omission_line(const BatchOmission& omission);

// "code" of an error's body; empty: it has none.
std::string error_code_of(std::string_view body);

}  // namespace pelton::api
