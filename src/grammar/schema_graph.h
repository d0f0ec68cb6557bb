// A JSON schema read and checked, keyword by keyword, its references resolved: nodes that speak of
// each other by number. Keywords are in it as they are meant, whatever the draft that spelled them.
// Built once per compilation, then only grown by schema_terms with nodes of its own. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/json_tables.h"
#include "grammar/schema_languages.h"

namespace pelton::grammar {

using NodeId = uint32_t;
inline constexpr NodeId kNoSchema = 0xffff'ffff;
inline constexpr NodeId kTrueSchema = 0;
inline constexpr NodeId kFalseSchema = 1;

// JSON's types; true and false apart, for const and enum distinguish them.
enum TypeBits : uint8_t {
  kNullType = 1,
  kTrueType = 2,
  kFalseType = 4,
  kNumberType = 8,
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kAllTypes = 127,
};
inline constexpr int kTypeCount = 7;

struct SchemaNode {
  std::string pointer;
  uint8_t types = kAllTypes;
  // Which types any of the rest says something about; the others pass if `types` has them.
  uint8_t constrained = 0;

  // Strings, numbers: in all of these languages, and in none of those.
  std::vector<Language> texts;
  std::vector<Language> not_texts;
  uint64_t chars_min = 0;
  uint64_t chars_max = kNoBound;
  std::vector<Language> numbers;
  std::vector<Language> not_numbers;
  bool bounds_read = false;
  bool multiples = false;  // one of `numbers` is of multiples

  // Objects.
  struct Pattern {
    Language keys;
    NodeId value = kTrueSchema;
  };
  std::map<std::string, NodeId> properties;
  std::vector<Pattern> patterns;
  NodeId additional = kNoSchema;
  std::vector<std::string> required;
  std::map<std::string, std::vector<std::string>> needs;
  NodeId names = kNoSchema;
  uint64_t members_min = 0;
  uint64_t members_max = kNoBound;
  // At least one member: key in this language, value of that node.
  std::vector<Pattern> witnesses;
  // At least one member whose key does not pass this.
  NodeId bad_name = kNoSchema;

  // Arrays.
  struct Contains {
    NodeId item = kTrueSchema;
    uint64_t min = 1;
    uint64_t max = kNoBound;
    uint64_t from = 0;  // speaks of items from that one on
  };
  std::vector<NodeId> prefix;
  NodeId items = kNoSchema;  // after the prefix
  std::vector<Contains> contains;
  uint64_t items_min = 0;
  uint64_t items_max = kNoBound;
  bool unique = false;
  bool repeated = false;  // not unique: nothing we can promise

  // All types. Values of an enum that are arrays or objects are nodes.
  bool has_enum = false;
  uint8_t enum_literals = 0;  // type bits of null, true, false
  Language enum_texts;        // null: none
  Language enum_numbers;
  std::vector<NodeId> enum_nodes;

  // In place.
  std::vector<NodeId> all_of;  // references too
  std::vector<std::vector<NodeId>> any_of;
  std::vector<std::vector<NodeId>> one_of;
  NodeId not_ = kNoSchema;
  NodeId if_ = kNoSchema;
  NodeId then_ = kNoSchema;
  NodeId else_ = kNoSchema;
  std::map<std::string, NodeId> dependent;

  bool only_all_of() const;  // all_of and nothing else
};

struct CompileBudget;

class SchemaGraph {
 public:
  SchemaGraph();
  // The root's node. Errors name the pointer.
  Result<NodeId> read(const Json& schema, CompileBudget& budget);

  const SchemaNode& node(NodeId id) const { return nodes_[id]; }
  NodeId add(SchemaNode node);
  size_t size() const { return nodes_.size(); }
  bool uses_unique() const { return uses_unique_; }

 private:
  friend class SchemaReader;
  std::deque<SchemaNode> nodes_;  // they stay where they are
  bool uses_unique_ = false;
};

}  // namespace pelton::grammar
