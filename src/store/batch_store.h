// Files that callers upload and batches of requests that are made of them, in one folder: a SQLite
// file with what is known of them and the results of batches that run, and each file's content as
// a file of its own. A batch's result is there once for each of its lines or not at all, whatever
// happens to the process; its output files are made of these when it ends. With secrets, contents,
// results and what callers name or note are encrypted. One process has the folder. One thread at a
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "store/tenant_keys.h"

namespace pelton::store {

class SqliteFile;
class Statement;

struct StoredFile {
  std::string id;
  std::string owner;  // for everybody else it does not exist
  std::string name;   // as its owner calls it
  std::string purpose;
  int64_t bytes = 0;
  int64_t created_at = 0;  // seconds since 1970, as all below
  int64_t expires_at = 0;  // 0: never
};

// As OpenAI has them.
enum class BatchStatus {
  kValidating,
  kFailed,
  kInProgress,
  kFinalizing,
  kCompleted,
  kExpired,
  kCancelling,
  kCancelled,
};
std::string_view batch_status_name(BatchStatus status);
bool has_ended(BatchStatus status);

struct StoredBatch {
  std::string id;
  std::string owner;
  double weight = 1.0;   // the owner's, beside other tenants
  std::string endpoint;  // "/v1/chat/completions"; empty: each line says its own
  std::string input_file;
  std::string window;           // "24h"
  std::string metadata = "{}";  // the caller's, a JSON object
  BatchStatus status = BatchStatus::kValidating;
  int64_t created_at = 0;
  int64_t expires_at = 0;      // of the batch; 0: never
  int64_t output_age_s = 0;    // how long its output files stay; 0: for good
  int64_t in_progress_at = 0;  // 0: not yet, as all below
  int64_t finalizing_at = 0;
  int64_t cancelling_at = 0;
  int64_t ended_at = 0;  // completed, failed, expired or cancelled
  int64_t total = 0;     // lines that are requests
  int64_t completed = 0;
  int64_t failed = 0;
  std::string output_file;  // empty: there is none
  std::string error_file;
  std::string errors = "[]";  // why it failed: a JSON array
};

struct BatchBounds {
  int64_t bytes_max = int64_t{4} << 30;  // contents and results, together
  // Of each owner:
  int64_t files_max = 10'000;
  int64_t batches_max = 10'000;  // those that ended longest ago are forgotten first
  int64_t unfinished_max = 100;  // batches that have not ended
};

class BatchStore {
 public:
  // Makes the folder if there is none. With `secrets` what it holds is encrypted, and what is not
  // yet is from then on. `clock` and `log` outlive the store. Errors: kBadConfig if it holds
  // something else, another process has it or the secrets are not its own; kIo.
  static Result<std::unique_ptr<BatchStore>> open(const std::string& folder,
                                                  const BatchBounds& bounds,
                                                  const base::Clock& clock, base::Log& log,
                                                  const TenantKeys::Secrets& secrets = {});
  ~BatchStore();

  struct Key {
    std::string_view owner;
    std::string_view id;
  };

  int64_t now_s() const;
  int64_t bytes() const { return bytes_; }  // of contents and results
  const BatchBounds& bounds() const { return bounds_; }

  // Errors: kDoesNotFit if there is no room for it, kIo.
  Result<StoredFile> add_file(StoredFile file, std::string_view content);
  Result<StoredFile> find_file(const Key& key);  // kNotFound, kIo
  // Errors: kNotFound, kIo; kInvalidArgument while a batch reads it.
  Result<void> remove_file(const Key& key);
  // Whether its time has come or not. Bad when it is read where the disk fails, and where it is not
  // what was written. May be sought to its beginning. Errors: kNotFound, kIo.
  Result<std::unique_ptr<std::istream>> open_content(const Key& key);
  std::string content_path(std::string_view id) const;

  // Newest first unless `ascending`; those behind the one of id `after`.
  struct Page {
    std::string_view owner;
    std::string_view purpose = {};  // empty: any
    std::string_view after = {};
    int64_t limit = 20;
    bool ascending = false;
  };
  Result<std::vector<StoredFile>> list_files(const Page& page);

  Result<void> add_batch(const StoredBatch& batch);  // kDoesNotFit if too many have not ended
  Result<void> update_batch(const StoredBatch& batch);
  Result<StoredBatch> find_batch(const Key& key);  // kNotFound, kIo
  Result<std::vector<StoredBatch>> list_batches(const Page& page);
  // All that have not ended, the oldest first.
  Result<std::vector<StoredBatch>> unfinished_batches();

  // What became of one line of a batch that runs: `text`, a line for its output file or for its
  // error file. A line that has a result keeps it.
  struct LineResult {
    int64_t line = 0;  // from 0
    bool is_error = false;
    std::string_view text;
  };
  Result<void> add_result(std::string_view batch, const LineResult& result);
  // Of each line before `total`, whether it has a result.
  Result<std::vector<bool>> lines_done(std::string_view batch, int64_t total);
  using VisitResult = std::function<Result<void>(const LineResult& result)>;
  Result<void> visit_results(std::string_view batch, const VisitResult& visit);  // by line
  // Makes the batch's output files of its results, in the order of their lines, and forgets these;
  // `batch`, whose status is one of an end, is stored with them, all at once.
  struct OutputIds {
    std::string output;
    std::string error;
  };
  Result<void> finish(StoredBatch& batch, const OutputIds& ids);

  // All of one owner's files, batches and results; where they are encrypted its key is destroyed
  // first. Nobody may be at work on one of its batches. How many files and batches there were.
  // Errors: kIo: the key is destroyed then, and what is left goes with the next start.
  Result<int64_t> erase(const std::string& owner);

  // Forgets files whose time has come.
  Result<void> drop_expired();

 private:
  BatchStore(std::string folder, std::unique_ptr<SqliteFile> database,
             std::unique_ptr<TenantKeys> keys, const BatchBounds& bounds, const base::Clock& clock,
             base::Log& log);
  Result<void> prepare();
  Result<void> count_bytes();
  Result<void> encrypt_what_is_not();
  Result<void> encrypt_files();
  Result<void> encrypt_batches();
  Result<void> encrypt_results();
  Result<void> put_sealed_in_place();
  Result<void> finish_erasures();
  Result<int64_t> erase_rows(const std::string& owner);
  // Of tenants that have nothing here any more.
  Result<void> destroy_idle_keys();
  Result<void> destroy_key_if_idle(const std::string& owner);
  // Of one that is written; of one that is read: kNotFound if its key was destroyed.
  Result<RowCipher> cipher_for(std::string_view owner, std::string row);
  Result<RowCipher> cipher_of(std::string_view owner, std::string row);
  Result<RowCipher> cipher_of_result(std::string_view owner, std::string_view batch, int64_t line);
  Result<std::string> owner_of(std::string_view batch);
  Result<StoredFile> decrypted(StoredFile file);
  Result<StoredBatch> decrypted(StoredBatch batch);
  // Of many: one whose key was destroyed is passed over, as is one that is damaged, which is
  // logged.
  Result<void> add_decrypted(StoredFile file, std::vector<StoredFile>& files);
  Result<void> add_decrypted(StoredBatch batch, std::vector<StoredBatch>& batches);
  template <typename Row>
  Result<void> add_if_decrypted(const char* what, Row row, std::vector<Row>& rows);
  Result<std::vector<StoredBatch>> decrypted_batches(Statement& rows);
  Result<void> drop_strangers();
  Result<StoredFile> read_row(const Key& key);  // as it lies there
  Result<StoredFile> read_file(const Key& key);
  Result<int64_t> count_of(const char* what, std::string_view owner);
  Result<void> write_content(const StoredFile& file, std::string_view content);
  Result<void> insert_file(const StoredFile& file);
  Result<void> write_batch(const char* sql, const StoredBatch& batch);
  Result<int64_t> position_of(const char* sql, const Page& page);
  Result<void> make_output(StoredBatch& batch, bool is_error, const std::string& id);
  Result<void> transact(const std::function<Result<void>()>& work);

  const std::string folder_;
  const BatchBounds bounds_;
  const base::Clock& clock_;
  base::Log& log_;
  const std::unique_ptr<SqliteFile> database_;
  const std::unique_ptr<TenantKeys> keys_;  // null: nothing is encrypted
  int64_t bytes_ = 0;
};

}  // namespace pelton::store
