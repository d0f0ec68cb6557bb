// Requests that two servers of another kind answer together: one computes the prompt, the other one
// fetches keys and values from it and says the answer. What each is sent beside the client's
// fields, in its kind's own words: vLLM's kv_transfer_params, that the first one's answer gives the
// second; SGLang's bootstrap_host, _port and _room, by which both meet. Nothing of that is ever a
// client's. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "gateway/foreign_kind.h"

namespace pelton::gateway {

// Of a client's body, the first field that says where keys and values travel; empty: it has none,
// or is no JSON object.
std::string transfer_field_of(std::string_view body);

// One prompt and one answer of more than a token, of a kind and path that can: else whole.
bool can_pair(WorkerKind kind, std::string_view path, std::string_view body);

// vLLM's first one: one token, unstreamed, and what it computed is kept for the other one.
std::string vllm_prefill_body(std::string_view body);
// What its answer gives the other one. Errors: kInvalidArgument: a field is missing or no such
// thing (KV-11).
struct VllmHandOff {
  Json params;
  std::optional<double> expires_s;  // since 1970; none: it does not say
};
Result<VllmHandOff> read_vllm_hand_off(std::string_view answer);
std::string vllm_decode_body(std::string_view body, const VllmHandOff& hand_off);

// Both of SGLang's are sent this, at once.
struct SglangMeeting {
  std::string host;
  int port = 0;
  int64_t room = 0;
};
std::string sglang_body(std::string_view body, const SglangMeeting& meeting);

}  // namespace pelton::gateway
