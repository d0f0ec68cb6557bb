// The beginning of prompts that the operator wants kept computed for good (`serve --pin-prefix`),
// as tokens. Pure; called once at start.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/served_model.h"

namespace pelton::server {

struct PrefixFile {
  std::string name;  // for messages; ".json" at its end says what it holds
  std::string_view text;
};

// A JSON file holds the body of a chat request, or its messages alone: what the prompts of all
// chats begin with whose first messages (and tools, and reasoning effort) are these. Any other file
// is text, as in a prompt of /v1/completions. Errors: kBadConfig, with the file's name.
Result<std::vector<TokenId>> pinned_prefix(const PrefixFile& file, const ServedModel& model,
                                           const std::string& current_date);

}  // namespace pelton::server
