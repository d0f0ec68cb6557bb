// "truncation": "auto": what is left of a conversation when its oldest items go, so that it fits.
// Instructions stay, and so does the newest item; a call's result goes with its call. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "server/response_conversation.h"

namespace pelton::server {

struct ResponseItems {
  std::vector<PastResponse> history;
  std::vector<api::ResponseItem> items;  // the request's own
};

// How many could go.
size_t droppable_items(const ResponseItems& all);
ResponseItems without_oldest(const ResponseItems& all, size_t count);

}  // namespace pelton::server
