// Tools that the server runs itself, which models call by names of their training.
#pragma once

#include <string_view>

namespace pelton::api {

struct BuiltinTools {
  bool browser = false;  // "web_search" of the Responses API
  bool python = false;   // "code_interpreter"

  bool any() const { return browser || python; }
  // The one that a tool of this type means, if it is among `offered`. False: it is none of them.
  bool add(std::string_view type, BuiltinTools offered) {
    const bool is_browser = offered.browser && type.starts_with("web_search");
    const bool is_python = offered.python && type == "code_interpreter";
    browser |= is_browser;
    python |= is_python;
    return is_browser || is_python;
  }
};

}  // namespace pelton::api
