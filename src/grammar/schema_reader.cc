#include "grammar/schema_reader.h"

#include <algorithm>
#include <array>

#include "grammar/schema_uri.h"

namespace pelton::grammar {
namespace {

constexpr size_t kNodesMax = 60'000;

Error invalid(const std::string& pointer, std::string what) {
  return {ErrorCode::kInvalidArgument, std::move(what), pointer};
}

Error unsupported_at(const std::string& pointer, std::string what) {
  return {ErrorCode::kUnsupported, std::move(what), pointer};
}

// Under which keywords schemas stand: for finding identifiers before anything is read.
enum class Holds { kSchema, kArray, kMap, kSchemaOrArray };
struct Applicator {
  std::string_view keyword;
  Holds holds;
};
constexpr Applicator kApplicators[] = {
    {"additionalItems", Holds::kSchema},
    {"additionalProperties", Holds::kSchema},
    {"allOf", Holds::kArray},
    {"anyOf", Holds::kArray},
    {"contains", Holds::kSchema},
    {"definitions", Holds::kMap},
    {"dependencies", Holds::kMap},
    {"dependentSchemas", Holds::kMap},
    {"$defs", Holds::kMap},
    {"else", Holds::kSchema},
    {"if", Holds::kSchema},
    {"items", Holds::kSchemaOrArray},
    {"not", Holds::kSchema},
    {"oneOf", Holds::kArray},
    {"patternProperties", Holds::kMap},
    {"prefixItems", Holds::kArray},
    {"properties", Holds::kMap},
    {"propertyNames", Holds::kSchema},
    {"then", Holds::kSchema},
    {"unevaluatedItems", Holds::kSchema},
    {"unevaluatedProperties", Holds::kSchema},
};

// A schema that only a deep chain of applicators reaches is as deep as JSON may be.
constexpr int kDepthMax = Json::kDepthMax + 2;

}  // namespace

SchemaGraph::SchemaGraph() {
  nodes_.push_back({});
  nodes_.push_back({.types = 0});
}

NodeId SchemaGraph::add(SchemaNode node) {
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size() - 1);
}

Result<NodeId> SchemaGraph::read(const Json& schema, CompileBudget& budget) {
  return SchemaReader(*this, budget).read(schema);
}

bool SchemaNode::only_all_of() const {
  return types == kAllTypes && constrained == 0 && !has_enum && any_of.empty() && one_of.empty() &&
         not_ == kNoSchema && if_ == kNoSchema && dependent.empty();
}

Result<NodeId> SchemaReader::read(const Json& schema) {
  document_ = &schema;
  TRY(find_draft(schema));
  const Place root = {.json = &schema};
  resources_[""] = root;
  TRY(index(root, 0));
  TRY_ASSIGN(const NodeId id, node_at(root));
  while (!waiting_.empty()) {
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    if (!budget_.step(8) || !budget_.take(sizeof(SchemaNode) + 128) ||
        graph_.nodes_.size() > kNodesMax) {
      return Error{ErrorCode::kDoesNotFit, "the schema is too large", next.place.pointer};
    }
    TRY_ASSIGN(graph_.nodes_[next.node], read_node(next.place));
  }
  TRY(refuse_cycles());
  return id;
}

Result<void> SchemaReader::find_draft(const Json& schema) {
  const Json* named = schema.find("$schema");
  if (named == nullptr) return {};
  if (!named->is_string()) return invalid("/$schema", "$schema must be a string");
  std::string_view uri = named->as_string();
  if (uri.ends_with('#')) uri.remove_suffix(1);
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (uri.starts_with(scheme)) uri.remove_prefix(scheme.size());
  }
  struct Known {
    std::string_view uri;
    Draft draft;
  };
  constexpr Known kKnown[] = {
      {"json-schema.org/draft-04/schema", Draft::k4},
      {"json-schema.org/draft-06/schema", Draft::k6},
      {"json-schema.org/draft-07/schema", Draft::k7},
      {"json-schema.org/draft/2019-09/schema", Draft::k2019},
      {"json-schema.org/draft/2020-12/schema", Draft::k2020},
      {"json-schema.org/schema", Draft::kNone},
  };
  for (const Known& known : kKnown) {
    if (uri != known.uri) continue;
    draft_ = known.draft;
    return {};
  }
  return unsupported_at("/$schema", "we do not know this dialect: " + named->as_string());
}

// The base that a schema's own identifier gives to what is in it.
std::string SchemaReader::base_of(const Json& json, const std::string& base) const {
  if (!json.is_object()) return base;
  if (ignores_siblings() && json.find("$ref") != nullptr) return base;
  const Json* id = json.find("$id");
  if (id == nullptr && draft_ == Draft::k4) id = json.find("id");
  if (id == nullptr || !id->is_string()) return base;
  const std::string resolved = resolved_uri(base, id->as_string());
  return std::string(split_uri(resolved).resource);
}

Result<void> SchemaReader::index(const Place& place, int depth) {
  if (!place.json->is_object()) return {};
  if (!budget_.step(4) || depth > kDepthMax) {
    return Error{ErrorCode::kDoesNotFit, "the schema is too large", place.pointer};
  }
  Place here = place;
  here.base = base_of(*place.json, place.base);
  if (here.base != place.base) resources_.emplace(here.base, place);
  for (const std::string_view keyword : {"$anchor", "$dynamicAnchor"}) {
    const Json* anchor = here.json->find(keyword);
    if (anchor != nullptr && anchor->is_string()) {
      anchors_.emplace(here.base + "#" + anchor->as_string(), place);
    }
  }
  const Json* id = here.json->find(draft_ == Draft::k4 ? "id" : "$id");
  if (id != nullptr && id->is_string() && id->as_string().starts_with('#')) {
    anchors_.emplace(here.base + id->as_string(), place);
  }
  for (const Applicator& applicator : kApplicators) {
    const Json* json = here.json->find(applicator.keyword);
    if (json == nullptr) continue;
    const std::string pointer = here.pointer + pointer_token(applicator.keyword);
    const bool is_map = applicator.holds == Holds::kMap;
    if (json->is_object() && !is_map) {
      TRY(index({.json = json, .pointer = pointer, .base = here.base}, depth + 1));
    } else if (json->is_object()) {
      for (const Json::Member& member : json->as_object()) {
        TRY(index({.json = &member.value,
                   .pointer = pointer + pointer_token(member.key),
                   .base = here.base},
                  depth + 1));
      }
    } else if (json->is_array() && !is_map) {
      for (size_t i = 0; i < json->as_array().size(); ++i) {
        TRY(index({.json = &json->as_array()[i],
                   .pointer = pointer + "/" + std::to_string(i),
                   .base = here.base},
                  depth + 1));
      }
    }
  }
  return {};
}

Result<NodeId> SchemaReader::node_at(Place place) {
  if (place.json->is_bool()) return place.json->as_bool() ? kTrueSchema : kFalseSchema;
  if (!place.json->is_object()) {
    return invalid(place.pointer, "a schema must be an object or a boolean, not " +
                                      std::string(place.json->kind_name()));
  }
  const auto [known, is_new] = known_.try_emplace(place.json, 0);
  if (!is_new) return known->second;
  known->second = graph_.add({.pointer = place.pointer});
  waiting_.push_back({.node = known->second, .place = std::move(place)});
  return known->second;
}

Result<SchemaNode> SchemaReader::read_node(const Place& given) {
  Place place = given;
  place.base = base_of(*given.json, given.base);
  SchemaNode node;
  node.pointer = place.pointer;
  if (ignores_siblings() && place.json->find("$ref") != nullptr) {
    TRY(ref(node, *place.json->find("$ref"), place));
    return node;
  }
  for (const Json::Member& member : place.json->as_object()) {
    const auto found = keywords().find(member.key);
    if (found == keywords().end()) continue;
    TRY((this->*found->second)(node, member.value, place));
  }
  return node;
}

const std::map<std::string_view, SchemaReader::Keyword>& SchemaReader::keywords() {
  using R = SchemaReader;
  static const std::map<std::string_view, Keyword> kKeywords = {
      {"$dynamicRef", &R::unsupported},
      {"$recursiveRef", &R::unsupported},
      {"$ref", &R::ref},
      {"additionalProperties", &R::additional_properties},
      {"allOf", &R::all_of},
      {"anyOf", &R::any_of},
      {"const", &R::const_},
      {"contains", &R::contains},
      {"dependencies", &R::dependencies},
      {"dependentRequired", &R::dependent_required},
      {"dependentSchemas", &R::dependent_schemas},
      {"disallow", &R::unsupported},
      {"divisibleBy", &R::unsupported},
      {"enum", &R::enum_},
      {"exclusiveMaximum", &R::bounds},
      {"exclusiveMinimum", &R::bounds},
      {"extends", &R::unsupported},
      {"format", &R::format},
      {"if", &R::if_},
      {"items", &R::items},
      {"maxItems", &R::max_items},
      {"maxLength", &R::max_length},
      {"maxProperties", &R::max_properties},
      {"maximum", &R::bounds},
      {"minItems", &R::min_items},
      {"minLength", &R::min_length},
      {"minProperties", &R::min_properties},
      {"minimum", &R::bounds},
      {"multipleOf", &R::multiple_of},
      {"not", &R::not_},
      {"oneOf", &R::one_of},
      {"pattern", &R::pattern},
      {"patternProperties", &R::pattern_properties},
      {"prefixItems", &R::prefix_items},
      {"properties", &R::properties},
      {"propertyNames", &R::property_names},
      {"required", &R::required},
      {"type", &R::type},
      {"unevaluatedItems", &R::unevaluated_items},
      {"unevaluatedProperties", &R::unevaluated_properties},
      {"uniqueItems", &R::unique_items},
  };
  return kKeywords;
}

Result<NodeId> SchemaReader::child(const Json& json, const Place& parent,
                                   std::string_view keyword) {
  return node_at(
      {.json = &json, .pointer = parent.pointer + pointer_token(keyword), .base = parent.base});
}

Result<NodeId> SchemaReader::child(const Json& json, const Place& parent, std::string_view keyword,
                                   std::string_view step) {
  return node_at({.json = &json,
                  .pointer = parent.pointer + pointer_token(keyword) + pointer_token(step),
                  .base = parent.base});
}

Result<std::vector<NodeId>> SchemaReader::children(const Json& json, const Place& parent,
                                                   std::string_view keyword) {
  if (!json.is_array()) {
    return invalid(parent.pointer + pointer_token(keyword),
                   std::string(keyword) + " must be an array of schemas");
  }
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < json.as_array().size(); ++i) {
    TRY_ASSIGN(const NodeId node, child(json.as_array()[i], parent, keyword, std::to_string(i)));
    nodes.push_back(node);
  }
  return nodes;
}

Result<SchemaReader::Place> SchemaReader::target_of(const std::string& reference,
                                                    const Place& from) {
  const std::string pointer = from.pointer + "/$ref";
  const std::string uri = resolved_uri(from.base, reference);
  const SplitUri split = split_uri(uri);
  const auto resource = resources_.find(std::string(split.resource));
  if (resource == resources_.end()) {
    return unsupported_at(pointer, "a reference must stay in the schema, which " + reference +
                                       " does not: nothing is fetched");
  }
  const std::optional<std::string> fragment = percent_decoded(split.fragment);
  if (!fragment) return invalid(pointer, "a broken %-escape in the reference " + reference);
  if (fragment->empty()) return resource->second;
  if (fragment->starts_with('/')) return follow_pointer(resource->second, *fragment, from);
  const auto anchor = anchors_.find(resource->first + "#" + *fragment);
  if (anchor == anchors_.end()) return invalid(pointer, "nothing is called " + reference);
  return anchor->second;
}

Result<SchemaReader::Place> SchemaReader::follow_pointer(Place at, std::string_view fragment,
                                                         const Place& asker) {
  const auto lost = [&] {
    return invalid(asker.pointer + "/$ref", "nothing is at #" + std::string(fragment));
  };
  std::string_view rest = fragment;
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::optional<std::string> step = pointer_step(rest.substr(0, end));
    rest.remove_prefix(end);
    if (!step) return lost();
    at.base = base_of(*at.json, at.base);
    if (at.json->is_object()) {
      at.json = at.json->find(*step);
      if (at.json == nullptr) return lost();
    } else if (at.json->is_array()) {
      if (step->empty() || step->size() > 6 ||
          step->find_first_not_of("0123456789") != std::string::npos ||
          (step->size() > 1 && step->front() == '0')) {
        return lost();
      }
      const size_t index = std::stoul(*step);
      if (index >= at.json->as_array().size()) return lost();
      at.json = &at.json->as_array()[index];
    } else {
      return lost();
    }
    at.pointer += pointer_token(*step);
  }
  return at;
}

// A schema that applies itself in the same place says nothing at all.
Result<void> SchemaReader::refuse_cycles() const {
  enum class Mark : uint8_t { kNew, kOpen, kDone };
  std::vector<Mark> marks(graph_.nodes_.size(), Mark::kNew);
  struct Step {
    NodeId node;
    std::vector<NodeId> next;
  };
  const auto in_place = [&](NodeId id) {
    const SchemaNode& node = graph_.nodes_[id];
    std::vector<NodeId> next = node.all_of;
    for (const auto& list : node.any_of) next.insert(next.end(), list.begin(), list.end());
    for (const auto& list : node.one_of) next.insert(next.end(), list.begin(), list.end());
    for (const auto& [key, value] : node.dependent) next.push_back(value);
    for (const NodeId other : {node.not_, node.if_, node.then_, node.else_}) {
      if (other != kNoSchema) next.push_back(other);
    }
    return next;
  };
  for (NodeId root = 0; root < graph_.nodes_.size(); ++root) {
    if (marks[root] != Mark::kNew) continue;
    std::vector<Step> path;
    path.push_back({.node = root, .next = in_place(root)});
    marks[root] = Mark::kOpen;
    while (!path.empty()) {
      Step& step = path.back();
      if (step.next.empty()) {
        marks[step.node] = Mark::kDone;
        path.pop_back();
        continue;
      }
      const NodeId next = step.next.back();
      step.next.pop_back();
      if (marks[next] == Mark::kOpen) {
        return invalid(graph_.nodes_[step.node].pointer,
                       "this schema refers to itself without anything in between");
      }
      if (marks[next] == Mark::kDone) continue;
      marks[next] = Mark::kOpen;
      path.push_back({.node = next, .next = in_place(next)});
    }
  }
  return {};
}

}  // namespace pelton::grammar
