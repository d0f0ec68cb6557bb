// Tools that the server runs itself, which models call by names of their training.
#pragma once

namespace pelton::api {

struct BuiltinTools {
  bool browser = false;  // "web_search" of the Responses API
  bool python = false;   // "code_interpreter"

  bool any() const { return browser || python; }
};

}  // namespace pelton::api
