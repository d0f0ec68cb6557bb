// What clients call the models that a person names by folders and hub ids. Pure, but for a look at
// whether a folder is there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace pelton::node {

struct NamedModel {
  std::string model;                 // a folder or a hub id
  std::string id;                    // as /v1/models lists it
  std::vector<std::string> aliases;  // other names it answers to
};

// "openai/gpt-oss-20b" stays; a folder is called by its last part, one that is reached by a link by
// the link's. Its aliases are what else it may
// be called: the folder as it was given, the hub id that a short name stands for.
NamedModel name_model(const std::string& model);

struct GivenNames {
  std::vector<std::string> models;        // MODEL ...
  std::vector<std::string> served_names;  // of the only one, in place of all others
  std::vector<std::string> aliases;       // "NAME=MODEL", by the model as it is given or by its id
};
// In the order given; no two have a name in common. Errors: kInvalidArgument, with the flag.
Result<std::vector<NamedModel>> name_models(const GivenNames& given);

// Of several models each has a step log of its own: FILE.NAME.
std::string step_log_of(const std::string& file, const std::string& id, bool is_only_model);

}  // namespace pelton::node
