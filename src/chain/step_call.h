// What a step asks of a model or a host, and what comes back, as values: the bodies of requests and
// the values that answers are read as. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "chain/chain.h"

namespace pelton::chain {

// To be carried out by whoever drives a run. `step` is the chain's and outlives it.
struct StepCall {
  uint64_t id = 0;  // of this attempt; no two of a run are alike
  const Step* step = nullptr;
  int64_t piece = -1;     // of for_each; -1: the step has no pieces
  int attempt = 0;        // from 0
  bool streamed = false;  // its text is wanted as it comes
  std::string path;       // kModel: "/v1/chat/completions"
  std::string body;       // JSON; empty with GET
  std::vector<std::pair<std::string, std::string>> query;  // kHttp with GET
  int64_t deadline_ns = 0;  // the run ends it then by itself; for those who may end it sooner
  int64_t answer_bytes_max = 0;
};

struct CallAnswer {
  enum class Fault { kNone, kUnreachable, kTimeout, kTooLarge };
  Fault fault = Fault::kNone;
  int status = 0;  // kNone
  std::string body;
  std::string detail;  // of a fault, for people
};

// The arguments are the step's rendered 'with'. `any_model`: what "model:*" asks for; empty: names
// none, for a server of one model. Errors: kInvalidArgument.
Result<StepCall> make_call(const Step& step, const Json& arguments, std::string_view any_model);

// The value of a good answer (2xx). Errors: kInvalidArgument, what is wrong with it.
Result<Json> answer_value(const Step& step, const CallAnswer& answer);

// The body of a whole answer, made of a stream's texts.
std::string streamed_body(Endpoint endpoint, std::string_view text, std::string_view finish_reason,
                          const Json& usage);

// What an error's body says, shortened; for messages.
std::string error_text(const CallAnswer& answer);

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  Usage& operator+=(const Usage& other);
};
Usage usage_of(const Json& value);

}  // namespace pelton::chain
