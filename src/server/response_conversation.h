// What a request to /v1/responses means: its items, behind those of the responses before it, as a
// conversation and as the tokens of a prompt. Pure but for the sampled turns it looks up.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/response_object.h"
#include "api/response_request.h"
#include "base/result.h"
#include "server/chat_prompt.h"
#include "server/served_model.h"
#include "server/turn_cache.h"

namespace pelton::server {

// A response that was given before, the oldest first in a history.
struct PastResponse {
  std::vector<api::ResponseItem> input;
  std::vector<api::ResponseItem> output;
  std::vector<TokenId> turn;  // the output as it was sampled; empty: it is rendered anew
  std::string model = {};     // whose tokens those are, as the answer called it; empty: not known
};

// The words of a turn: one reasoning, one content and one call, as TurnCache knows it. Reasoning
// items are joined by a line break, messages by a blank line.
struct TurnWords {
  std::string content;
  std::string reasoning;
  std::optional<std::pair<std::string, std::string>> call;

  TurnCache::Words view() const;
};
TurnWords words_of(std::span<const api::OutputItem> items);

struct ResponseSource {
  const std::vector<PastResponse>& history;
  const std::string& current_date;
  std::string_view salt;  // of the sampled turns
};

// Errors: kInvalidArgument for a result whose call is nowhere before it.
Result<ChatPrompt> response_prompt(const api::ResponseRequest& request,
                                   const ResponseSource& source, const ServedModel& model,
                                   TurnCache& turns);

}  // namespace pelton::server
