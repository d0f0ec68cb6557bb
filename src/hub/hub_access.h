// What the environment says about a hub: where it is, who asks, whether to ask at all. A value read
// once; the environment is passed in.
#pragma once

#include <string>

#include "base/result.h"

namespace pelton::hub {

// Environment variables, empty where not set.
struct AccessEnvironment {
  std::string hf_token;        // HF_TOKEN
  std::string hf_token_path;   // HF_TOKEN_PATH
  std::string hf_home;         // HF_HOME
  std::string xdg_cache_home;  // XDG_CACHE_HOME
  std::string home;            // HOME
  std::string hf_endpoint;     // HF_ENDPOINT
  std::string hf_hub_offline;  // HF_HUB_OFFLINE
  std::string hf_hub_cache;    // HF_HUB_CACHE

  static AccessEnvironment of_process();
};

struct HubAccess {
  std::string endpoint;  // without a slash at the end
  std::string token;     // empty: none
  bool offline = false;
};

// `endpoint` (of a flag) goes before HF_ENDPOINT, which goes before the public hub. The token is
// HF_TOKEN, or stands in HF_TOKEN_PATH, $HF_HOME/token or ~/.cache/huggingface/token. Errors:
// kInvalidArgument for an endpoint that is no URL or a token that no header can hold.
Result<HubAccess> hub_access(const AccessEnvironment& environment, const std::string& endpoint);

// Where models lie, as checkpoint's resolve_model() looks for them; empty if no variable says.
std::string cache_folder(const AccessEnvironment& environment);

}  // namespace pelton::hub
