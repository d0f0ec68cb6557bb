// Responses kept in memory, gone with the process. Any thread; one lock.
#pragma once

#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "store/response_store.h"

namespace pelton::store {

class MemoryResponseStore final : public ResponseStore {
 public:
  // `clock` outlives it.
  MemoryResponseStore(const StoreBounds& bounds, const base::Clock& clock);

  Result<void> put(const StoredResponse& response) override;
  Result<StoredResponse> find(const Key& key) override;
  Result<std::vector<StoredResponse>> history(const Key& key) override;
  Result<void> remove(const Key& key) override;
  Result<int64_t> erase(const std::string& owner) override;
  Counts counts() const override;

 private:
  struct Entry {
    StoredResponse response;
    int64_t touched_ms = 0;
    int64_t children = 0;
    bool visible = true;
    std::list<std::string>::iterator leaf;  // meaningful without children
  };

  Entry* visible_entry(const Key& key);
  void touch(Entry& entry);
  Result<void> replace(Entry& entry, const StoredResponse& response);
  void drop_leaf(const std::string& id);
  void shrink();

  const StoreBounds bounds_;
  const base::Clock& clock_;

  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::list<std::string> leaves_;  // those that nothing hangs on; the last asked for stands first
  int64_t bytes_ = 0;
};

}  // namespace pelton::store
