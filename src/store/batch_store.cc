#include "store/batch_store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/batch_content.h"
#include "store/sealed_content.h"
#include "store/sqlite_file.h"
#include "store/store_kinds.h"

namespace pelton::store {
namespace {

namespace fs = std::filesystem;
using Step = Statement::Step;

constexpr const char* kSchema = R"(
CREATE TABLE files (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT UNIQUE NOT NULL,
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  purpose TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
);
CREATE INDEX files_of ON files (owner, number);
CREATE TABLE batches (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT UNIQUE NOT NULL,
  owner TEXT NOT NULL,
  weight REAL NOT NULL,
  endpoint TEXT NOT NULL,
  input_file TEXT NOT NULL,
  completion_window TEXT NOT NULL,
  metadata TEXT NOT NULL,
  status INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  output_age INTEGER NOT NULL,
  in_progress_at INTEGER NOT NULL,
  finalizing_at INTEGER NOT NULL,
  cancelling_at INTEGER NOT NULL,
  ended_at INTEGER NOT NULL,
  total INTEGER NOT NULL,
  completed INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  output_file TEXT NOT NULL,
  error_file TEXT NOT NULL,
  errors TEXT NOT NULL
);
CREATE INDEX batches_of ON batches (owner, number);
CREATE TABLE results (
  batch TEXT NOT NULL,
  line INTEGER NOT NULL,
  is_error INTEGER NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (batch, line)
) WITHOUT ROWID;
PRAGMA application_id = 1348813409;
PRAGMA user_version = 1;
)";

constexpr const char* kFileColumns = "id, owner, name, purpose, bytes, created_at, expires_at";
constexpr const char* kBatchColumns =
    "id, owner, weight, endpoint, input_file, completion_window, metadata, status, created_at, "
    "expires_at, output_age, in_progress_at, finalizing_at, cancelling_at, ended_at, total, "
    "completed, failed, output_file, error_file, errors";

constexpr std::array<std::string_view, 8> kStatusNames = {"validating", "failed",    "in_progress",
                                                          "finalizing", "completed", "expired",
                                                          "cancelling", "cancelled"};

// As SQL has it.
constexpr const char* kHasEnded = "status IN (1, 4, 5, 7)";

StoredFile file_of(const Statement& row) {
  return {.id = row.text_at(0),
          .owner = row.text_at(1),
          .name = row.text_at(2),
          .purpose = row.text_at(3),
          .bytes = row.number_at(4),
          .created_at = row.number_at(5),
          .expires_at = row.number_at(6)};
}

StoredBatch batch_of(const Statement& row) {
  return {.id = row.text_at(0),
          .owner = row.text_at(1),
          .weight = row.real_at(2),
          .endpoint = row.text_at(3),
          .input_file = row.text_at(4),
          .window = row.text_at(5),
          .metadata = row.text_at(6),
          .status = static_cast<BatchStatus>(row.number_at(7)),
          .created_at = row.number_at(8),
          .expires_at = row.number_at(9),
          .output_age_s = row.number_at(10),
          .in_progress_at = row.number_at(11),
          .finalizing_at = row.number_at(12),
          .cancelling_at = row.number_at(13),
          .ended_at = row.number_at(14),
          .total = row.number_at(15),
          .completed = row.number_at(16),
          .failed = row.number_at(17),
          .output_file = row.text_at(18),
          .error_file = row.text_at(19),
          .errors = row.text_at(20)};
}

Error no_such_file(std::string_view id) {
  return {ErrorCode::kNotFound, fmt::format("No such File object: {}", id.substr(0, 64)), "id"};
}

Error no_such_batch(std::string_view id) {
  return {ErrorCode::kNotFound, fmt::format("No batch found with id '{}'", id.substr(0, 64)),
          "batch_id"};
}

}  // namespace

std::string_view batch_status_name(BatchStatus status) {
  return kStatusNames.at(static_cast<size_t>(status));
}

bool has_ended(BatchStatus status) {
  return status == BatchStatus::kFailed || status == BatchStatus::kCompleted ||
         status == BatchStatus::kExpired || status == BatchStatus::kCancelled;
}

const SqliteFile::Kind& batches_kind() {
  static constexpr SqliteFile::Kind kKind{.what = "batches",
                                          .application_id = 0x50654261,  // "PeBa"
                                          .format = 1,
                                          .other_format = kEncryptedFormat,
                                          .schema = kSchema};
  return kKind;
}

Result<std::unique_ptr<BatchStore>> BatchStore::open(const std::string& folder,
                                                     const BatchBounds& bounds,
                                                     const base::Clock& clock, base::Log& log,
                                                     const TenantKeys::Secrets& secrets) {
  for (const std::string& path : {folder, folder + "/files"}) {
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      return Error{ErrorCode::kBadConfig, io_error(path, "cannot be made").message, ""};
    }
  }
  // What lies behind a link is not ours.
  struct stat files {};
  if (::lstat((folder + "/files").c_str(), &files) != 0 || !S_ISDIR(files.st_mode)) {
    return Error{ErrorCode::kBadConfig, fmt::format("{}/files is no folder", folder), ""};
  }
  TRY_ASSIGN(std::unique_ptr<SqliteFile> database,
             SqliteFile::open(folder + "/batches.sqlite", batches_kind()));
  TRY_ASSIGN(std::unique_ptr<TenantKeys> keys, keys_of(*database, folder, secrets));
  std::unique_ptr<BatchStore> store(
      new BatchStore(folder, std::move(database), std::move(keys), bounds, clock, log));
  TRY(store->prepare());
  return store;
}

BatchStore::BatchStore(std::string folder, std::unique_ptr<SqliteFile> database,
                       std::unique_ptr<TenantKeys> keys, const BatchBounds& bounds,
                       const base::Clock& clock, base::Log& log)
    : folder_(std::move(folder)),
      bounds_(bounds),
      clock_(clock),
      log_(log),
      database_(std::move(database)),
      keys_(std::move(keys)) {}

BatchStore::~BatchStore() = default;

Result<void> BatchStore::prepare() {
  if (keys_ != nullptr) {
    TRY(encrypt_what_is_not());
    TRY(put_sealed_in_place());
    TRY(finish_erasures());
    if (keys_->wrapped_anew() > 0) {
      log_.info(fmt::format("{}: {} keys are wrapped by the first secret now", folder_,
                            keys_->wrapped_anew()));
    }
  }
  TRY(count_bytes());
  TRY(drop_strangers());
  return destroy_idle_keys();
}

Result<void> BatchStore::count_bytes() {
  TRY_ASSIGN(const int64_t contents, database_->number("SELECT ifnull(sum(bytes), 0) FROM files"));
  TRY_ASSIGN(const int64_t results,
             database_->number("SELECT ifnull(sum(length(CAST(text AS BLOB))), 0) FROM results"));
  TRY_ASSIGN(const int64_t lines, database_->number("SELECT count(*) FROM results"));
  const auto overhead = static_cast<int64_t>(SealedContent::kOverheadBytes);
  bytes_ = contents + results - (keys_ != nullptr ? lines * overhead : 0);
  return {};
}

// "file-…", whole or ".partial"
bool is_own_name(std::string_view name) {
  if (!name.starts_with("file-")) return false;
  name.remove_prefix(5);
  if (name.ends_with(".partial")) name.remove_suffix(8);
  if (name.ends_with(kSealedSuffix)) name.remove_suffix(kSealedSuffix.size());
  return name.size() >= 8 && std::ranges::all_of(name, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
         });
}

// Contents whose row was never written, or whose row is gone: their process was killed between the
// two. Nothing else is touched, and nothing at all where no row ever was: then the contents may be
// those of a database that was lost.
Result<void> BatchStore::drop_strangers() {
  TRY_ASSIGN(const int64_t rows,
             database_->number("SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = "
                               "'files'"));
  if (rows == 0) return {};
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ + "/files", failed)) {
    const std::string name = entry.path().filename().string();
    if (!is_own_name(name)) continue;
    Statement row(database_->handle(), "SELECT 1 FROM files WHERE id = ?");
    const Step step = row.text(name).step();
    if (step == Step::kFailed) return database_->error("cannot be read");
    if (step == Step::kDone) ::unlink(entry.path().c_str());
  }
  if (!failed) return {};
  return Error{ErrorCode::kIo, fmt::format("{}/files: {}", folder_, failed.message()), ""};
}

Result<int64_t> BatchStore::count_of(const char* what, std::string_view owner) {
  Statement row(database_->handle(), fmt::format("SELECT count(*) FROM {}", what).c_str());
  if (row.text(owner).step() == Step::kFailed) return database_->error("cannot be read");
  return row.number_at(0);
}

int64_t BatchStore::now_s() const {
  return clock_.unix_ms() / 1000;
}

std::string BatchStore::content_path(std::string_view id) const {
  return fmt::format("{}/files/{}", folder_, id);
}

Result<void> BatchStore::transact(const std::function<Result<void>()>& work) {
  TRY(database_->run("BEGIN IMMEDIATE"));
  Result<void> done = work();
  if (done.ok()) done = database_->run("COMMIT");
  if (done.ok()) return done;
  static_cast<void>(database_->run("ROLLBACK"));
  return done;
}

Result<void> BatchStore::write_content(const StoredFile& file, std::string_view content) {
  TRY_ASSIGN(RowCipher cipher, cipher_for(file.owner, row_of(file)));
  ContentWriter writer(content_path(file.id), std::move(cipher));
  TRY(writer.write(content));
  return writer.finish();
}

Result<void> BatchStore::insert_file(const StoredFile& file) {
  Statement add(database_->handle(),
                "INSERT INTO files (id, owner, name, purpose, bytes, created_at, expires_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)");
  TRY_ASSIGN(const RowCipher cipher, cipher_for(file.owner, row_of(file)));
  const std::string name = cipher.seal("name", file.name);
  add.text(file.id).text(file.owner).value(name, cipher.encrypts()).text(file.purpose);
  add.number(file.bytes).number(file.created_at).number(file.expires_at);
  return add.step() == Step::kDone ? Result<void>() : database_->error("cannot be written");
}

Result<StoredFile> BatchStore::add_file(StoredFile file, std::string_view content) {
  file.bytes = static_cast<int64_t>(content.size());
  TRY_ASSIGN(const int64_t count, count_of("files WHERE owner = ?", file.owner));
  if (count >= bounds_.files_max) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("There are {} files, as many as may be: delete some first", count),
                 "file"};
  }
  if (bytes_ + file.bytes > bounds_.bytes_max) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("The file has {} bytes; of {} for all files {} are taken: delete some "
                             "first",
                             file.bytes, bounds_.bytes_max, bytes_),
                 "file"};
  }
  TRY(write_content(file, content));
  if (const Result<void> added = insert_file(file); !added.ok()) {
    ::unlink(content_path(file.id).c_str());
    return added.error();
  }
  bytes_ += file.bytes;
  return file;
}

Result<StoredFile> BatchStore::read_row(const Key& key) {
  Statement row(
      database_->handle(),
      fmt::format("SELECT {} FROM files WHERE id = ? AND owner = ?", kFileColumns).c_str());
  const Step step = row.text(key.id).text(key.owner).step();
  if (step == Step::kFailed) return database_->error("cannot be read");
  if (step == Step::kDone) return no_such_file(key.id);
  return file_of(row);
}

Result<StoredFile> BatchStore::read_file(const Key& key) {
  TRY_ASSIGN(StoredFile sealed, read_row(key));
  Result<StoredFile> file = decrypted(std::move(sealed));
  if (!file.ok() && file.error().code == ErrorCode::kNotFound) return no_such_file(key.id);
  return file;
}

Result<StoredFile> BatchStore::find_file(const Key& key) {
  TRY_ASSIGN(StoredFile file, read_file(key));
  if (file.expires_at != 0 && file.expires_at <= now_s()) return no_such_file(key.id);
  return file;
}

Result<std::unique_ptr<std::istream>> BatchStore::open_content(const Key& key) {
  TRY_ASSIGN(const StoredFile file, read_file(key));
  TRY_ASSIGN(RowCipher cipher, cipher_of(file.owner, row_of(file)));
  auto content = std::make_unique<std::ifstream>(content_path(file.id), std::ios::binary);
  if (!*content) {
    if (errno == ENOENT) return no_such_file(key.id);
    return io_error(content_path(file.id), "cannot be read");
  }
  if (!cipher.encrypts()) return std::unique_ptr<std::istream>(std::move(content));
  return SealedContent::reader(std::move(content), std::move(cipher));
}

// Its name need not be known: a file whose row is damaged can be deleted.
Result<void> BatchStore::remove_file(const Key& key) {
  TRY_ASSIGN(const StoredFile file, read_row(key));
  if (file.expires_at != 0 && file.expires_at <= now_s()) return no_such_file(key.id);
  {
    Statement reader(
        database_->handle(),
        fmt::format("SELECT id FROM batches WHERE input_file = ? AND NOT {}", kHasEnded).c_str());
    const Step step = reader.text(key.id).step();
    if (step == Step::kFailed) return database_->error("cannot be read");
    if (step == Step::kRow) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("File '{}' is being read by batch '{}'; cancel it first", file.id,
                               reader.bytes_at(0)),
                   "id"};
    }
  }
  Statement drop(database_->handle(), "DELETE FROM files WHERE id = ?");
  if (drop.text(key.id).step() != Step::kDone) return database_->error("cannot be written");
  ::unlink(content_path(file.id).c_str());
  bytes_ -= file.bytes;
  return destroy_key_if_idle(file.owner);
}

// Of the entry that a page begins behind: its number, or one that all are behind of.
Result<int64_t> BatchStore::position_of(const char* sql, const Page& page) {
  if (page.after.empty()) return page.ascending ? -1 : INT64_MAX;
  Statement row(database_->handle(), sql);
  const Step step = row.text(page.after).text(page.owner).step();
  if (step == Step::kFailed) return database_->error("cannot be read");
  if (step == Step::kRow) return row.number_at(0);
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("'after': there is no '{}' in this list", page.after.substr(0, 64)),
               "after"};
}

Result<std::vector<StoredFile>> BatchStore::list_files(const Page& page) {
  TRY_ASSIGN(const int64_t behind,
             position_of("SELECT number FROM files WHERE id = ? AND owner = ?", page));
  const std::string sql = fmt::format(
      "SELECT {} FROM files WHERE owner = ? AND number {} ? AND (? = '' OR purpose = ?) AND "
      "(expires_at = 0 OR expires_at > ?) ORDER BY number {} LIMIT ?",
      kFileColumns, page.ascending ? ">" : "<", page.ascending ? "ASC" : "DESC");
  Statement rows(database_->handle(), sql.c_str());
  rows.text(page.owner).number(behind).text(page.purpose).text(page.purpose);
  rows.number(now_s()).number(page.limit);
  std::vector<StoredFile> files;
  Step step = rows.step();
  for (; step == Step::kRow; step = rows.step()) TRY(add_decrypted(file_of(rows), files));
  if (step == Step::kFailed) return database_->error("cannot be read");
  return files;
}

Result<void> BatchStore::write_batch(const char* sql, const StoredBatch& batch) {
  Statement row(database_->handle(), sql);
  row.text(batch.id).text(batch.owner).real(batch.weight).text(batch.endpoint);
  TRY_ASSIGN(const RowCipher cipher, cipher_for(batch.owner, row_of(batch)));
  const std::string metadata = cipher.seal("metadata", batch.metadata);
  const std::string errors = cipher.seal("errors", batch.errors);
  row.text(batch.input_file).text(batch.window).value(metadata, cipher.encrypts());
  row.number(static_cast<int64_t>(batch.status)).number(batch.created_at);
  row.number(batch.expires_at).number(batch.output_age_s).number(batch.in_progress_at);
  row.number(batch.finalizing_at).number(batch.cancelling_at).number(batch.ended_at);
  row.number(batch.total).number(batch.completed).number(batch.failed);
  row.text(batch.output_file).text(batch.error_file).value(errors, cipher.encrypts());
  return row.step() == Step::kDone ? Result<void>() : database_->error("cannot be written");
}

Result<void> BatchStore::add_batch(const StoredBatch& batch) {
  const std::string running = fmt::format("batches WHERE owner = ? AND NOT {}", kHasEnded);
  TRY_ASSIGN(const int64_t unfinished, count_of(running.c_str(), batch.owner));
  if (unfinished >= std::min(bounds_.unfinished_max, bounds_.batches_max)) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("{} batches have not ended, as many as may be", unfinished),
                 "input_file_id"};
  }
  TRY_ASSIGN(const int64_t count, count_of("batches WHERE owner = ?", batch.owner));
  if (count >= bounds_.batches_max) {
    Statement forget(database_->handle(),
                     fmt::format("DELETE FROM batches WHERE number = (SELECT min(number) FROM "
                                 "batches WHERE owner = ? AND {})",
                                 kHasEnded)
                         .c_str());
    if (forget.text(batch.owner).step() == Step::kFailed) {
      return database_->error("cannot be written");
    }
  }
  const std::string sql = fmt::format(
      "INSERT INTO batches ({}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
      "?, ?, ?, ?, ?)",
      kBatchColumns);
  return write_batch(sql.c_str(), batch);
}

Result<void> BatchStore::update_batch(const StoredBatch& batch) {
  const std::string sql = fmt::format(
      "UPDATE batches SET ({}) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
      "?, ?, ?) WHERE id = ?1",
      kBatchColumns);
  return write_batch(sql.c_str(), batch);
}

Result<StoredBatch> BatchStore::find_batch(const Key& key) {
  Statement row(
      database_->handle(),
      fmt::format("SELECT {} FROM batches WHERE id = ? AND owner = ?", kBatchColumns).c_str());
  const Step step = row.text(key.id).text(key.owner).step();
  if (step == Step::kFailed) return database_->error("cannot be read");
  if (step == Step::kDone) return no_such_batch(key.id);
  Result<StoredBatch> batch = decrypted(batch_of(row));
  if (!batch.ok() && batch.error().code == ErrorCode::kNotFound) return no_such_batch(key.id);
  return batch;
}

Result<std::vector<StoredBatch>> BatchStore::list_batches(const Page& page) {
  TRY_ASSIGN(const int64_t behind,
             position_of("SELECT number FROM batches WHERE id = ? AND owner = ?", page));
  const std::string sql = fmt::format(
      "SELECT {} FROM batches WHERE owner = ? AND number {} ? ORDER BY number {} LIMIT ?",
      kBatchColumns, page.ascending ? ">" : "<", page.ascending ? "ASC" : "DESC");
  Statement rows(database_->handle(), sql.c_str());
  rows.text(page.owner).number(behind).number(page.limit);
  return decrypted_batches(rows);
}

Result<std::vector<StoredBatch>> BatchStore::unfinished_batches() {
  const std::string sql =
      fmt::format("SELECT {} FROM batches WHERE NOT {} ORDER BY number", kBatchColumns, kHasEnded);
  Statement rows(database_->handle(), sql.c_str());
  return decrypted_batches(rows);
}

Result<std::vector<StoredBatch>> BatchStore::decrypted_batches(Statement& rows) {
  std::vector<StoredBatch> batches;
  Step step = rows.step();
  for (; step == Step::kRow; step = rows.step()) TRY(add_decrypted(batch_of(rows), batches));
  if (step == Step::kFailed) return database_->error("cannot be read");
  return batches;
}

Result<void> BatchStore::add_result(std::string_view batch, const LineResult& result) {
  TRY_ASSIGN(const std::string owner, owner_of(batch));
  TRY_ASSIGN(const RowCipher cipher, cipher_of_result(owner, batch, result.line));
  const std::string text = cipher.seal(result.is_error ? "error" : "output", result.text);
  Statement add(database_->handle(), "INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)");
  add.text(batch).number(result.line).number(result.is_error ? 1 : 0);
  add.value(text, cipher.encrypts());
  if (add.step() != Step::kDone) return database_->error("cannot be written");
  if (sqlite3_changes(database_->handle()) > 0) {
    bytes_ += static_cast<int64_t>(result.text.size());
  }
  return {};
}

Result<std::vector<bool>> BatchStore::lines_done(std::string_view batch, int64_t total) {
  std::vector<bool> done(static_cast<size_t>(total));
  Statement rows(database_->handle(), "SELECT line FROM results WHERE batch = ?");
  rows.text(batch);
  Step step = rows.step();
  for (; step == Step::kRow; step = rows.step()) {
    const int64_t line = rows.number_at(0);
    if (line >= 0 && line < total) done[static_cast<size_t>(line)] = true;
  }
  if (step == Step::kFailed) return database_->error("cannot be read");
  return done;
}

Result<void> BatchStore::visit_results(std::string_view batch, const VisitResult& visit) {
  Statement rows(database_->handle(),
                 "SELECT line, is_error, text FROM results WHERE batch = ? ORDER BY line");
  rows.text(batch);
  TRY_ASSIGN(const std::string owner, owner_of(batch));
  Step step = rows.step();
  for (; step == Step::kRow; step = rows.step()) {
    const bool is_error = rows.number_at(1) != 0;
    TRY_ASSIGN(const RowCipher cipher, cipher_of_result(owner, batch, rows.number_at(0)));
    const auto text = cipher.open(is_error ? "error" : "output", rows.bytes_at(2));
    if (!text) return not_decrypted("result of batch", batch);
    TRY(visit({.line = rows.number_at(0), .is_error = is_error, .text = *text}));
  }
  return step == Step::kFailed ? Result<void>(database_->error("cannot be read")) : Result<void>();
}

// Written before its row: a content without a row is dropped at the next start, and made anew.
Result<void> BatchStore::make_output(StoredBatch& batch, bool is_error, const std::string& id) {
  TRY_ASSIGN(RowCipher cipher, cipher_for(batch.owner, row_name({batch.owner, "file", id})));
  ContentWriter writer(content_path(id), std::move(cipher));
  TRY(visit_results(batch.id, [&](const LineResult& result) -> Result<void> {
    return result.is_error == is_error ? writer.write(result.text) : Result<void>();
  }));
  if (writer.bytes() == 0) return {};
  TRY(writer.finish());
  const int64_t expires_at = batch.output_age_s == 0 ? 0 : batch.ended_at + batch.output_age_s;
  TRY(insert_file({.id = id,
                   .owner = batch.owner,
                   .name = fmt::format("{}_{}.jsonl", batch.id, is_error ? "error" : "output"),
                   .purpose = "batch_output",
                   .bytes = writer.bytes(),
                   .created_at = batch.ended_at,
                   .expires_at = expires_at}));
  (is_error ? batch.error_file : batch.output_file) = id;
  return {};
}

Result<void> BatchStore::finish(StoredBatch& batch, const OutputIds& ids) {
  return transact([&]() -> Result<void> {
    TRY(make_output(batch, false, ids.output));
    TRY(make_output(batch, true, ids.error));
    Statement drop(database_->handle(), "DELETE FROM results WHERE batch = ?");
    if (drop.text(batch.id).step() != Step::kDone) return database_->error("cannot be written");
    return update_batch(batch);
  });
}

Result<void> BatchStore::drop_expired() {
  std::vector<StoredFile> expired;
  {
    const std::string sql = fmt::format(
        "SELECT {} FROM files WHERE expires_at != 0 AND expires_at <= ? AND id NOT IN "
        "(SELECT input_file FROM batches WHERE NOT {}) LIMIT 100",
        kFileColumns, kHasEnded);
    Statement rows(database_->handle(), sql.c_str());
    rows.number(now_s());
    Step step = rows.step();
    for (; step == Step::kRow; step = rows.step()) expired.push_back(file_of(rows));
    if (step == Step::kFailed) return database_->error("cannot be read");
  }
  for (const StoredFile& file : expired) {
    Statement drop(database_->handle(), "DELETE FROM files WHERE id = ?");
    if (drop.text(file.id).step() != Step::kDone) return database_->error("cannot be written");
    ::unlink(content_path(file.id).c_str());
    bytes_ -= file.bytes;
    TRY(destroy_key_if_idle(file.owner));
  }
  return {};
}

}  // namespace pelton::store
