// The body of POST /admin/models: which model an operator wants to be loaded, and how.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace pelton::api {

struct LoadModelRequest {
  std::string model;  // a folder or a hub id
  std::string name;   // what clients call it; empty: not given, the folder's or hub id
  std::vector<std::string> aliases;  // other names
  bool wait = true;                  // the answer comes when it has been loaded
  // What else the body says, of this model alone: a flag's name and its text, "max_model_len" and
  // "32768". Which there are is the loading side's business.
  std::vector<std::pair<std::string, std::string>> options;
};

// Errors: kInvalidArgument with the field.
Result<LoadModelRequest> parse_load_model_request(std::string_view body);

}  // namespace pelton::api
