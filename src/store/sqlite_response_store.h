// Responses kept in one SQLite file, which this process has for itself. Any thread; one lock.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "store/response_store.h"

namespace pelton::store {

class SqliteFile;

class SqliteResponseStore final : public ResponseStore {
 public:
  // Makes the file if there is none. `clock` and `log` outlive the store. Errors: kBadConfig if it
  // is another kind of file, damaged, or another process has it; kIo.
  static Result<std::unique_ptr<ResponseStore>> open(const std::string& path,
                                                     const StoreBounds& bounds,
                                                     const base::Clock& clock, base::Log& log);
  ~SqliteResponseStore() override;

  Result<void> put(const StoredResponse& response) override;
  Result<void> put_unfinished(const StoredResponse& as_it_would_end) override;
  Result<StoredResponse> find(const Key& key) override;
  Result<std::vector<StoredResponse>> history(const Key& key) override;
  Result<void> remove(const Key& key) override;
  Counts counts() const override;
  Failures failures() const override;

 private:
  int64_t now_ms() const;

  SqliteResponseStore(std::unique_ptr<SqliteFile> database, const StoreBounds& bounds,
                      const base::Clock& clock, base::Log& log);
  Result<void> prepare();
  Result<void> check_visible(const Key& key);
  void touch(const Key& key);
  Result<StoredResponse> read(std::string_view id);
  Result<std::vector<StoredResponse>> read_history(std::string_view last);
  Result<void> drop_leaf(std::string id);
  Result<void> shrink();
  Result<void> put_unlocked(const StoredResponse& response);
  Result<void> forget_unfinished(std::string_view id);
  Result<void> keep_unfinished();
  // Runs `work` as one transaction: all of it or nothing.
  template <typename Work>
  Result<void> transact(const Work& work);
  // `work`, which is not done where its transaction fails because nothing can be written.
  template <typename Work>
  Result<void> if_it_can_be_written(const Work& work);
  // Counts and logs it if the operating system refused it.
  enum class Use { kRead, kWrite };
  template <typename Done>
  Done noted(Done done, Use use);

  const StoreBounds bounds_;
  const base::Clock& clock_;
  base::Log& log_;
  const int64_t unix_minus_clock_ms_;
  mutable std::mutex mutex_;
  std::unique_ptr<SqliteFile> database_;
  Counts counts_;
  Failures failures_;
  bool cannot_write_ = false;         // of the last transaction that failed
  std::optional<int64_t> logged_ms_;  // when a failure was last logged
};

}  // namespace pelton::store
