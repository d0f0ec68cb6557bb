// One SQLite file that this process has for itself, and statements on it: what the stores of this
// room share. Internal to the room. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <sqlite3.h>

#include "base/result.h"

namespace pelton::store {

class SqliteFile {
 public:
  // What a file of ours holds, by which another one is known.
  struct Kind {
    std::string_view what;       // "responses", for messages
    int64_t application_id = 0;  // that the schema sets
    int64_t format = 1;          // likewise, user_version
    int64_t other_format = 1;    // that it may have as well
    const char* schema = "";     // of a new file
    const char* later = "";      // what files of before lack: CREATE TABLE IF NOT EXISTS
  };

  // Makes the file if there is none; only its owner may read it. Errors: kBadConfig if it is
  // another kind of file, damaged, or another process has it.
  static Result<std::unique_ptr<SqliteFile>> open(const std::string& path, const Kind& kind);
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  sqlite3* handle() const { return handle_; }
  Error error(std::string_view what) const;
  // The last use failed because the file cannot grow or cannot be written: a full disk, a quota, a
  // limit on files. What stands in it can be read all the same.
  bool cannot_write() const;
  Result<void> run(const char* sql) const;
  Result<int64_t> number(const char* sql) const;

 private:
  explicit SqliteFile(std::string path) : path_(std::move(path)) {}
  Result<void> prepare(const Kind& kind);

  const std::string path_;
  sqlite3* handle_ = nullptr;
};

// One use of one SQL text.
class Statement {
 public:
  Statement(sqlite3* handle, const char* sql) {
    prepared_ = sqlite3_prepare_v2(handle, sql, -1, &statement_, nullptr) == SQLITE_OK;
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // What is bound must live until step().
  Statement& text(std::string_view value) {
    sqlite3_bind_text64(statement_, ++bound_, value.data() == nullptr ? "" : value.data(),
                        value.size(), SQLITE_STATIC, SQLITE_UTF8);
    return *this;
  }
  Statement& number(int64_t value) {
    sqlite3_bind_int64(statement_, ++bound_, value);
    return *this;
  }
  Statement& real(double value) {
    sqlite3_bind_double(statement_, ++bound_, value);
    return *this;
  }
  Statement& blob(const void* bytes, size_t size) {
    sqlite3_bind_blob64(statement_, ++bound_, size == 0 ? "" : bytes, size, SQLITE_STATIC);
    return *this;
  }
  Statement& bytes(std::string_view value) { return blob(value.data(), value.size()); }
  Statement& value(std::string_view value, bool is_binary) {
    return is_binary ? bytes(value) : text(value);
  }

  enum class Step { kRow, kDone, kFailed };
  Step step() {
    if (!prepared_) return Step::kFailed;
    const int code = sqlite3_step(statement_);
    if (code == SQLITE_ROW) return Step::kRow;
    return code == SQLITE_DONE ? Step::kDone : Step::kFailed;
  }

  int64_t number_at(int column) const { return sqlite3_column_int64(statement_, column); }
  double real_at(int column) const { return sqlite3_column_double(statement_, column); }
  // Until the next step.
  std::string_view bytes_at(int column) const {
    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
    return bytes == nullptr ? std::string_view() : std::string_view(bytes, size);
  }
  std::string text_at(int column) const { return std::string(bytes_at(column)); }

 private:
  sqlite3_stmt* statement_ = nullptr;
  bool prepared_ = false;
  int bound_ = 0;
};

}  // namespace pelton::store
