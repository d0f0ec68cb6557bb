// Copies of weights that serve --weights-from and weights mirror have made, as verbs show and
// delete them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "weights/copies.h"

namespace pelton::apps {

// "FOLDER   12.8 GiB  from URL"; with its end of line.
std::string copy_row(const weights::Copy& copy);
Json copy_json(const weights::Copy& copy);
// A model's name as one part of a path, "openai--gpt-oss-20b": its copy's, before the digest.
std::string copy_name(std::string model);
// By what it was fetched from, its folder, or the model's name that a server has given it.
bool is_copy_of(const weights::Copy& copy, std::string_view model);
// weights::list_copies'. Errors: kNotFound where there is no such folder, nor one that was begun.
Result<std::vector<weights::Copy>> copies_in(const std::string& folder);
// Deletes it, and says so on stderr; what somebody else has put there is named and stays. Errors:
// erase_copy's.
Result<void> erase_kept_copy(const std::string& folder);

}  // namespace pelton::apps
