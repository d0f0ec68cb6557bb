#include "store/memory_response_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pelton::store {

MemoryResponseStore::MemoryResponseStore(const StoreBounds& bounds, const base::Clock& clock)
    : bounds_(bounds), clock_(clock) {}

Result<void> MemoryResponseStore::put(const StoredResponse& response) {
  const int64_t bytes = stored_bytes(response);
  if (bytes > bounds_.bytes_max / 4) return response_too_large(response, bounds_);
  std::lock_guard lock(mutex_);
  if (const auto known = entries_.find(response.id); known != entries_.end()) {
    return replace(known->second, response);
  }
  if (!response.previous.empty()) {
    const auto parent = entries_.find(response.previous);
    if (parent == entries_.end() || parent->second.response.owner != response.owner) {
      return no_such_response(response.previous);
    }
    if (parent->second.children++ == 0) leaves_.erase(parent->second.leaf);
  }
  const auto added = entries_.try_emplace(response.id).first;
  leaves_.push_front(response.id);
  added->second.response = response;
  added->second.touched_ms = clock_.now_ns() / 1'000'000;
  added->second.leaf = leaves_.begin();
  bytes_ += bytes;
  shrink();
  return {};
}

// An answer that a gateway had made once more.
Result<void> MemoryResponseStore::replace(Entry& entry, const StoredResponse& response) {
  const StoredResponse& old = entry.response;
  if (old.owner != response.owner || old.previous != response.previous) {
    return no_such_response(response.id);
  }
  bytes_ += stored_bytes(response) - stored_bytes(old);
  entry.response = response;
  touch(entry);
  shrink();
  return {};
}

MemoryResponseStore::Entry* MemoryResponseStore::visible_entry(const Key& key) {
  const auto found = entries_.find(std::string(key.id));
  if (found == entries_.end()) return nullptr;
  Entry& entry = found->second;
  const bool old = clock_.now_ns() / 1'000'000 - entry.touched_ms > bounds_.age_max_s * 1000;
  // What others hang on is as young as they are.
  const bool expired = old && entry.children == 0;
  return entry.visible && !expired && entry.response.owner == key.owner ? &entry : nullptr;
}

void MemoryResponseStore::touch(Entry& entry) {
  entry.touched_ms = clock_.now_ns() / 1'000'000;
  if (entry.children == 0) leaves_.splice(leaves_.begin(), leaves_, entry.leaf);
}

Result<StoredResponse> MemoryResponseStore::find(const Key& key) {
  std::lock_guard lock(mutex_);
  Entry* entry = visible_entry(key);
  if (entry == nullptr) return no_such_response(key.id);
  touch(*entry);
  return entry->response;
}

Result<std::vector<StoredResponse>> MemoryResponseStore::history(const Key& key) {
  std::lock_guard lock(mutex_);
  Entry* entry = visible_entry(key);
  if (entry == nullptr) return no_such_response(key.id);
  touch(*entry);
  std::vector<StoredResponse> history;
  int64_t bytes = 0;
  for (;;) {
    bytes += stored_bytes(entry->response);
    if (history.size() == kHistoryMax || bytes > kHistoryBytesMax) return history_too_long(key.id);
    history.push_back(entry->response);
    if (entry->response.previous.empty()) break;
    const auto parent = entries_.find(entry->response.previous);
    CHECK(parent != entries_.end(), "what others hang on stays");
    entry = &parent->second;
  }
  std::reverse(history.begin(), history.end());
  return history;
}

Result<void> MemoryResponseStore::remove(const Key& key) {
  std::lock_guard lock(mutex_);
  Entry* entry = visible_entry(key);
  if (entry == nullptr) return no_such_response(key.id);
  entry->visible = false;
  if (entry->children == 0) drop_leaf(std::string(key.id));
  return {};
}

// And those before it that were deleted and kept for its sake.
void MemoryResponseStore::drop_leaf(const std::string& first) {
  std::string id = first;
  while (!id.empty()) {
    const auto found = entries_.find(id);
    CHECK(found != entries_.end() && found->second.children == 0);
    leaves_.erase(found->second.leaf);
    bytes_ -= stored_bytes(found->second.response);
    const std::string previous = found->second.response.previous;
    entries_.erase(found);
    if (previous.empty()) return;
    Entry& parent = entries_.at(previous);
    if (--parent.children > 0) return;
    leaves_.push_back(previous);  // nothing was asked for longer ago
    parent.leaf = std::prev(leaves_.end());
    id = parent.visible ? "" : previous;
  }
}

// Nothing of another owner's hangs on what goes.
Result<int64_t> MemoryResponseStore::erase(const std::string& owner) {
  std::lock_guard lock(mutex_);
  int64_t erased = 0;
  for (auto one = entries_.begin(); one != entries_.end();) {
    if (one->second.response.owner != owner) {
      ++one;
      continue;
    }
    if (one->second.children == 0) leaves_.erase(one->second.leaf);
    bytes_ -= stored_bytes(one->second.response);
    one = entries_.erase(one);
    ++erased;
  }
  return erased;
}

void MemoryResponseStore::shrink() {
  const int64_t oldest_ms = clock_.now_ns() / 1'000'000 - bounds_.age_max_s * 1000;
  const auto too_much = [&] {
    if (leaves_.empty()) return false;
    return static_cast<int64_t>(entries_.size()) > bounds_.entries_max ||
           bytes_ > bounds_.bytes_max || entries_.at(leaves_.back()).touched_ms < oldest_ms;
  };
  while (too_much()) drop_leaf(std::string(leaves_.back()));
}

ResponseStore::Counts MemoryResponseStore::counts() const {
  std::lock_guard lock(mutex_);
  return {.entries = static_cast<int64_t>(entries_.size()), .bytes = bytes_};
}

}  // namespace pelton::store
