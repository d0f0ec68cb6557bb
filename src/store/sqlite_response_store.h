// Responses kept in one SQLite file, which this process has for itself. Any thread; one lock.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "store/response_store.h"

namespace pelton::store {

class SqliteResponseStore final : public ResponseStore {
 public:
  // Makes the file if there is none. `clock` outlives the store. Errors: kBadConfig if it is
  // another kind of file, damaged, or another process has it; kIo.
  static Result<std::unique_ptr<ResponseStore>> open(const std::string& path,
                                                     const StoreBounds& bounds,
                                                     const base::Clock& clock);
  ~SqliteResponseStore() override;

  Result<void> put(const StoredResponse& response) override;
  Result<void> put_unfinished(const StoredResponse& as_it_would_end) override;
  Result<StoredResponse> find(const Key& key) override;
  Result<std::vector<StoredResponse>> history(const Key& key) override;
  Result<void> remove(const Key& key) override;
  Counts counts() const override;

 private:
  int64_t now_ms() const;
  struct Database;

  SqliteResponseStore(std::unique_ptr<Database> database, const StoreBounds& bounds,
                      const base::Clock& clock);
  Result<void> prepare();
  Result<void> check_visible(const Key& key);
  Result<StoredResponse> read(std::string_view id);
  Result<void> drop_leaf(std::string id);
  Result<void> shrink();
  Result<void> put_unlocked(const StoredResponse& response);
  Result<void> forget_unfinished(std::string_view id);
  Result<void> keep_unfinished();
  // Runs `work` as one transaction: all of it or nothing.
  template <typename Work>
  Result<void> transact(const Work& work);

  const StoreBounds bounds_;
  const base::Clock& clock_;
  const int64_t unix_minus_clock_ms_;
  mutable std::mutex mutex_;
  std::unique_ptr<Database> database_;
  Counts counts_;
};

}  // namespace pelton::store
