#include "chain/chain_graph.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pelton::chain {
namespace {

std::string fields_text(const std::vector<Type::Field>& fields) {
  std::vector<std::string> all;
  for (const Type::Field& field : fields) {
    all.push_back(fmt::format("{} ({})", field.name, type_text(field.type)));
  }
  return all.empty() ? "nothing" : fmt::format("{}", fmt::join(all, ", "));
}

bool reads_input(const Step& step) {
  bool reads = false;
  const auto note = [&](std::string_view name, int) { reads = reads || name == "input"; };
  for_each_name(step.with, note);
  if (step.for_each) for_each_name(*step.for_each, note);
  if (step.when) for_each_name(*step.when, note);
  return reads;
}

std::string how_text(const Step& step) {
  std::string text = use_text(step);
  if (step.kind == Step::Kind::kModel && step.endpoint != Endpoint::kChat) {
    text += fmt::format(" ({})", endpoint_name(step.endpoint));
  }
  if (step.for_each) text += fmt::format(", {} at once", step.parallel);
  if (step.when) text += ", perhaps";
  return text;
}

// In DOT's quotes.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "\"";
}

}  // namespace

std::vector<std::string> needs_of(const Chain& chain, const Step& step) {
  std::vector<std::string> needs;
  if (reads_input(step)) needs.emplace_back("input");
  for (const size_t need : step.needs) needs.push_back(chain.steps[need].name);
  return needs;
}

std::string graph_text(const Chain& chain) {
  size_t name_width = 0;
  size_t how_width = 0;
  for (const Step& step : chain.steps) {
    name_width = std::max(name_width, step.name.size());
    how_width = std::max(how_width, how_text(step).size());
  }
  std::string out = fmt::format("input: {}\n", fields_text(chain.input));
  for (size_t i = 0; i < chain.steps.size(); ++i) {
    const Step& step = chain.steps[i];
    const std::vector<std::string> needs = needs_of(chain, step);
    out += fmt::format("{:>3} {:{}}  {:{}}  needs {}; gives {}\n", i + 1, step.name, name_width,
                       how_text(step), how_width,
                       needs.empty() ? "nothing" : fmt::format("{}", fmt::join(needs, ", ")),
                       type_text(step.type));
  }
  out += fmt::format("output: {}", fields_text(chain.output_types));
  if (chain.stream_from) {
    out += fmt::format(", streamed from '{}'", chain.steps[*chain.stream_from].name);
  }
  return out + "\n";
}

std::string graph_dot(const Chain& chain) {
  std::string out = fmt::format("digraph {} {{\n  rankdir=LR;\n", in_quotes(chain.name));
  out += "  \"input\" [shape=oval];\n  \"output\" [shape=oval];\n";
  for (const Step& step : chain.steps) {
    out += fmt::format("  {} [shape=box{}, label={}];\n", in_quotes(step.name),
                       step.when ? ", style=dashed" : "",
                       in_quotes(fmt::format("{}: {}", step.name, how_text(step))));
    for (const std::string& need : needs_of(chain, step)) {
      out += fmt::format("  {} -> {};\n", in_quotes(need), in_quotes(step.name));
    }
    if (step.is_output) out += fmt::format("  {} -> \"output\";\n", in_quotes(step.name));
  }
  return out + "}\n";
}

}  // namespace pelton::chain
