#include "store/sqlite_response_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "store/sqlite_file.h"
#include "store/store_kinds.h"

namespace pelton::store {
namespace {

constexpr const char* kSchema = R"(
CREATE TABLE responses (
  id TEXT PRIMARY KEY NOT NULL,
  owner TEXT NOT NULL,
  previous TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  touched_at INTEGER NOT NULL,
  visible INTEGER NOT NULL,
  children INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  body TEXT NOT NULL,
  input TEXT NOT NULL,
  output TEXT NOT NULL,
  turn BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX leaves ON responses (touched_at) WHERE children = 0;
PRAGMA application_id = 1348824180;
PRAGMA user_version = 1;
)";

// Of responses that are being made: what is kept of them if the process ends first. Files of before
// have no such table, and programs of before do not miss it.
constexpr const char* kUnfinishedSchema = R"(
CREATE TABLE IF NOT EXISTS unfinished (
  id TEXT PRIMARY KEY NOT NULL,
  owner TEXT NOT NULL,
  previous TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  body TEXT NOT NULL,
  input TEXT NOT NULL,
  output TEXT NOT NULL
) WITHOUT ROWID;
)";

using Step = Statement::Step;

std::vector<TokenId> tokens_of(std::string_view bytes) {
  std::vector<TokenId> tokens(bytes.size() / sizeof(TokenId));
  if (!tokens.empty()) std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(TokenId));
  return tokens;
}

std::string_view bytes_of(const std::vector<TokenId>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(TokenId)};
}

// What a response is encrypted for: nobody can give it to another tenant, or to another history.
std::string row_of(const StoredResponse& response) {
  return row_name({response.owner, response.id, response.previous});
}

}  // namespace

const SqliteFile::Kind& responses_kind() {
  static constexpr SqliteFile::Kind kKind{.what = "responses",
                                          .application_id = 0x50656c74,  // "Pelt"
                                          .format = 1,
                                          .other_format = kEncryptedFormat,
                                          .schema = kSchema,
                                          .later = kUnfinishedSchema};
  return kKind;
}

Result<std::unique_ptr<ResponseStore>> SqliteResponseStore::open(
    const std::string& path, const StoreBounds& bounds, const base::Clock& clock, base::Log& log,
    const TenantKeys::Secrets& secrets) {
  TRY_ASSIGN(std::unique_ptr<SqliteFile> database, SqliteFile::open(path, responses_kind()));
  TRY_ASSIGN(std::unique_ptr<TenantKeys> keys, keys_of(*database, path, secrets));
  std::unique_ptr<SqliteResponseStore> store(
      new SqliteResponseStore(std::move(database), std::move(keys), bounds, clock, log));
  if (const Result<void> prepared = store->prepare(); !prepared.ok()) {
    return Error{ErrorCode::kBadConfig, prepared.error().message, ""};
  }
  return std::unique_ptr<ResponseStore>(std::move(store));
}

SqliteResponseStore::SqliteResponseStore(std::unique_ptr<SqliteFile> database,
                                         std::unique_ptr<TenantKeys> keys,
                                         const StoreBounds& bounds, const base::Clock& clock,
                                         base::Log& log)
    : bounds_(bounds),
      clock_(clock),
      log_(log),
      unix_minus_clock_ms_(clock.unix_ms() - clock.now_ns() / 1'000'000),
      database_(std::move(database)),
      keys_(std::move(keys)) {}

// The calendar as it was when the file was opened, and the steady clock since: ages do not jump
// when somebody sets the time.
int64_t SqliteResponseStore::now_ms() const {
  return unix_minus_clock_ms_ + clock_.now_ns() / 1'000'000;
}

SqliteResponseStore::~SqliteResponseStore() = default;

Result<void> SqliteResponseStore::prepare() {
  if (keys_ != nullptr) {
    TRY(encrypt_what_is_not());
    // Where nothing can be written just now, this is left to the next start.
    const Result<void> erased = finish_erasures();
    if (!erased.ok()) log_.error(erased.error().message);
    if (keys_->wrapped_anew() > 0) {
      log_.info(fmt::format("the response store: {} keys are wrapped by the first secret now",
                            keys_->wrapped_anew()));
    }
  }
  TRY_ASSIGN(counts_.entries, database_->number("SELECT count(*) FROM responses"));
  TRY_ASSIGN(counts_.bytes, database_->number("SELECT ifnull(sum(bytes), 0) FROM responses"));
  // Where nothing can be written just now, this is left to the next start.
  TRY(if_it_can_be_written([&] { return keep_unfinished(); }));
  TRY(if_it_can_be_written([&] { return transact([&] { return shrink(); }); }));
  const Result<void> destroyed = destroy_idle_keys();
  if (!destroyed.ok()) log_.error(destroyed.error().message);
  return {};
}

// What a process without secrets has left: all of it in one transaction, or none.
Result<void> SqliteResponseStore::encrypt_what_is_not() {
  TRY_ASSIGN(const bool encrypted, is_encrypted(*database_));
  if (encrypted) return write_anew(*database_);
  TRY(transact([&]() -> Result<void> {
    TRY(encrypt_table("responses"));
    TRY(encrypt_table("unfinished"));
    // Whether a tenant has anything left is asked at every deletion.
    TRY(database_->run("CREATE INDEX owners ON responses (owner)"));
    return mark_encrypted(*database_, *keys_);
  }));
  return write_anew(*database_);
}

Result<void> SqliteResponseStore::encrypt_table(const char* table) {
  const bool has_turn = std::string_view(table) == "responses";
  std::string after;
  for (;;) {
    StoredResponse plain;
    std::string turn;
    {
      Statement row(database_->handle(),
                    fmt::format("SELECT id, owner, previous, body, input, output, {} FROM {} "
                                "WHERE id > ? ORDER BY id LIMIT 1",
                                has_turn ? "turn" : "''", table)
                        .c_str());
      const Step step = row.text(after).step();
      if (step == Step::kFailed) return database_->error("cannot be read");
      if (step == Step::kDone) return {};
      plain = {.id = row.text_at(0), .owner = row.text_at(1), .previous = row.text_at(2)};
      plain.body = row.text_at(3);
      plain.input = row.text_at(4);
      plain.output = row.text_at(5);
      turn = row.text_at(6);
    }
    TRY_ASSIGN(const RowCipher cipher, cipher_for(plain));
    Statement write(database_->handle(),
                    fmt::format("UPDATE {} SET body = ?, input = ?, output = ?{} WHERE id = ?",
                                table, has_turn ? ", turn = ?" : "")
                        .c_str());
    const std::string body = cipher.seal("body", plain.body);
    const std::string input = cipher.seal("input", plain.input);
    const std::string output = cipher.seal("output", plain.output);
    write.bytes(body).bytes(input).bytes(output);
    if (has_turn) turn = cipher.seal("turn", turn);
    if (has_turn) write.bytes(turn);
    if (write.text(plain.id).step() != Step::kDone) return database_->error("cannot be written");
    after = plain.id;
  }
}

// Those whose process ended between a key's end and the rows'.
Result<void> SqliteResponseStore::finish_erasures() {
  TRY_ASSIGN(const std::vector<std::string> destroyed, keys_->destroyed());
  for (const std::string& owner : destroyed) {
    TRY(erase_rows(owner));
    TRY(keys_->forget(owner));
  }
  return {};
}

Result<int64_t> erase_responses(const SqliteFile& database, const std::string& owner) {
  Statement unfinished(database.handle(), "DELETE FROM unfinished WHERE owner = ?");
  if (unfinished.text(owner).step() != Step::kDone) return database.error("cannot be written");
  Statement drop(database.handle(), "DELETE FROM responses WHERE owner = ?");
  if (drop.text(owner).step() != Step::kDone) return database.error("cannot be written");
  return sqlite3_changes64(database.handle());
}

Result<int64_t> SqliteResponseStore::erase_rows(const std::string& owner) {
  int64_t erased = 0;
  TRY(transact([&]() -> Result<void> {
    TRY_ASSIGN(erased, erase_responses(*database_, owner));
    TRY_ASSIGN(counts_.entries, database_->number("SELECT count(*) FROM responses"));
    TRY_ASSIGN(counts_.bytes, database_->number("SELECT ifnull(sum(bytes), 0) FROM responses"));
    return {};
  }));
  TRY(database_->run("PRAGMA wal_checkpoint(TRUNCATE);"));
  return erased;
}

Result<int64_t> SqliteResponseStore::erase(const std::string& owner) {
  std::lock_guard lock(mutex_);
  const auto erased = [&]() -> Result<int64_t> {
    if (keys_ != nullptr) TRY(keys_->destroy(owner));
    TRY_ASSIGN(const int64_t count, erase_rows(owner));
    if (keys_ != nullptr) TRY(keys_->forget(owner));
    return count;
  };
  return noted(erased(), Use::kWrite);
}

Result<void> SqliteResponseStore::destroy_idle_keys() {
  if (keys_ == nullptr) return {};
  TRY_ASSIGN(const std::vector<std::string> owners, keys_->owners());
  for (const std::string& owner : owners) TRY(destroy_key_if_idle(owner));
  return {};
}

Result<void> SqliteResponseStore::destroy_key_if_idle(const std::string& owner) {
  if (keys_ == nullptr) return {};
  for (const char* sql : {"SELECT 1 FROM responses WHERE owner = ? LIMIT 1",
                          "SELECT 1 FROM unfinished WHERE owner = ? LIMIT 1"}) {
    Statement row(database_->handle(), sql);
    const Step step = row.text(owner).step();
    if (step == Step::kFailed) return database_->error("cannot be read");
    if (step == Step::kRow) return {};
  }
  return keys_->retire(owner, *database_);
}

Result<RowCipher> SqliteResponseStore::cipher_for(const StoredResponse& response) {
  if (keys_ == nullptr) return RowCipher();
  TRY_ASSIGN(base::AuthenticatedCipher cipher, keys_->find_or_make(response.owner));
  return RowCipher(std::move(cipher), row_of(response));
}

Result<RowCipher> SqliteResponseStore::cipher_of(const StoredResponse& response) {
  if (keys_ == nullptr) return RowCipher();
  TRY_ASSIGN(std::optional<base::AuthenticatedCipher> cipher, keys_->find(response.owner));
  if (!cipher) return no_such_response(response.id);
  return RowCipher(*std::move(cipher), row_of(response));
}

// Of a row as it lies there.
Result<void> SqliteResponseStore::decrypt(StoredResponse& response, std::string_view turn) {
  TRY_ASSIGN(const RowCipher cipher, cipher_of(response));
  auto body = cipher.open("body", response.body);
  auto input = cipher.open("input", response.input);
  auto output = cipher.open("output", response.output);
  const auto tokens = turn.empty() ? std::string() : cipher.open("turn", turn);
  if (!body || !input || !output || !tokens) return not_decrypted("response", response.id);
  response.body = *std::move(body);
  response.input = *std::move(input);
  response.output = *std::move(output);
  response.turn = tokens_of(*tokens);
  return {};
}

template <typename Work>
Result<void> SqliteResponseStore::if_it_can_be_written(const Work& work) {
  cannot_write_ = false;
  Result<void> done = work();
  return done.ok() || !cannot_write_ ? std::move(done) : Result<void>();
}

// Where a disk is nearly full some uses fail and others do not, and they come with every request: a
// line a minute reports them.
template <typename Done>
Done SqliteResponseStore::noted(Done done, Use use) {
  if (done.ok() || done.error().code != ErrorCode::kIo) return done;
  constexpr int64_t kLogPeriodMs = 60'000;
  ++(use == Use::kRead ? failures_.reads : failures_.writes);
  const int64_t now = now_ms();
  if (!logged_ms_ || now - *logged_ms_ >= kLogPeriodMs) {
    logged_ms_ = now;
    log_.error(fmt::format("the response store: {} ({} reads and {} writes failed so far)",
                           done.error().message, failures_.reads, failures_.writes));
  }
  return done;
}

// Those that a process which ended did not finish are responses from now on. What cannot be
// decrypted stays: its key may come back.
Result<void> SqliteResponseStore::keep_unfinished() {
  std::string after;
  for (;;) {
    StoredResponse left;
    {
      Statement row(database_->handle(),
                    "SELECT id, owner, previous, created_at, body, input, output FROM unfinished "
                    "WHERE id > ? ORDER BY id LIMIT 1");
      const Step step = row.text(after).step();
      if (step == Step::kFailed) return database_->error("cannot be read");
      if (step == Step::kDone) return {};
      left = {.id = row.text_at(0),
              .owner = row.text_at(1),
              .previous = row.text_at(2),
              .created_at = row.number_at(3),
              .body = row.text_at(4),
              .input = row.text_at(5),
              .output = row.text_at(6)};
    }
    after = left.id;
    const Result<void> readable = decrypt(left, "");
    if (!readable.ok()) {
      log_.error(readable.error().code == ErrorCode::kNotFound
                     ? not_decrypted("response", left.id).message
                     : readable.error().message);
      continue;
    }
    Result<void> kept = transact([&] { return put_unlocked(left); });
    if (!kept.ok() && kept.error().code == ErrorCode::kNotFound) {
      left.previous.clear();  // what it went on from has gone meanwhile
      kept = transact([&] { return put_unlocked(left); });
    }
    TRY(kept);
  }
}

Result<void> SqliteResponseStore::forget_unfinished(std::string_view id) {
  Statement forget(database_->handle(), "DELETE FROM unfinished WHERE id = ?");
  if (forget.text(id).step() != Step::kDone) return database_->error("cannot be written");
  return {};
}

Result<void> SqliteResponseStore::put_unfinished(const StoredResponse& as_it_would_end) {
  std::lock_guard lock(mutex_);
  const auto kept = [&]() -> Result<void> {
    TRY_ASSIGN(const RowCipher cipher, cipher_for(as_it_would_end));
    const std::string body = cipher.seal("body", as_it_would_end.body);
    const std::string input = cipher.seal("input", as_it_would_end.input);
    const std::string output = cipher.seal("output", as_it_would_end.output);
    Statement add(database_->handle(),
                  "INSERT OR REPLACE INTO unfinished VALUES (?, ?, ?, ?, ?, ?, ?)");
    add.text(as_it_would_end.id).text(as_it_would_end.owner).text(as_it_would_end.previous);
    add.number(as_it_would_end.created_at);
    add.value(body, cipher.encrypts()).value(input, cipher.encrypts());
    add.value(output, cipher.encrypts());
    return add.step() == Step::kDone ? Result<void>() : database_->error("cannot be written");
  };
  return noted(kept(), Use::kWrite);
}

template <typename Work>
Result<void> SqliteResponseStore::transact(const Work& work) {
  const Counts before = counts_;
  TRY(database_->run("BEGIN IMMEDIATE"));
  Result<void> done = work();
  if (done.ok()) done = database_->run("COMMIT");
  if (done.ok()) return done;
  cannot_write_ = database_->cannot_write();  // before the end has another code
  counts_ = before;
  // It may have ended by itself, as on a full disk.
  static_cast<void>(database_->run("ROLLBACK"));
  return done;
}

Result<void> SqliteResponseStore::put(const StoredResponse& response) {
  std::lock_guard lock(mutex_);
  const auto kept = [&]() -> Result<void> {
    if (stored_bytes(response) > bounds_.bytes_max / 4) {
      TRY(forget_unfinished(response.id));
      return response_too_large(response, bounds_);
    }
    TRY(transact([&]() -> Result<void> {
      TRY(put_unlocked(response));
      return shrink();
    }));
    for (const std::string& owner : std::exchange(dropped_of_, {})) TRY(destroy_key_if_idle(owner));
    return {};
  };
  return noted(kept(), Use::kWrite);
}

Result<void> SqliteResponseStore::put_unlocked(const StoredResponse& response) {
  sqlite3* const handle = database_->handle();
  TRY(forget_unfinished(response.id));
  if (!response.previous.empty()) {
    Statement parent(handle,
                     "UPDATE responses SET children = children + 1 WHERE id = ? AND owner = ?");
    if (parent.text(response.previous).text(response.owner).step() != Step::kDone) {
      return database_->error("cannot be written");
    }
    if (sqlite3_changes(handle) == 0) return no_such_response(response.previous);
  }
  Statement add(handle, "INSERT INTO responses VALUES (?, ?, ?, ?, ?, 1, 0, ?, ?, ?, ?, ?)");
  add.text(response.id).text(response.owner).text(response.previous);
  add.number(response.created_at).number(now_ms()).number(stored_bytes(response));
  TRY_ASSIGN(const RowCipher cipher, cipher_for(response));
  const std::string body = cipher.seal("body", response.body);
  const std::string input = cipher.seal("input", response.input);
  const std::string output = cipher.seal("output", response.output);
  const std::string turn = cipher.seal("turn", bytes_of(response.turn));
  add.value(body, cipher.encrypts()).value(input, cipher.encrypts());
  add.value(output, cipher.encrypts()).bytes(turn);
  if (add.step() != Step::kDone) return database_->error("cannot be written");
  ++counts_.entries;
  counts_.bytes += stored_bytes(response);
  return {};
}

Result<void> SqliteResponseStore::check_visible(const Key& key) {
  Statement seen(database_->handle(),
                 "SELECT 1 FROM responses WHERE id = ? AND owner = ? AND visible AND "
                 "(children > 0 OR touched_at >= ?)");
  const Step step =
      seen.text(key.id).text(key.owner).number(now_ms() - bounds_.age_max_s * 1000).step();
  if (step == Step::kFailed) return database_->error("cannot be read");
  if (step == Step::kDone) return no_such_response(key.id);
  return {};
}

// Notes that it was asked for, if it can be noted: for that alone nobody is refused.
void SqliteResponseStore::touch(const Key& key) {
  Statement touch(database_->handle(), "UPDATE responses SET touched_at = ? WHERE id = ?");
  const bool done = touch.number(now_ms()).text(key.id).step() == Step::kDone;
  static_cast<void>(
      noted(done ? Result<void>() : database_->error("cannot be written"), Use::kWrite));
}

Result<StoredResponse> SqliteResponseStore::read(std::string_view id) {
  Statement row(database_->handle(),
                "SELECT owner, previous, created_at, body, input, output, turn FROM responses "
                "WHERE id = ?");
  const Step step = row.text(id).step();
  if (step == Step::kFailed) return database_->error("cannot be read");
  if (step == Step::kDone) return no_such_response(id);
  StoredResponse response{.id = std::string(id),
                          .owner = row.text_at(0),
                          .previous = row.text_at(1),
                          .created_at = row.number_at(2),
                          .body = row.text_at(3),
                          .input = row.text_at(4),
                          .output = row.text_at(5),
                          .turn = {}};
  TRY(decrypt(response, row.bytes_at(6)));
  return response;
}

Result<StoredResponse> SqliteResponseStore::find(const Key& key) {
  std::lock_guard lock(mutex_);
  const auto found = [&]() -> Result<StoredResponse> {
    TRY(check_visible(key));
    return read(key.id);
  };
  Result<StoredResponse> response = noted(found(), Use::kRead);
  if (response.ok()) touch(key);
  return response;
}

Result<std::vector<StoredResponse>> SqliteResponseStore::history(const Key& key) {
  std::lock_guard lock(mutex_);
  const auto found = [&]() -> Result<std::vector<StoredResponse>> {
    TRY(check_visible(key));
    return read_history(key.id);
  };
  Result<std::vector<StoredResponse>> history = noted(found(), Use::kRead);
  if (history.ok()) touch(key);
  return history;
}

Result<std::vector<StoredResponse>> SqliteResponseStore::read_history(std::string_view last) {
  std::vector<StoredResponse> history;
  int64_t bytes = 0;
  for (std::string id(last); !id.empty();) {
    TRY_ASSIGN(StoredResponse one, read(id));
    bytes += stored_bytes(one);
    if (history.size() == kHistoryMax || bytes > kHistoryBytesMax) return history_too_long(last);
    id = one.previous;
    history.push_back(std::move(one));
  }
  std::reverse(history.begin(), history.end());
  return history;
}

Result<void> SqliteResponseStore::remove(const Key& key) {
  std::lock_guard lock(mutex_);
  TRY(noted(forget_unfinished(key.id), Use::kWrite));
  const auto removed = [&]() -> Result<void> {
    TRY(check_visible(key));
    Statement hide(database_->handle(), "UPDATE responses SET visible = 0 WHERE id = ?");
    if (hide.text(key.id).step() != Step::kDone) return database_->error("cannot be written");
    Statement children(database_->handle(), "SELECT children FROM responses WHERE id = ?");
    if (children.text(key.id).step() != Step::kRow) return database_->error("cannot be read");
    if (children.number_at(0) > 0) return {};
    return drop_leaf(std::string(key.id));
  };
  TRY(noted(transact(removed), Use::kWrite));
  // The log of what was written before the deletion still has its words: it goes with them.
  TRY(noted(database_->run("PRAGMA wal_checkpoint(TRUNCATE);"), Use::kWrite));
  dropped_of_.clear();
  return noted(destroy_key_if_idle(std::string(key.owner)), Use::kWrite);
}

// And those before it that were deleted and kept for its sake.
Result<void> SqliteResponseStore::drop_leaf(std::string id) {
  while (!id.empty()) {
    Statement drop(database_->handle(),
                   "DELETE FROM responses WHERE id = ? RETURNING previous, bytes, owner");
    if (drop.text(id).step() != Step::kRow) return database_->error("cannot be written");
    const std::string previous = drop.text_at(0);
    counts_.bytes -= drop.number_at(1);
    if (keys_ != nullptr) dropped_of_.insert(drop.text_at(2));
    --counts_.entries;
    if (drop.step() != Step::kDone) return database_->error("cannot be written");
    if (previous.empty()) return {};
    Statement parent(database_->handle(),
                     "UPDATE responses SET children = children - 1 WHERE id = ? "
                     "RETURNING children = 0 AND NOT visible");
    if (parent.text(previous).step() != Step::kRow) return database_->error("cannot be written");
    id = parent.number_at(0) != 0 ? previous : "";
    if (parent.step() != Step::kDone) return database_->error("cannot be written");
  }
  return {};
}

Result<void> SqliteResponseStore::shrink() {
  const int64_t oldest_ms = now_ms() - bounds_.age_max_s * 1000;
  for (;;) {
    std::string id;
    {
      Statement last(database_->handle(),
                     "SELECT id, touched_at FROM responses WHERE children = 0 "
                     "ORDER BY touched_at LIMIT 1");
      const Step step = last.step();
      if (step == Step::kFailed) return database_->error("cannot be read");
      const bool too_much = step == Step::kRow &&
                            (counts_.entries > bounds_.entries_max ||
                             counts_.bytes > bounds_.bytes_max || last.number_at(1) < oldest_ms);
      if (!too_much) return {};
      id = last.text_at(0);
    }
    TRY(drop_leaf(std::move(id)));
  }
}

ResponseStore::Counts SqliteResponseStore::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

ResponseStore::Failures SqliteResponseStore::failures() const {
  std::lock_guard lock(mutex_);
  return failures_;
}

}  // namespace pelton::store
