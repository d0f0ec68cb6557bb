#include "store/tenant_keys.h"

#include <filesystem>

#include <fmt/format.h>

#include "base/digest.h"
#include "store/sqlite_file.h"

namespace pelton::store {
namespace {

using base::AuthenticatedCipher;
using Step = Statement::Step;

// An empty key is one that was destroyed.
constexpr const char* kSchema = R"(
CREATE TABLE keys (
  owner TEXT PRIMARY KEY NOT NULL,
  wrapped BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE master (
  identity TEXT NOT NULL,
  proof BLOB NOT NULL
);
PRAGMA application_id = 1348815717;
PRAGMA user_version = 1;
)";

constexpr SqliteFile::Kind kKind{.what = "tenants' keys",
                                 .application_id = 0x50654b65,  // "PeKe"
                                 .format = 1,
                                 .schema = kSchema};

constexpr size_t kKeyBytes = 32;
constexpr std::string_view kProofContext = "pelton store identity";

Error bad(std::string message) {
  return {ErrorCode::kBadConfig, std::move(message), "store-key-file"};
}

}  // namespace

std::string row_name(std::initializer_list<std::string_view> parts) {
  std::string name;
  for (const std::string_view part : parts) name += fmt::format("{}:{}", part.size(), part);
  return name;
}

std::string RowCipher::seal(std::string_view column, std::string_view text) const {
  if (!cipher_) return std::string(text);
  return cipher_->seal({.text = text, .context = row_name({row_, column})});
}

std::optional<std::string> RowCipher::open(std::string_view column, std::string_view bytes) const {
  if (!cipher_) return std::string(bytes);
  return cipher_->open({.bytes = bytes, .context = row_name({row_, column})});
}

TenantKeys::TenantKeys(std::string path, std::unique_ptr<SqliteFile> file)
    : path_(std::move(path)), file_(std::move(file)) {}

TenantKeys::~TenantKeys() = default;

Result<std::unique_ptr<TenantKeys>> TenantKeys::open_or_make(const std::string& path,
                                                             const Secrets& secrets) {
  TRY_ASSIGN(std::unique_ptr<SqliteFile> file, SqliteFile::open(path, kKind));
  std::unique_ptr<TenantKeys> keys(new TenantKeys(path, std::move(file)));
  TRY(keys->prepare(secrets));
  return keys;
}

Result<std::unique_ptr<TenantKeys>> TenantKeys::open(const std::string& path,
                                                     const Secrets& secrets) {
  std::error_code unknown;
  if (std::filesystem::exists(path, unknown)) return open_or_make(path, secrets);
  return bad(fmt::format("{} is missing: without it what was encrypted cannot be read", path));
}

Result<void> TenantKeys::prepare(const Secrets& secrets) {
  // A key that is lost with the machine's power would take with it what it encrypted.
  TRY(file_->run("PRAGMA synchronous = FULL"));
  std::string proof;
  {
    Statement row(file_->handle(), "SELECT identity, proof FROM master");
    const Step step = row.step();
    if (step == Step::kFailed) return file_->error("cannot be read");
    if (step == Step::kRow) {
      identity_ = row.text_at(0);
      proof = row.text_at(1);
    }
  }
  if (secrets.empty()) return {};
  if (identity_.empty()) return begin_new(secrets.front());
  for (size_t i = 0; i < secrets.size(); ++i) {
    const AuthenticatedCipher cipher(secrets[i]);
    if (cipher.open({.bytes = proof, .context = kProofContext}) != identity_) continue;
    return wrap_anew(secrets, i);
  }
  return bad(
      fmt::format("{} was made with another secret than --store-key-file names; nothing "
                  "was changed",
                  path_));
}

Result<void> TenantKeys::begin_new(const std::string& secret) {
  identity_ = base::sha256(base::random_bytes(kKeyBytes)).substr(0, 32);
  master_.emplace(secret);
  const std::string proof = master_->seal({.text = identity_, .context = kProofContext});
  Statement add(file_->handle(), "INSERT INTO master VALUES (?, ?)");
  if (add.text(identity_).blob(proof.data(), proof.size()).step() != Step::kDone) {
    return file_->error("cannot be written");
  }
  return settle();
}

// All at once or none: afterwards the secret that was is good for nothing.
Result<void> TenantKeys::wrap_anew(const Secrets& secrets, size_t known_by) {
  master_.emplace(secrets[known_by]);
  if (known_by == 0) return {};
  const AuthenticatedCipher first(secrets.front());
  TRY_ASSIGN(const std::vector<std::string> all, owners());
  TRY(file_->run("BEGIN IMMEDIATE"));
  const auto work = [&]() -> Result<void> {
    for (const std::string& owner : all) {
      Statement row(file_->handle(), "SELECT wrapped FROM keys WHERE owner = ?");
      if (row.text(owner).step() != Step::kRow) return file_->error("cannot be read");
      const auto key = master_->open({.bytes = row.bytes_at(0), .context = context_of(owner)});
      if (!key) return bad(fmt::format("{}: the key of tenant '{}' is damaged", path_, owner));
      TRY(write(owner, first.seal({.text = *key, .context = context_of(owner)})));
      ++wrapped_anew_;
    }
    const std::string proof = first.seal({.text = identity_, .context = kProofContext});
    Statement update(file_->handle(), "UPDATE master SET proof = ?");
    if (update.blob(proof.data(), proof.size()).step() != Step::kDone) {
      return file_->error("cannot be written");
    }
    return {};
  };
  Result<void> done = work();
  if (done.ok()) done = file_->run("COMMIT");
  if (!done.ok()) {
    static_cast<void>(file_->run("ROLLBACK"));
    return done;
  }
  master_.emplace(secrets.front());
  last_.reset();
  return settle();
}

std::string TenantKeys::context_of(const std::string& owner) const {
  return row_name({"pelton store key", identity_, owner});
}

Result<void> TenantKeys::write(const std::string& owner, std::string_view wrapped) {
  Statement put(file_->handle(), "INSERT OR REPLACE INTO keys VALUES (?, ?)");
  if (put.text(owner).blob(wrapped.data(), wrapped.size()).step() == Step::kDone) return {};
  return file_->error("cannot be written");
}

Result<void> TenantKeys::settle() const {
  return file_->run("PRAGMA wal_checkpoint(TRUNCATE);");
}

Result<std::optional<AuthenticatedCipher>> TenantKeys::find(const std::string& owner) {
  using Found = std::optional<AuthenticatedCipher>;
  if (last_ && last_->first == owner) return Found(last_->second);
  Statement row(file_->handle(),
                "SELECT wrapped FROM keys WHERE owner = ? AND length(wrapped) > 0");
  const Step step = row.text(owner).step();
  if (step == Step::kFailed) return file_->error("cannot be read");
  if (step == Step::kDone || !master_) return Found();
  const auto key = master_->open({.bytes = row.bytes_at(0), .context = context_of(owner)});
  if (!key) {
    return Error{ErrorCode::kIo, fmt::format("{}: a tenant's key is damaged", path_), ""};
  }
  // One cipher is replaced by another as a whole: its secret is constant.
  last_.reset();
  last_.emplace(owner, AuthenticatedCipher(*key));
  return Found(last_->second);
}

Result<AuthenticatedCipher> TenantKeys::find_or_make(const std::string& owner) {
  TRY_ASSIGN(const std::optional<AuthenticatedCipher> known, find(owner));
  if (known) return *known;
  {
    Statement mark(file_->handle(), "SELECT 1 FROM keys WHERE owner = ? AND length(wrapped) = 0");
    const Step step = mark.text(owner).step();
    if (step == Step::kFailed) return file_->error("cannot be read");
    if (step == Step::kRow) {
      return Error{
          ErrorCode::kIo,
          fmt::format("{}: an erasure is not finished; the next start goes on with it", path_), ""};
    }
  }
  const std::string key = base::random_bytes(kKeyBytes);
  TRY(write(owner, master_->seal({.text = key, .context = context_of(owner)})));
  TRY(settle());
  last_.reset();
  last_.emplace(owner, AuthenticatedCipher(key));
  return last_->second;
}

Result<std::vector<std::string>> TenantKeys::owners_where(const char* condition) const {
  Statement rows(file_->handle(),
                 fmt::format("SELECT owner FROM keys WHERE {}", condition).c_str());
  std::vector<std::string> owners;
  Step step = rows.step();
  for (; step == Step::kRow; step = rows.step()) owners.push_back(rows.text_at(0));
  if (step == Step::kFailed) return file_->error("cannot be read");
  return owners;
}

Result<std::vector<std::string>> TenantKeys::owners() const {
  return owners_where("length(wrapped) > 0");
}

Result<std::vector<std::string>> TenantKeys::destroyed() const {
  return owners_where("length(wrapped) = 0");
}

Result<void> TenantKeys::destroy(const std::string& owner) {
  last_.reset();
  TRY(write(owner, ""));
  return settle();
}

Result<void> TenantKeys::forget(const std::string& owner) {
  Statement drop(file_->handle(), "DELETE FROM keys WHERE owner = ? AND length(wrapped) = 0");
  if (drop.text(owner).step() == Step::kDone) return {};
  return file_->error("cannot be written");
}

Result<void> TenantKeys::retire(const std::string& owner, const SqliteFile& database) {
  TRY(database.run("PRAGMA wal_checkpoint(TRUNCATE);"));
  TRY(destroy(owner));
  return forget(owner);
}

std::string keys_path(const std::string& store_path) {
  std::error_code unknown;
  std::string path = std::filesystem::weakly_canonical(store_path, unknown).string();
  if (unknown || path.empty()) path = store_path;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path + ".keys";
}

Result<bool> is_encrypted(const SqliteFile& database) {
  TRY_ASSIGN(const int64_t format, database.number("PRAGMA user_version"));
  return format == kEncryptedFormat;
}

Result<std::unique_ptr<TenantKeys>> keys_of(const SqliteFile& database, const std::string& path,
                                            const TenantKeys::Secrets& secrets) {
  TRY_ASSIGN(const bool encrypted, is_encrypted(database));
  if (secrets.empty()) {
    if (!encrypted) return std::unique_ptr<TenantKeys>();
    return bad(fmt::format("{} is encrypted: --store-key-file has to name its secret", path));
  }
  if (!encrypted) return TenantKeys::open_or_make(keys_path(path), secrets);
  TRY_ASSIGN(std::unique_ptr<TenantKeys> keys, TenantKeys::open(keys_path(path), secrets));
  Statement row(database.handle(), "SELECT identity FROM encryption");
  if (row.step() != Step::kRow) return database.error("cannot be read");
  if (row.bytes_at(0) == keys->identity()) return keys;
  return bad(fmt::format("{} holds the keys of another store than {}", keys_path(path), path));
}

Result<void> mark_encrypted(const SqliteFile& database, const TenantKeys& keys) {
  TRY(
      database.run("CREATE TABLE encryption (identity TEXT NOT NULL, is_written_anew INTEGER NOT "
                   "NULL); PRAGMA user_version = 2;"));
  Statement add(database.handle(), "INSERT INTO encryption VALUES (?, 0)");
  if (add.text(keys.identity()).step() == Step::kDone) return {};
  return database.error("cannot be written");
}

Result<void> write_anew(const SqliteFile& database) {
  TRY_ASSIGN(const int64_t is_done, database.number("SELECT is_written_anew FROM encryption"));
  if (is_done != 0) return {};
  return database.run(
      "VACUUM; PRAGMA wal_checkpoint(TRUNCATE); UPDATE encryption SET is_written_anew = 1;");
}

Error not_decrypted(std::string_view what, std::string_view id) {
  return {ErrorCode::kIo,
          fmt::format("the {} '{}' cannot be decrypted: it is damaged, or its tenant's key is "
                      "another one",
                      what, id.substr(0, 64)),
          ""};
}

}  // namespace pelton::store
