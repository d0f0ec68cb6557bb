// Jinja's filters and tests, those that chat templates use and their neighbours.
// docs/chat_templates.md lists them.
#pragma once

#include <string_view>

#include "base/result.h"
#include "jinja/runtime.h"
#include "jinja/value.h"

namespace pelton::jinja {

using Filter = Result<Value> (*)(Runtime& runtime, const Value& value, const Arguments& arguments);
using Test = Result<bool> (*)(Runtime& runtime, const Value& value, const Arguments& arguments);

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

// Null: there is none of that name.
Filter find_filter(std::string_view name);
Filter find_list_filter(std::string_view name);
Test find_test(std::string_view name);

}  // namespace pelton::jinja
