// A chain drawn: for people as text, for Graphviz as DOT. Pure functions.
#pragma once

#include <string>

#include "chain/chain.h"

namespace pelton::chain {

// A line for each step in the order in which they can run, with what it needs and gives:
//
//   input: question (string)
//   1 find     builtin:rank                     needs embed      gives object {items, ...}
//   output: answer (string), streamed from 'answer'
std::string graph_text(const Chain& chain);
// "digraph ...", for `dot -Tsvg`.
std::string graph_dot(const Chain& chain);

}  // namespace pelton::chain
