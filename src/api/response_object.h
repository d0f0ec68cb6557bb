// The response object of /v1/responses and the items of its output, as JSON. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer_extras.h"
#include "api/error.h"
#include "api/logprobs.h"
#include "api/usage.h"
#include "base/json_writer.h"

namespace pelton::api {

struct OutputItem {
  enum class Kind {
    kReasoning,
    kMessage,
    kCall,
    // Of tools that the server runs itself:
    kWebSearch,
    kCode,
  };
  enum class Status { kInProgress, kCompleted, kIncomplete, kFailed };

  Kind kind = Kind::kMessage;
  Status status = Status::kInProgress;
  bool commentary = false;              // of a message: said before the answer
  bool open_phase = false;              // only its end will say whether it is
  std::string id;                       // "rs_…", "msg_…", "fc_…", "ws_…", "ci_…"
  std::string text;                     // of reasoning or a message; a call's arguments, code
  std::string call_id;                  // "call_…"
  std::string name;                     // of the called function: "browser.open"
  std::optional<std::string> logs;      // of kCode: what it printed, if that was asked for
  std::vector<TokenLogprobs> logprobs;  // of a message
  bool has_summary = false;             // of reasoning: its text is its summary, too
  std::string encrypted_content;        // of reasoning that has ended; empty: null

  bool is_builtin_call() const { return kind == Kind::kWebSearch || kind == Kind::kCode; }
  bool has_parts() const { return kind == Kind::kReasoning || kind == Kind::kMessage; }
};

// What all objects of one response share.
struct ResponseHead {
  std::string id;  // "resp_…"
  int64_t created_at = 0;
  std::string model;
  std::string echo;    // response_echo()
  bool stored = true;  // can be asked for by its id later: "store"
};

enum class ResponseStatus { kInProgress, kCompleted, kIncomplete, kFailed, kCancelled };

struct ResponseState {
  ResponseStatus status = ResponseStatus::kInProgress;
  std::span<const OutputItem> output;
  std::optional<Usage> usage;       // once it has ended
  const ApiError* error = nullptr;  // if it failed
  std::string_view incomplete_reason = "max_output_tokens";
  std::optional<int64_t> completed_at;  // if it completed
  const Timings* timings = nullptr;     // if they were asked for, once it has ended
};

std::string response_body(const ResponseHead& head, const ResponseState& state);

void write_output_item(base::JsonWriter& writer, const OutputItem& item);
// The same with nothing in it yet.
void write_begun_item(base::JsonWriter& writer, const OutputItem& item);
// [item,…]
std::string output_items_body(std::span<const OutputItem> items);

// Of reasoning with a summary: {"type":"summary_text",…}.
void write_summary_part(base::JsonWriter& writer, std::string_view text);

// What a message or reasoning item holds: {"type":"output_text",…}, {"type":"reasoning_text",…}.
void write_content_part(base::JsonWriter& writer, const OutputItem& item);
void write_begun_part(base::JsonWriter& writer, const OutputItem& item);

// {"id":…,"object":"response.deleted","deleted":true}
std::string deleted_response_body(std::string_view id);

// {"object":"list","data":[…],"first_id":…,"last_id":…,"has_more":…}; each item has an id.
struct ItemPage {
  std::span<const Json> items;
  bool has_more = false;
};
std::string item_list_body(const ItemPage& page);

}  // namespace pelton::api
