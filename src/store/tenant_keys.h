// The keys that a store's contents are encrypted with, one for each tenant, in a file of their own
// beside the store. A secret that lies elsewhere wraps them. Who deletes a tenant's key makes all
// that was encrypted with it unreadable, wherever copies of the store lie. Owned by its store; one
// thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/authenticated_cipher.h"
#include "base/result.h"

namespace pelton::store {

class SqliteFile;

// Of one row: its columns are bound to the row and to their names. Immutable; any thread.
class RowCipher {
 public:
  // Leaves texts as they are.
  RowCipher() = default;
  // `row`: what the row is, as row_name() makes it.
  RowCipher(base::AuthenticatedCipher cipher, std::string row)
      : cipher_(std::move(cipher)), row_(std::move(row)) {}

  bool encrypts() const { return cipher_.has_value(); }
  std::string seal(std::string_view column, std::string_view text) const;
  // Nothing: another row's, another key's, or changed since.
  std::optional<std::string> open(std::string_view column, std::string_view bytes) const;

 private:
  std::optional<base::AuthenticatedCipher> cipher_;
  std::string row_;
};

// Of several texts one, from which each could be made again.
std::string row_name(std::initializer_list<std::string_view> parts);

class TenantKeys {
 public:
  // Keys are wrapped by the first; those that another one wraps are wrapped anew. Empty: keys can
  // be deleted and not used.
  using Secrets = std::vector<std::string>;

  // Makes the file if there is none. Errors: kBadConfig: another kind of file, damaged, another
  // process has it, or none of the secrets is the one it was made with; kIo.
  static Result<std::unique_ptr<TenantKeys>> open_or_make(const std::string& path,
                                                          const Secrets& secrets);
  // Also kBadConfig: there is none.
  static Result<std::unique_ptr<TenantKeys>> open(const std::string& path, const Secrets& secrets);
  ~TenantKeys();
  TenantKeys(const TenantKeys&) = delete;
  TenantKeys& operator=(const TenantKeys&) = delete;

  // The file's own, which the store whose keys they are remembers.
  const std::string& identity() const { return identity_; }
  // How many keys were wrapped anew when it was opened.
  int64_t wrapped_anew() const { return wrapped_anew_; }

  // Nothing: this tenant has none. Errors: kIo.
  Result<std::optional<base::AuthenticatedCipher>> find(const std::string& owner);
  // One that is new is on the disk when this returns. Errors: kIo, also while an erasure of what
  // this owner had is not finished.
  Result<base::AuthenticatedCipher> find_or_make(const std::string& owner);
  Result<std::vector<std::string>> owners() const;

  // From its return on nobody has the key, whatever happens to the process; that it is destroyed
  // is remembered until forget(), when its contents are deleted too. Errors: kIo.
  Result<void> destroy(const std::string& owner);
  Result<std::vector<std::string>> destroyed() const;
  Result<void> forget(const std::string& owner);
  // Both, of one whose last row has been deleted from `database`: what was deleted is on the disk
  // first. Rows that came back with the machine's power would have no key. Errors: kIo.
  Result<void> retire(const std::string& owner, const SqliteFile& database);

 private:
  TenantKeys(std::string path, std::unique_ptr<SqliteFile> file);
  Result<void> prepare(const Secrets& secrets);
  Result<void> begin_new(const std::string& secret);
  Result<void> wrap_anew(const Secrets& secrets, size_t known_by);
  Result<void> write(const std::string& owner, std::string_view wrapped);
  Result<std::vector<std::string>> owners_where(const char* condition) const;
  // What was written is on the disk, and what it replaced is overwritten.
  Result<void> settle() const;
  std::string context_of(const std::string& owner) const;

  const std::string path_;
  const std::unique_ptr<SqliteFile> file_;
  std::string identity_;
  std::optional<base::AuthenticatedCipher> master_;
  int64_t wrapped_anew_ = 0;
  // The tenant that was asked for last.
  std::optional<std::pair<std::string, base::AuthenticatedCipher>> last_;
};

// What a store's database is with keys: format 2, and the name of its file of keys in a table.
inline constexpr int64_t kEncryptedFormat = 2;

// The keys of the store at `path`, whose `database` is open: null where it is not encrypted and
// shall not be. Where it is not and shall be, mark_encrypted() belongs into the transaction that
// encrypts it. Errors: kBadConfig: it is encrypted and `secrets` does not open it, or its keys are
// missing or another store's; kIo.
Result<std::unique_ptr<TenantKeys>> keys_of(const SqliteFile& database, const std::string& path,
                                            const TenantKeys::Secrets& secrets);
Result<bool> is_encrypted(const SqliteFile& database);
Result<void> mark_encrypted(const SqliteFile& database, const TenantKeys& keys);
// Behind it texts as they were lie in no page of the database and not in its log. Nothing is done
// where that has been done. Errors: kIo.
Result<void> write_anew(const SqliteFile& database);
std::string keys_path(
    const std::string& store_path);  // beside what it names, however that is written
Error not_decrypted(std::string_view what, std::string_view id);

}  // namespace pelton::store
