// GET /v1/videos of several workers as one list: what each says of its own, put in order. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::gateway {

struct VideoQuery {
  int64_t limit = 20;
  std::string after;  // the id of the last one that is known already; empty: none is
  bool oldest_first = false;
};
// Errors: kInvalidArgument, with the parameter.
Result<VideoQuery> read_video_query(std::string_view query);

// OpenAI's list of those that `shows` lets through. `bodies`: of workers' lists. Errors: kIo: one
// is no list.
Result<std::string> video_list_body(const std::vector<std::string>& bodies, const VideoQuery& query,
                                    const std::function<bool(const std::string& id)>& shows);

}  // namespace pelton::gateway
