// A chain as a model of a chat, "chain:NAME": where its input and output are a chat's, it answers
// /v1/chat/completions. Pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "chain/chain.h"
#include "chain_http/run_writer.h"

namespace pelton::chain_http {

inline constexpr std::string_view kChainModelPrefix = "chain:";

// The input that a chat goes into: the only one that must be given, a string (the last message of
// the user) or "messages", a list of objects; and its output has a string "text". None: the chain
// is no chat.
std::optional<std::string> chat_input_field(const chain::Chain& chain);

struct ChatChainRequest {
  Json input;
  bool stream = false;
  bool include_usage = false;
  std::optional<double> timeout_s;
  std::vector<std::string> ignored;  // fields without effect, for warnings
};
// The body of a chat request. Errors: kInvalidArgument.
Result<ChatChainRequest> parse_chat_chain_request(std::string_view body, const chain::Chain& chain);

struct ChatHead {
  std::string id;
  int64_t created_s = 0;
  bool include_usage = false;  // of a stream
};
std::unique_ptr<RunWriter> make_chat_writer(const chain::Chain& chain, const ChatHead& head);

}  // namespace pelton::chain_http
