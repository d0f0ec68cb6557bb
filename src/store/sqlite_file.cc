#include "store/sqlite_file.h"

#include <algorithm>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pelton::store {
namespace {

constexpr int kBusyMs = 500;  // a process that is just ending lets go in this time

// What people asked and were answered is nobody else's. SQLite gives the files beside it the same
// rights; those that are there may be of before. Nothing is opened that is there: to close it again
// would give up the locks on it.
void keep_from_others(const std::string& path) {
  const int made = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (made >= 0) ::close(made);
  for (const char* beside : {"", "-wal", "-shm"}) {
    struct stat file {};
    const std::string name = path + beside;
    const bool ours = ::stat(name.c_str(), &file) == 0 && S_ISREG(file.st_mode);
    if (ours && (file.st_mode & 077) != 0) ::chmod(name.c_str(), file.st_mode & 0700);
  }
}

}  // namespace

Result<std::unique_ptr<SqliteFile>> SqliteFile::open(const std::string& path, const Kind& kind) {
  std::unique_ptr<SqliteFile> file(new SqliteFile(path));
  keep_from_others(path);
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int opened = sqlite3_open_v2(path.c_str(), &file->handle_, kFlags, nullptr);
  if (opened != SQLITE_OK) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("{}: cannot be opened: {}", path, sqlite3_errstr(opened)), ""};
  }
  if (const Result<void> prepared = file->prepare(kind); !prepared.ok()) {
    const bool is_taken = (sqlite3_errcode(file->handle_) & 0xff) == SQLITE_BUSY;
    return Error{
        ErrorCode::kBadConfig,
        is_taken ? fmt::format("{}: another process has it open", path) : prepared.error().message,
        ""};
  }
  return file;
}

SqliteFile::~SqliteFile() {
  sqlite3_close_v2(handle_);
}

Result<void> SqliteFile::prepare(const Kind& kind) {
  sqlite3_busy_timeout(handle_, kBusyMs);
  sqlite3_extended_result_codes(handle_, 1);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  // What is deleted is overwritten, not only unlinked.
  TRY(
      run("PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = NORMAL; "
          "PRAGMA secure_delete = ON;"));
  TRY_ASSIGN(const int64_t application, number("PRAGMA application_id"));
  TRY_ASSIGN(const int64_t tables, number("SELECT count(*) FROM sqlite_schema"));
  const auto not_ours = [&](std::string_view why) {
    return Error{ErrorCode::kBadConfig, fmt::format("{}: {}", path_, why), ""};
  };
  if (application != kind.application_id && (application != 0 || tables != 0)) {
    return not_ours(fmt::format("is a database, but not one of {}", kind.what));
  }
  TRY(run("PRAGMA journal_mode = WAL; BEGIN IMMEDIATE;"));
  if (application == 0) TRY(run(kind.schema));
  TRY(run(kind.later));
  TRY_ASSIGN(const int64_t format, number("PRAGMA user_version"));
  if (format != kind.format && format != kind.other_format) {
    const int64_t newest = std::max(kind.format, kind.other_format);
    return not_ours(fmt::format("has format {}; this program knows {}", format, newest));
  }
  return run("COMMIT");
}

Error SqliteFile::error(std::string_view what) const {
  return {ErrorCode::kIo, fmt::format("{}: {}: {}", path_, what, sqlite3_errmsg(handle_)), ""};
}

bool SqliteFile::cannot_write() const {
  switch (sqlite3_extended_errcode(handle_)) {
    case SQLITE_FULL:
    case SQLITE_READONLY:
    case SQLITE_IOERR_WRITE:
    case SQLITE_IOERR_FSYNC:
    case SQLITE_IOERR_TRUNCATE:
      return true;
    default:
      return false;
  }
}

Result<void> SqliteFile::run(const char* sql) const {
  if (sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return error("cannot be used");
}

Result<int64_t> SqliteFile::number(const char* sql) const {
  Statement statement(handle_, sql);
  if (statement.step() != Statement::Step::kRow) return error("cannot be read");
  return statement.number_at(0);
}

}  // namespace pelton::store
