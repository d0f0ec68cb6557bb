// The databases of this room's stores, for what works on one while no server has it. Internal to
// the room. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "store/sqlite_file.h"

namespace pelton::store {

const SqliteFile::Kind& responses_kind();
const SqliteFile::Kind& batches_kind();

// All rows of a tenant, and with them the contents below `folder`/files: how many responses, or
// files and batches. In the caller's transaction. Errors: kIo.
Result<int64_t> erase_responses(const SqliteFile& database, const std::string& owner);
Result<int64_t> erase_batches(const SqliteFile& database, const std::string& folder,
                              const std::string& owner);

}  // namespace pelton::store
