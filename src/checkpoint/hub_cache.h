// Finds a model that the Hugging Face tools have downloaded. Only looks; never downloads. The
// environment is passed in; checkpoint.h's resolve_model() passes the process's own. Any thread.
#pragma once

#include <string>

#include "base/result.h"

namespace pelton::checkpoint {

// Environment variables, empty where not set.
struct HubEnvironment {
  std::string hf_hub_cache;    // HF_HUB_CACHE
  std::string hf_home;         // HF_HOME
  std::string xdg_cache_home;  // XDG_CACHE_HOME
  std::string home;            // HOME
};

// $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub,
// whichever comes first; empty if none of the variables is set.
std::string hub_cache_folder(const HubEnvironment& environment);

// What people call OpenAI's models, as the hub calls them: "gpt-oss-20b" is "openai/gpt-oss-20b".
// Any other name is itself.
std::string hub_id_of(const std::string& model);

// A folder as it is; otherwise a hub id, whose snapshot that refs/main names, or another revision:
// a branch or tag, or a snapshot's own name. Errors: kNotFound, with the folder that was searched
// and the command that gets the model; kInvalidArgument: a revision of a folder, or one that is no
// name.
Result<std::string> resolve_model(const std::string& model, const HubEnvironment& environment,
                                  const std::string& revision);

}  // namespace pelton::checkpoint
