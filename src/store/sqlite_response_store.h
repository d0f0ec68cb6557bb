// Responses kept in one SQLite file, which this process has for itself; encrypted where there are
// secrets. Any thread; one lock.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "store/response_store.h"
#include "store/tenant_keys.h"

namespace pelton::store {

class SqliteFile;

class SqliteResponseStore final : public ResponseStore {
 public:
  // Makes the file if there is none. With `secrets` what it holds is encrypted, and what is not yet
  // is from then on. `clock` and `log` outlive the store. Errors: kBadConfig if it is another kind
  // of file, damaged, another process has it, or the secrets are not its own; kIo.
  static Result<std::unique_ptr<ResponseStore>> open(const std::string& path,
                                                     const StoreBounds& bounds,
                                                     const base::Clock& clock, base::Log& log,
                                                     const TenantKeys::Secrets& secrets = {});
  ~SqliteResponseStore() override;

  Result<void> put(const StoredResponse& response) override;
  Result<void> put_unfinished(const StoredResponse& as_it_would_end) override;
  Result<StoredResponse> find(const Key& key) override;
  Result<std::vector<StoredResponse>> history(const Key& key) override;
  Result<void> remove(const Key& key) override;
  Result<int64_t> erase(const std::string& owner) override;
  Counts counts() const override;
  Failures failures() const override;

 private:
  int64_t now_ms() const;

  SqliteResponseStore(std::unique_ptr<SqliteFile> database, std::unique_ptr<TenantKeys> keys,
                      const StoreBounds& bounds, const base::Clock& clock, base::Log& log);
  Result<void> encrypt_what_is_not();
  Result<void> encrypt_table(const char* table);
  Result<void> finish_erasures();
  Result<int64_t> erase_rows(const std::string& owner);
  // Of tenants that have nothing here any more.
  Result<void> destroy_idle_keys();
  Result<void> destroy_key_if_idle(const std::string& owner);
  // Of the row of one that is written; of one that is read: kNotFound if its key was destroyed.
  Result<RowCipher> cipher_for(const StoredResponse& response);
  Result<RowCipher> cipher_of(const StoredResponse& response);
  Result<void> decrypt(StoredResponse& response, std::string_view turn);
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
  const std::unique_ptr<TenantKeys> keys_;  // null: nothing is encrypted
  std::set<std::string> dropped_of_;  // tenants of whom something went, since keys were looked at
  Counts counts_;
  Failures failures_;
  bool cannot_write_ = false;         // of the last transaction that failed
  std::optional<int64_t> logged_ms_;  // when a failure was last logged
};

}  // namespace pelton::store
