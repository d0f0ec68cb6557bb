// Compares a checkpoint's files with the hashes that are known for them: a file of the Hugging Face
// cache is named for its SHA-256, one that `pelton pack` made has that of its data in its header,
// and those of the published gpt-oss-20b are listed here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace pelton::checkpoint {

struct FileHash {
  std::string path;
  int64_t bytes = 0;
  int64_t begin = 0;     // of what is hashed, up to the end
  std::string expected;  // in lower-case hex; empty: nobody says
  std::string origin;    // who says: "the Hugging Face cache", "the file's own header"
  std::string found;     // empty if not computed, as there is nothing to compare with
  bool damaged() const { return !expected.empty() && expected != found; }
};

// The SHA-256 of a published file by its name and size; nothing if unknown.
std::optional<std::string_view> published_hash(std::string_view file_name, int64_t bytes);

// Every file of weights, hashed where there is something to compare with. Errors: kIo.
Result<std::vector<FileHash>> check_file_hashes(const Checkpoint& checkpoint,
                                                base::FunctionRef<void(int64_t, int64_t)> progress);

}  // namespace pelton::checkpoint
