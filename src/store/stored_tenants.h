// What tenants have in a store that no server has open: a file of responses, or a folder of files
// and batches. Without secrets: a tenant is erased by destroying its key, which needs none. Any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace pelton::store {

struct StoredTenant {
  std::string name;     // empty: of a server without keys
  int64_t entries = 0;  // responses, or files and batches
  bool is_encrypted = false;
  bool has_key = false;  // of its own; encrypted without one, nobody can read it
};

// By name. Errors: kBadConfig: neither kind of store is there, or another process has it; kIo.
Result<std::vector<StoredTenant>> list_stored_tenants(const std::string& path);
// All of a tenant, and the key that it was encrypted with, first: returns how many entries. Errors:
// those; then its key may be destroyed and its rows still there: erasing again goes on with them.
Result<int64_t> erase_stored_tenant(const std::string& path, const std::string& name);

}  // namespace pelton::store
