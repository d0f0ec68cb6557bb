// Reads one schema document into a SchemaGraph: keywords, drafts, references. For the length of one
// SchemaGraph::read.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "grammar/compile_budget.h"
#include "grammar/schema_graph.h"

namespace pelton::grammar {

class SchemaReader {
 public:
  SchemaReader(SchemaGraph& graph, CompileBudget& budget) : graph_(graph), budget_(budget) {}
  Result<NodeId> read(const Json& schema);

 private:
  // The drafts whose differences matter, oldest first; kNone: the schema names none.
  enum class Draft { k4, k6, k7, k2019, k2020, kNone };

  // Where a schema stands. The base is that around it: its own identifier may change it.
  struct Place {
    const Json* json = nullptr;
    std::string pointer;
    std::string base;
  };
  struct Waiting {
    NodeId node;
    Place place;
  };

  // Adds what a keyword says to the node. A keyword that says nothing has no reader.
  using Keyword = Result<void> (SchemaReader::*)(SchemaNode&, const Json&, const Place&);
  struct KeywordReader;
  static const std::map<std::string_view, Keyword>& keywords();

  Result<void> find_draft(const Json& schema);
  Result<void> index(const Place& place, int depth);
  Result<NodeId> node_at(Place place);
  Result<SchemaNode> read_node(const Place& place);
  Result<Place> target_of(const std::string& reference, const Place& from);
  Result<Place> follow_pointer(Place from, std::string_view fragment, const Place& asker);
  Result<void> refuse_cycles() const;
  std::string base_of(const Json& json, const std::string& base) const;
  bool ignores_siblings() const { return draft_ <= Draft::k7; }

  Result<NodeId> child(const Json& json, const Place& parent, std::string_view keyword);
  Result<NodeId> child(const Json& json, const Place& parent, std::string_view keyword,
                       std::string_view step);
  Result<std::vector<NodeId>> children(const Json& json, const Place& parent,
                                       std::string_view keyword);
  Result<NodeId> constant(const Json& value, const std::string& pointer, int depth);
  Result<void> add_enum(SchemaNode& node, const Json::Array& values, const std::string& pointer,
                        int depth);
  Result<uint64_t> size(const Json& json, const std::string& pointer) const;
  Result<std::vector<std::string>> names(const Json& json, const std::string& pointer) const;

  Result<void> type(SchemaNode& node, const Json& json, const Place& at);
  Result<void> enum_(SchemaNode& node, const Json& json, const Place& at);
  Result<void> const_(SchemaNode& node, const Json& json, const Place& at);
  Result<void> pattern(SchemaNode& node, const Json& json, const Place& at);
  Result<void> format(SchemaNode& node, const Json& json, const Place& at);
  Result<void> min_length(SchemaNode& node, const Json& json, const Place& at);
  Result<void> max_length(SchemaNode& node, const Json& json, const Place& at);
  Result<void> bounds(SchemaNode& node, const Json& json, const Place& at);
  Result<void> multiple_of(SchemaNode& node, const Json& json, const Place& at);
  Result<void> properties(SchemaNode& node, const Json& json, const Place& at);
  Result<void> pattern_properties(SchemaNode& node, const Json& json, const Place& at);
  Result<void> additional_properties(SchemaNode& node, const Json& json, const Place& at);
  Result<void> property_names(SchemaNode& node, const Json& json, const Place& at);
  Result<void> required(SchemaNode& node, const Json& json, const Place& at);
  Result<void> min_properties(SchemaNode& node, const Json& json, const Place& at);
  Result<void> max_properties(SchemaNode& node, const Json& json, const Place& at);
  Result<void> dependencies(SchemaNode& node, const Json& json, const Place& at);
  Result<void> dependent_required(SchemaNode& node, const Json& json, const Place& at);
  Result<void> dependent_schemas(SchemaNode& node, const Json& json, const Place& at);
  Result<void> unevaluated_properties(SchemaNode& node, const Json& json, const Place& at);
  Result<void> items(SchemaNode& node, const Json& json, const Place& at);
  Result<void> prefix_items(SchemaNode& node, const Json& json, const Place& at);
  Result<void> contains(SchemaNode& node, const Json& json, const Place& at);
  Result<void> min_items(SchemaNode& node, const Json& json, const Place& at);
  Result<void> max_items(SchemaNode& node, const Json& json, const Place& at);
  Result<void> unique_items(SchemaNode& node, const Json& json, const Place& at);
  Result<void> unevaluated_items(SchemaNode& node, const Json& json, const Place& at);
  Result<void> ref(SchemaNode& node, const Json& json, const Place& at);
  Result<void> all_of(SchemaNode& node, const Json& json, const Place& at);
  Result<void> any_of(SchemaNode& node, const Json& json, const Place& at);
  Result<void> one_of(SchemaNode& node, const Json& json, const Place& at);
  Result<void> not_(SchemaNode& node, const Json& json, const Place& at);
  Result<void> if_(SchemaNode& node, const Json& json, const Place& at);
  Result<void> unsupported(SchemaNode& node, const Json& json, const Place& at);

  SchemaGraph& graph_;
  CompileBudget& budget_;
  const Json* document_ = nullptr;
  Draft draft_ = Draft::kNone;
  std::map<std::string, Place> resources_;  // by URI without fragment
  std::map<std::string, Place> anchors_;    // by URI with fragment
  std::unordered_map<const Json*, NodeId> known_;
  std::deque<Waiting> waiting_;
};

}  // namespace pelton::grammar
