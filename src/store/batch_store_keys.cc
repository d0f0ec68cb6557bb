// The part of BatchStore that encrypts, and destroys what it encrypted with.
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "base/sync_path.h"
#include "store/batch_content.h"
#include "store/batch_store.h"
#include "store/sqlite_file.h"
#include "store/store_kinds.h"

namespace pelton::store {
namespace {

namespace fs = std::filesystem;
using Step = Statement::Step;

Result<std::vector<std::string>> texts(const SqliteFile& database, const char* sql,
                                       std::string_view owner = {}) {
  Statement rows(database.handle(), sql);
  if (!owner.empty() || std::string_view(sql).find('?') != std::string_view::npos) rows.text(owner);
  std::vector<std::string> found;
  Step step = rows.step();
  for (; step == Step::kRow; step = rows.step()) found.push_back(rows.text_at(0));
  if (step == Step::kFailed) return database.error("cannot be read");
  return found;
}

Result<void> drop_rows(const SqliteFile& database, const char* sql, const std::string& owner) {
  Statement drop(database.handle(), sql);
  return drop.text(owner).step() == Step::kDone ? Result<void>()
                                                : database.error("cannot be written");
}

// In place; false: it was damaged.
bool decrypt(const RowCipher& cipher, StoredFile& file) {
  auto name = cipher.open("name", file.name);
  if (name) file.name = *std::move(name);
  return name.has_value();
}

bool decrypt(const RowCipher& cipher, StoredBatch& batch) {
  auto metadata = cipher.open("metadata", batch.metadata);
  auto errors = cipher.open("errors", batch.errors);
  if (!metadata || !errors) return false;
  batch.metadata = *std::move(metadata);
  batch.errors = *std::move(errors);
  return true;
}

}  // namespace

Result<RowCipher> BatchStore::cipher_for(std::string_view owner, std::string row) {
  if (keys_ == nullptr) return RowCipher();
  TRY_ASSIGN(base::AuthenticatedCipher cipher, keys_->find_or_make(std::string(owner)));
  return RowCipher(std::move(cipher), std::move(row));
}

Result<RowCipher> BatchStore::cipher_of(std::string_view owner, std::string row) {
  if (keys_ == nullptr) return RowCipher();
  TRY_ASSIGN(std::optional<base::AuthenticatedCipher> cipher, keys_->find(std::string(owner)));
  if (cipher) return RowCipher(*std::move(cipher), std::move(row));
  return Error{ErrorCode::kNotFound, "what it was encrypted with has been destroyed", ""};
}

Result<std::string> BatchStore::owner_of(std::string_view batch) {
  if (keys_ == nullptr) return std::string();  // of no use
  Statement row(database_->handle(), "SELECT owner FROM batches WHERE id = ?");
  const Step step = row.text(batch).step();
  if (step == Step::kFailed) return database_->error("cannot be read");
  if (step == Step::kRow) return row.text_at(0);
  return Error{ErrorCode::kNotFound, "there is no such batch any more", "batch_id"};
}

Result<RowCipher> BatchStore::cipher_of_result(std::string_view owner, std::string_view batch,
                                               int64_t line) {
  return cipher_of(owner, row_name({owner, "result", batch, std::to_string(line)}));
}

Result<StoredFile> BatchStore::decrypted(StoredFile file) {
  TRY_ASSIGN(const RowCipher cipher, cipher_of(file.owner, row_of(file)));
  if (!decrypt(cipher, file)) return not_decrypted("file", file.id);
  return file;
}

Result<StoredBatch> BatchStore::decrypted(StoredBatch batch) {
  TRY_ASSIGN(const RowCipher cipher, cipher_of(batch.owner, row_of(batch)));
  if (!decrypt(cipher, batch)) return not_decrypted("batch", batch.id);
  return batch;
}

Result<void> BatchStore::add_decrypted(StoredFile file, std::vector<StoredFile>& files) {
  return add_if_decrypted("file", std::move(file), files);
}

Result<void> BatchStore::add_decrypted(StoredBatch batch, std::vector<StoredBatch>& batches) {
  return add_if_decrypted("batch", std::move(batch), batches);
}

template <typename Row>
Result<void> BatchStore::add_if_decrypted(const char* what, Row row, std::vector<Row>& rows) {
  const Result<RowCipher> cipher = cipher_of(row.owner, row_of(row));
  if (!cipher.ok() && cipher.error().code == ErrorCode::kNotFound) return {};
  if (!cipher.ok()) return cipher.error();
  if (decrypt(*cipher, row)) {
    rows.push_back(std::move(row));
  } else {
    log_.error(not_decrypted(what, row.id).message);
  }
  return {};
}

// What a process without secrets has left. Contents are encrypted beside themselves; the
// transaction says that they count; then each takes its name. Before it nothing has changed.
Result<void> BatchStore::encrypt_what_is_not() {
  TRY_ASSIGN(const bool encrypted, is_encrypted(*database_));
  if (encrypted) return write_anew(*database_);
  TRY(transact([&]() -> Result<void> {
    TRY(encrypt_files());
    TRY(encrypt_batches());
    TRY(encrypt_results());
    return mark_encrypted(*database_, *keys_);
  }));
  return write_anew(*database_);
}

Result<void> BatchStore::encrypt_files() {
  TRY_ASSIGN(const std::vector<std::string> ids, texts(*database_, "SELECT id FROM files"));
  for (const std::string& id : ids) {
    StoredFile file{.id = id};
    {
      Statement row(database_->handle(), "SELECT owner, name FROM files WHERE id = ?");
      if (row.text(id).step() != Step::kRow) return database_->error("cannot be read");
      file.owner = row.text_at(0);
      file.name = row.text_at(1);
    }
    TRY_ASSIGN(RowCipher cipher, cipher_for(file.owner, row_of(file)));
    const std::string name = cipher.seal("name", file.name);
    Statement update(database_->handle(), "UPDATE files SET name = ? WHERE id = ?");
    if (update.bytes(name).text(id).step() != Step::kDone) {
      return database_->error("cannot be written");
    }
    std::ifstream content(content_path(id), std::ios::binary);
    if (!content && errno == ENOENT) continue;  // it was lost before
    if (!content) return io_error(content_path(id), "cannot be read");
    ContentWriter writer(content_path(id) + std::string(kSealedSuffix), std::move(cipher));
    std::string piece(SealedContent::kPieceBytes, '\0');
    while (content) {
      content.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      TRY(writer.write(std::string_view(piece).substr(0, static_cast<size_t>(content.gcount()))));
    }
    if (content.bad()) return io_error(content_path(id), "cannot be read");
    TRY(writer.finish());
  }
  return base::sync_path(folder_ + "/files");
}

Result<void> BatchStore::encrypt_batches() {
  TRY_ASSIGN(const std::vector<std::string> ids, texts(*database_, "SELECT id FROM batches"));
  for (const std::string& id : ids) {
    StoredBatch batch{.id = id};
    {
      Statement row(database_->handle(),
                    "SELECT owner, metadata, errors FROM batches WHERE id = ?");
      if (row.text(id).step() != Step::kRow) return database_->error("cannot be read");
      batch.owner = row.text_at(0);
      batch.metadata = row.text_at(1);
      batch.errors = row.text_at(2);
    }
    TRY_ASSIGN(const RowCipher cipher, cipher_for(batch.owner, row_of(batch)));
    const std::string metadata = cipher.seal("metadata", batch.metadata);
    const std::string errors = cipher.seal("errors", batch.errors);
    Statement update(database_->handle(),
                     "UPDATE batches SET metadata = ?, errors = ? WHERE id = ?");
    if (update.bytes(metadata).bytes(errors).text(id).step() != Step::kDone) {
      return database_->error("cannot be written");
    }
  }
  return {};
}

Result<void> BatchStore::encrypt_results() {
  TRY_ASSIGN(const std::vector<std::string> batches,
             texts(*database_, "SELECT DISTINCT batch FROM results"));
  for (const std::string& batch : batches) {
    TRY_ASSIGN(const std::string owner, owner_of(batch));
    for (int64_t after = -1;;) {
      int64_t line = 0;
      bool is_error = false;
      std::string text;
      {
        Statement row(database_->handle(),
                      "SELECT line, is_error, text FROM results WHERE batch = ? AND line > ? "
                      "ORDER BY line LIMIT 1");
        const Step step = row.text(batch).number(after).step();
        if (step == Step::kFailed) return database_->error("cannot be read");
        if (step == Step::kDone) break;
        line = row.number_at(0);
        is_error = row.number_at(1) != 0;
        text = row.text_at(2);
      }
      TRY_ASSIGN(const RowCipher cipher, cipher_of_result(owner, batch, line));
      text = cipher.seal(is_error ? "error" : "output", text);
      Statement update(database_->handle(),
                       "UPDATE results SET text = ? WHERE batch = ? AND line = ?");
      if (update.bytes(text).text(batch).number(line).step() != Step::kDone) {
        return database_->error("cannot be written");
      }
      after = line;
    }
  }
  return {};
}

// A process may have ended before the last of them took its name.
Result<void> BatchStore::put_sealed_in_place() {
  std::error_code failed;
  bool has_moved = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ + "/files", failed)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with("file-") || !name.ends_with(kSealedSuffix)) continue;
    name.resize(name.size() - kSealedSuffix.size());
    std::error_code not_renamed;
    fs::rename(entry.path(), content_path(name), not_renamed);
    if (not_renamed) {
      return Error{ErrorCode::kIo, fmt::format("{}: {}", content_path(name), not_renamed.message()),
                   ""};
    }
    has_moved = true;
  }
  if (!failed) return has_moved ? base::sync_path(folder_ + "/files") : Result<void>();
  return Error{ErrorCode::kIo, fmt::format("{}/files: {}", folder_, failed.message()), ""};
}

Result<void> BatchStore::finish_erasures() {
  TRY_ASSIGN(const std::vector<std::string> destroyed, keys_->destroyed());
  for (const std::string& owner : destroyed) {
    TRY(erase_rows(owner));
    TRY(keys_->forget(owner));
  }
  return {};
}

Result<int64_t> erase_batches(const SqliteFile& database, const std::string& folder,
                              const std::string& owner) {
  TRY_ASSIGN(const std::vector<std::string> files,
             texts(database, "SELECT id FROM files WHERE owner = ?", owner));
  TRY_ASSIGN(const std::vector<std::string> batches,
             texts(database, "SELECT id FROM batches WHERE owner = ?", owner));
  for (const std::string& id : files) {
    const std::string content = fmt::format("{}/files/{}", folder, id);
    if (::unlink(content.c_str()) != 0 && errno != ENOENT) {
      return io_error(content, "cannot be deleted");
    }
  }
  TRY(drop_rows(database,
                "DELETE FROM results WHERE batch IN (SELECT id FROM batches WHERE owner = ?)",
                owner));
  TRY(drop_rows(database, "DELETE FROM files WHERE owner = ?", owner));
  TRY(drop_rows(database, "DELETE FROM batches WHERE owner = ?", owner));
  return std::ssize(files) + std::ssize(batches);
}

Result<int64_t> BatchStore::erase_rows(const std::string& owner) {
  int64_t erased = 0;
  TRY(transact([&]() -> Result<void> {
    TRY_ASSIGN(erased, erase_batches(*database_, folder_, owner));
    return {};
  }));
  TRY(database_->run("PRAGMA wal_checkpoint(TRUNCATE);"));
  TRY(count_bytes());
  return erased;
}

Result<int64_t> BatchStore::erase(const std::string& owner) {
  if (keys_ != nullptr) TRY(keys_->destroy(owner));
  TRY_ASSIGN(const int64_t erased, erase_rows(owner));
  if (keys_ != nullptr) TRY(keys_->forget(owner));
  return erased;
}

// Of tenants that have nothing here any more.
Result<void> BatchStore::destroy_idle_keys() {
  if (keys_ == nullptr) return {};
  TRY_ASSIGN(const std::vector<std::string> owners, keys_->owners());
  for (const std::string& owner : owners) TRY(destroy_key_if_idle(owner));
  return {};
}

Result<void> BatchStore::destroy_key_if_idle(const std::string& owner) {
  if (keys_ == nullptr) return {};
  {
    Statement row(database_->handle(),
                  "SELECT 1 WHERE EXISTS (SELECT 1 FROM files WHERE owner = ?1) OR "
                  "EXISTS (SELECT 1 FROM batches WHERE owner = ?1)");
    const Step step = row.text(owner).step();
    if (step == Step::kFailed) return database_->error("cannot be read");
    if (step == Step::kRow) return {};
  }
  return keys_->retire(owner, *database_);
}

}  // namespace pelton::store
