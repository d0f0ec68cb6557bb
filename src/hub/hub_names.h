// Which names out of a user's mouth or a hub's answer may become parts of a path on this machine.
// Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::hub {

// "openai/gpt-oss-20b" or "gpt2". Error: kInvalidArgument.
Result<void> check_model_id(std::string_view id);

// "main", "v1.0", "refs/pr/1", a commit. Error: kInvalidArgument.
Result<void> check_revision(std::string_view revision);

// A file's path inside a repository: relative, no "." or "..", no control characters. Error:
// kBadCheckpoint.
Result<void> check_file_path(std::string_view path);

// 40 hexadecimal digits.
bool is_commit(std::string_view text);
// 64 hexadecimal digits.
bool is_sha256(std::string_view text);
// What may name a blob: letters, digits and "._-", no leading dot.
bool is_blob_name(std::string_view text);

// In quotes, escaped, cut: fit for a message.
std::string shown(std::string_view foreign);

}  // namespace pelton::hub
