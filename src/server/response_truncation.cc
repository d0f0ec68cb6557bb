#include "server/response_truncation.h"

#include <algorithm>
#include <string>
#include <unordered_set>

namespace pelton::server {
namespace {

using api::ResponseItem;
using Items = std::vector<ResponseItem>;

bool instructs(const ResponseItem& item) {
  return item.kind == ResponseItem::Kind::kMessage &&
         (item.role == api::ChatRole::kSystem || item.role == api::ChatRole::kDeveloper);
}

// Takes those from the front that may go, `count` in all at most; whether there were any.
bool drop_front(Items& items, size_t& count) {
  const size_t before = items.size();
  std::erase_if(items, [&](const ResponseItem& item) {
    if (count == 0 || instructs(item)) return false;
    --count;
    return true;
  });
  return items.size() < before;
}

template <typename All, typename Visit>
void each_list(All& all, Visit visit) {
  for (auto& past : all.history) {
    visit(past.input);
    visit(past.output);
  }
  visit(all.items);
}

}  // namespace

size_t droppable_items(const ResponseItems& all) {
  size_t count = 0;
  each_list(all, [&](const Items& items) {
    count += static_cast<size_t>(std::count_if(items.begin(), items.end(),
                                               [](const auto& item) { return !instructs(item); }));
  });
  return count == 0 ? 0 : count - 1;
}

ResponseItems without_oldest(const ResponseItems& all, size_t count) {
  ResponseItems left = all;
  size_t to_go = count;
  for (PastResponse& past : left.history) {
    drop_front(past.input, to_go);
    // What was sampled stands for all of its items or none.
    if (drop_front(past.output, to_go)) past.turn.clear();
  }
  drop_front(left.items, to_go);

  std::unordered_set<std::string> calls;
  each_list(left, [&](const Items& items) {
    for (const ResponseItem& item : items) {
      if (item.kind == ResponseItem::Kind::kCall) calls.insert(item.call_id);
    }
  });
  each_list(left, [&](Items& items) {
    std::erase_if(items, [&](const ResponseItem& item) {
      return item.kind == ResponseItem::Kind::kResult && !calls.contains(item.call_id);
    });
  });
  std::erase_if(left.history,
                [](const PastResponse& past) { return past.input.empty() && past.output.empty(); });
  return left;
}

}  // namespace pelton::server
