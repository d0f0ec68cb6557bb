// Merge patches of JSON (RFC 7396) on a configuration: of single keys, whatever else the file says.
// The text keeps its comments, its order and every line of a key that stays; an object in which a
// key cannot be distinguished by its lines is written anew, but for the comment above it. Whether
// what comes of it is a configuration is not looked at here. Pure.
//
//   {"gateway": {"retries": 2}, "pool": {"box": {"scale": {"max": 4}}, "old": null}}
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "gateway/config_edit.h"

namespace pelton::gateway {

// Of config_json() (gateway/config_json.h); objects that it adds stand behind the last one. The
// text is read once, and the work is n log n in the bytes of both. Errors: kInvalidArgument, it is
// no such patch; kBadConfig, the text is to be edited as a whole (config_parts()).
Result<std::string> patched_config(std::string_view text, const std::string& file,
                                   const Json& patch);
// Of one object, which is there. Errors: as above, and kNotFound.
Result<std::string> patched_object(std::string_view text, const std::string& file,
                                   const ConfigPlace& place, const Json& patch);

// RFC 7396, 2: what is null goes, objects are merged, all else is replaced.
Json merged_json(Json target, const Json& patch);

}  // namespace pelton::gateway
