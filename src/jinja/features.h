// What a template makes use of, by name: the variables that it takes from outside, and the filters,
// tests, functions, methods and statements in it. For `pelton inspect`. Plain values; any thread.
//
//   {% for m in messages %}{{ m.role | upper }}{% endfor %}
//   -> variables {messages}, filters {upper}, statements {for}
#pragma once

#include <set>
#include <string>
#include <vector>

#include "jinja/syntax_tree.h"

namespace pelton::jinja {

struct Features {
  std::set<std::string, std::less<>> variables;
  std::set<std::string, std::less<>> filters;
  std::set<std::string, std::less<>> tests;
  std::set<std::string, std::less<>> functions;  // of the environment; a template's own are macros
  std::set<std::string, std::less<>> methods;
  std::set<std::string, std::less<>> statements;
  // Every name that an expression reads, also one that the template sets itself where it is not
  // given ({% if not tools is defined %}{% set tools = none %}{% endif %}).
  std::set<std::string, std::less<>> names;
};

Features features_of(const std::vector<Statement>& body);

}  // namespace pelton::jinja
