// An answer without messages (a completion of text): all of it follows a grammar. A pure function;
// any thread.
#pragma once

#include <memory>
#include <vector>

#include "base/token_id.h"
#include "chat/format.h"

namespace pelton::chat {

// Behind the text one of `ends` comes.
std::shared_ptr<const TurnGrammar> text_network(
    std::shared_ptr<const grammar::TokenGrammar> grammar, const std::vector<TokenId>& ends);

}  // namespace pelton::chat
