// A chain drawn: for people as text, for Graphviz as DOT. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "chain/chain.h"

namespace pelton::chain {

// What the step waits for: "input", and steps by name.
std::vector<std::string> needs_of(const Chain& chain, const Step& step);

// A line for each step in the order in which they can run, with what it needs and gives:
//
//   input: question (string)
//   1 find     builtin:rank                     needs embed      gives object {items, ...}
//   output: answer (string), streamed from 'answer'
std::string graph_text(const Chain& chain);
// "digraph ...", for `dot -Tsvg`.
std::string graph_dot(const Chain& chain);

}  // namespace pelton::chain
