#include "store/stored_tenants.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "store/sqlite_file.h"
#include "store/store_kinds.h"
#include "store/tenant_keys.h"

namespace pelton::store {
namespace {

using Step = Statement::Step;

struct Opened {
  bool is_folder = false;
  std::unique_ptr<SqliteFile> database;
  std::unique_ptr<TenantKeys> keys;  // null: it is not encrypted
};

Result<Opened> open(const std::string& path) {
  Opened opened;
  std::error_code unknown;
  opened.is_folder = std::filesystem::is_directory(path, unknown);
  const std::string file = opened.is_folder ? path + "/batches.sqlite" : path;
  if (!std::filesystem::exists(file, unknown)) {
    return Error{
        ErrorCode::kBadConfig,
        fmt::format("{} is neither a file of --response-store nor a folder of --batches", path),
        ""};
  }
  TRY_ASSIGN(opened.database,
             SqliteFile::open(file, opened.is_folder ? batches_kind() : responses_kind()));
  TRY_ASSIGN(const bool encrypted, is_encrypted(*opened.database));
  if (!encrypted) return opened;
  TRY_ASSIGN(opened.keys, TenantKeys::open(keys_path(path), {}));
  return opened;
}

Result<std::vector<StoredTenant>> tenants_of(const Opened& opened) {
  std::map<std::string, StoredTenant> tenants;
  Statement rows(opened.database->handle(),
                 opened.is_folder ? "SELECT owner, count(*) FROM (SELECT owner FROM files UNION "
                                    "ALL SELECT owner FROM batches) GROUP BY owner"
                                  : "SELECT owner, count(*) FROM responses GROUP BY owner");
  Step step = rows.step();
  for (; step == Step::kRow; step = rows.step()) {
    const std::string name = rows.text_at(0);
    tenants[name] = {
        .name = name, .entries = rows.number_at(1), .is_encrypted = opened.keys != nullptr};
  }
  if (step == Step::kFailed) return opened.database->error("cannot be read");
  if (opened.keys != nullptr) {
    TRY_ASSIGN(const std::vector<std::string> owners, opened.keys->owners());
    for (const std::string& owner : owners) {
      tenants[owner].name = owner;
      tenants[owner].is_encrypted = true;
      tenants[owner].has_key = true;
    }
  }
  std::vector<StoredTenant> all;
  for (auto& [name, tenant] : tenants) all.push_back(std::move(tenant));
  return all;
}

}  // namespace

Result<std::vector<StoredTenant>> list_stored_tenants(const std::string& path) {
  TRY_ASSIGN(const Opened opened, open(path));
  return tenants_of(opened);
}

Result<int64_t> erase_stored_tenant(const std::string& path, const std::string& name) {
  TRY_ASSIGN(const Opened opened, open(path));
  TRY_ASSIGN(const std::vector<StoredTenant> tenants, tenants_of(opened));
  if (std::ranges::find(tenants, name, &StoredTenant::name) == tenants.end()) {
    return Error{
        ErrorCode::kNotFound,
        fmt::format("{} has nothing of a tenant '{}'; `pelton store ls` names those it has", path,
                    name),
        "tenant"};
  }
  if (opened.keys != nullptr) TRY(opened.keys->destroy(name));
  TRY(opened.database->run("BEGIN IMMEDIATE"));
  const Result<int64_t> erased = opened.is_folder ? erase_batches(*opened.database, path, name)
                                                  : erase_responses(*opened.database, name);
  if (!erased.ok()) {
    static_cast<void>(opened.database->run("ROLLBACK"));
    return erased.error();
  }
  // What the log still has of it goes with it.
  TRY(opened.database->run("COMMIT; PRAGMA wal_checkpoint(TRUNCATE);"));
  if (opened.keys != nullptr) TRY(opened.keys->forget(name));
  return *erased;
}

}  // namespace pelton::store
