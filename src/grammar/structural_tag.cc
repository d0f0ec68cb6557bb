#include "grammar/structural_tag.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "grammar/compile_budget.h"
#include "grammar/ebnf_network.h"
#include "grammar/free_text.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "grammar/schema_uri.h"

namespace pelton::grammar {
namespace {

using Kind = EbnfNode::Kind;

constexpr int kDepthMax = 32;
constexpr size_t kFormatsMax = 2'000;
constexpr size_t kMarksMax = 64;         // triggers and ends that one free text must not run past
constexpr size_t kMarkBytesMax = 4'096;  // of all of them
constexpr int64_t kRepeatsMax = 10'000;
// Of one free text's automaton.
constexpr DfaLimits kTextLimits = {
    .states_max = 10'000, .cells_max = 500'000, .work_max = 5'000'000};

// A place in the document, for errors.
struct Place {
  const Json& value;
  std::string pointer;

  Place member(std::string_view key, const Json& at) const {
    return {at, pointer + pointer_token(key)};
  }
  Place item(size_t index) const {
    return {value.as_array()[index], fmt::format("{}/{}", pointer, index)};
  }
  Error invalid(std::string message) const {
    return {ErrorCode::kInvalidArgument, std::move(message), pointer};
  }
  Error unsupported(std::string message) const {
    return {ErrorCode::kUnsupported, std::move(message), pointer};
  }
};

// A begin, what stands behind it, and the ways to end.
struct Tag {
  std::string begin;
  uint32_t behind = 0;  // a node: the content and the end
  std::string pointer;
};

class TagReader {
 public:
  explicit TagReader(const TagOptions& options)
      : budget_(options.time_us_max, options.bytes_max, options.deadline) {
    text_limits_.deadline = options.deadline;
  }

  Result<std::shared_ptr<const Grammar>> read(const Json& tag) {
    const Place place{tag, ""};
    if (!tag.is_object()) {
      return place.invalid(fmt::format("a structural tag is an object, not {}", tag.kind_name()));
    }
    const Json* const format = tag.find("format");
    const bool old = tag.find("structures") != nullptr || tag.find("triggers") != nullptr;
    if (format != nullptr && old) {
      return place.invalid("'format' and 'structures' both say what the text looks like; give one");
    }
    const Json* const type = tag.find("type");
    if (type != nullptr && !(type->is_string() && type->as_string() == "structural_tag")) {
      return place.member("type", *type).invalid("'type' must be 'structural_tag'");
    }
    Result<uint32_t> body = format != nullptr ? read_new(place, *format) : read_old(place);
    if (!body.ok()) return body.error();
    tree_.rules.push_back({.name = "structural_tag", .body = *body});
    tree_.start = static_cast<uint32_t>(tree_.rules.size() - 1);
    TRY_ASSIGN(EbnfResult network, ebnf_network(std::move(tree_), budget_.deadline));
    if (!budget_.step(1)) return too_complex(place);
    if (network.regular) return Grammar::from_dfa(std::move(*network.regular));
    return Grammar::from_rules(std::move(network.rules), std::move(tables_));
  }

 private:
  Result<uint32_t> read_new(const Place& place, const Json& format) {
    TRY(only_members(place, {"type", "format"}));
    return read_format(place.member("format", format), {}, 0);
  }

  // {"structures": [...], "triggers": [...]}
  Result<uint32_t> read_old(const Place& place) {
    TRY(only_members(place, {"type", "structures", "triggers", "at_least_one"}));
    TRY_ASSIGN(const Place structures, array_at(place, "structures"));
    std::vector<Tag> tags;
    for (size_t i = 0; i < structures.value.as_array().size(); ++i) {
      const Place one = structures.item(i);
      TRY(is_object(one));
      TRY(only_members(one, {"begin", "schema", "end"}));
      const Json* const schema = one.value.find("schema");
      if (schema == nullptr) return one.invalid("'schema' is missing");
      TRY_ASSIGN(std::string begin, text_at(one, "begin"));
      TRY_ASSIGN(std::string end, text_at(one, "end"));
      TRY_ASSIGN(const uint32_t value, read_schema(one.member("schema", *schema)));
      tags.push_back({.begin = std::move(begin),
                      .behind = sequence({value, text(std::move(end))}),
                      .pointer = one.pointer});
    }
    return read_triggered(place, "structures", std::move(tags), {});
  }

  Error too_complex(const Place& place) const {
    return {ErrorCode::kDoesNotFit, "the structural tag takes too long or too much memory",
            place.pointer};
  }

  // ---- members

  static Result<void> is_object(const Place& place) {
    if (place.value.is_object()) return {};
    return place.invalid(fmt::format("must be an object, not {}", place.value.kind_name()));
  }
  static Result<void> only_members(const Place& place,
                                   std::initializer_list<std::string_view> known) {
    for (const Json::Member& member : place.value.as_object()) {
      if (std::find(known.begin(), known.end(), member.key) == known.end()) {
        return place.member(member.key, member.value)
            .unsupported(fmt::format("'{:.60}' is not supported here", member.key));
      }
    }
    return {};
  }
  static Result<Place> member_at(const Place& place, std::string_view key) {
    const Json* const value = place.value.find(key);
    if (value == nullptr) return place.invalid(fmt::format("'{}' is missing", key));
    return place.member(key, *value);
  }
  static Result<Place> array_at(const Place& place, std::string_view key) {
    TRY_ASSIGN(Place array, member_at(place, key));
    if (!array.value.is_array() || array.value.as_array().empty()) {
      return array.invalid(fmt::format("'{}' must be an array that is not empty", key));
    }
    return array;
  }
  static Result<std::string> text_at(const Place& place, std::string_view key) {
    TRY_ASSIGN(const Place text, member_at(place, key));
    return as_text(text, key);
  }
  static Result<std::string> as_text(const Place& place, std::string_view key) {
    if (place.value.is_string()) return place.value.as_string();
    if (place.value.is_object())
      return place.unsupported("marks that are tokens are not supported");
    return place.invalid(fmt::format("'{}' must be a string", key));
  }
  static Result<bool> flag_at(const Place& place, std::string_view key) {
    const Json* const value = place.value.find(key);
    if (value == nullptr) return false;
    if (value->is_bool()) return value->as_bool();
    return place.member(key, *value).invalid(fmt::format("'{}' must be true or false", key));
  }
  static Result<int64_t> count_at(const Place& place, std::string_view key, int64_t low) {
    TRY_ASSIGN(const Place count, member_at(place, key));
    const bool fits = count.value.is_integer() && count.value.as_integer() >= low &&
                      count.value.as_integer() <= kRepeatsMax;
    if (fits) return count.value.as_integer();
    return count.invalid(
        fmt::format("'{}' must be a whole number from {} to {}", key, low, kRepeatsMax));
  }
  // Marks of free text; none if the key is absent.
  static Result<std::vector<std::string>> marks_at(const Place& place, std::string_view key) {
    std::vector<std::string> marks;
    const Json* const value = place.value.find(key);
    if (value == nullptr) return marks;
    const Place all = place.member(key, *value);
    if (!value->is_array()) return all.invalid(fmt::format("'{}' must be an array", key));
    size_t bytes = 0;
    for (size_t i = 0; i < value->as_array().size(); ++i) {
      TRY_ASSIGN(std::string mark, as_text(all.item(i), key));
      if (mark.empty()) return all.item(i).invalid("must not be empty");
      bytes += mark.size();
      marks.push_back(std::move(mark));
    }
    if (marks.size() <= kMarksMax && bytes <= kMarkBytesMax) return marks;
    return Error{
        ErrorCode::kDoesNotFit,
        fmt::format("'{}' may have {} texts of {} bytes together", key, kMarksMax, kMarkBytesMax),
        all.pointer};
  }

  // ---- nodes

  uint32_t text(std::string bytes) { return tree_.add({.text = std::move(bytes)}); }
  uint32_t sequence(std::vector<uint32_t> parts) {
    return tree_.add_parent(Kind::kSequence, std::move(parts), 0);
  }
  uint32_t any_of(std::vector<uint32_t> parts) {
    return tree_.add_parent(Kind::kAlternatives, std::move(parts), 0);
  }
  uint32_t repeat(uint32_t part, uint32_t least, uint32_t most) {
    return tree_.add({.kind = Kind::kRepeat, .least = least, .most = most, .children = {part}});
  }
  Result<uint32_t> automaton(const Place& place, Result<ByteDfa> dfa) {
    if (!dfa.ok()) {
      Error error = dfa.error();
      error.field = place.pointer;
      return error;
    }
    if (dfa->is_empty()) return place.invalid("no text can satisfy this");
    if (!budget_.take(dfa->bytes_held())) return too_complex(place);
    tree_.dfas.push_back(std::move(*dfa));
    return tree_.add({.kind = Kind::kDfa, .index = static_cast<uint32_t>(tree_.dfas.size() - 1)});
  }

  // ---- formats

  // `ends`: what ends the tag that this format is the content of; free text stops there.
  Result<uint32_t> read_format(const Place& place, const std::vector<std::string>& ends,
                               int depth) {
    TRY(is_object(place));
    if (depth > kDepthMax || ++formats_ > kFormatsMax || !budget_.step(512)) {
      return too_complex(place);
    }
    TRY_ASSIGN(const std::string type, text_at(place, "type"));
    if (type == "const_string") return read_const(place);
    if (type == "json_schema") return read_json(place);
    if (type == "regex") return read_regex(place);
    if (type == "grammar") return read_grammar(place);
    if (type == "any_text") return read_any_text(place, ends);
    if (type == "sequence" || type == "or") return read_elements(place, type, depth);
    if (type == "optional" || type == "plus" || type == "star" || type == "repeat") {
      return read_repeat(place, type, depth);
    }
    if (type == "tag") {
      TRY_ASSIGN(const Tag tag, read_tag(place, depth));
      return sequence({text(tag.begin), tag.behind});
    }
    if (type == "triggered_tags") return read_triggered_tags(place, ends, depth);
    if (type == "tags_with_separator") return read_separated(place, depth);
    return place.unsupported(fmt::format("the format '{:.60}' is not supported", type));
  }

  Result<uint32_t> read_const(const Place& place) {
    TRY(only_members(place, {"type", "value"}));
    TRY_ASSIGN(std::string value, text_at(place, "value"));
    return text(std::move(value));
  }

  Result<uint32_t> read_json(const Place& place) {
    // With us keys come in any order anyway, each once and none missing.
    TRY(only_members(place, {"type", "json_schema", "style", "any_order"}));
    TRY(flag_at(place, "any_order"));
    const Json* const style = place.value.find("style");
    if (style != nullptr && !(style->is_string() && style->as_string() == "json")) {
      return place.member("style", *style).unsupported("the only style is 'json'");
    }
    TRY_ASSIGN(const Place schema, member_at(place, "json_schema"));
    return read_schema(schema);
  }

  Result<uint32_t> read_schema(const Place& place) {
    if (!place.value.is_object() && !place.value.is_bool()) {
      return place.invalid(fmt::format("must be a JSON schema, not {}", place.value.kind_name()));
    }
    if (!budget_.step(512)) return too_complex(place);
    const int64_t time_left = budget_.until_us - CompileBudget::now_us();
    if (time_left <= 0 || budget_.bytes_left <= 0) return too_complex(place);
    Result<std::unique_ptr<JsonTables>> tables =
        json_tables_of(place.value, {.time_us_max = time_left,
                                     .bytes_max = static_cast<size_t>(budget_.bytes_left),
                                     .deadline = budget_.deadline});
    if (!tables.ok()) {
      Error error = tables.error();
      error.field = place.pointer + error.field;
      return error;
    }
    if (!budget_.take((*tables)->bytes_held)) return too_complex(place);
    ValueId root = (*tables)->root;
    if (tables_) {
      root = append_tables(*tables_, std::move(**tables));
    } else {
      tables_ = std::move(*tables);
    }
    return tree_.add({.kind = Kind::kValue, .index = root});
  }

  Result<uint32_t> read_regex(const Place& place) {
    TRY(only_members(place, {"type", "pattern"}));
    TRY_ASSIGN(const std::string pattern, text_at(place, "pattern"));
    return automaton(place.member("pattern", place.value),
                     compile_regex(pattern, {.match = RegexOptions::Match::kWhole,
                                             .limits = {.deadline = budget_.deadline}}));
  }

  Result<uint32_t> read_grammar(const Place& place) {
    TRY(only_members(place, {"type", "grammar"}));
    TRY_ASSIGN(const Place source, member_at(place, "grammar"));
    TRY_ASSIGN(const std::string words, as_text(source, "grammar"));
    Result<EbnfTree> parsed = parse_ebnf(words, budget_.deadline);
    if (!parsed.ok()) return source.invalid(parsed.error().message);
    // By itself first: errors then speak of its own lines.
    Result<EbnfResult> alone = ebnf_network(*parsed, budget_.deadline);
    if (!alone.ok()) {
      return Error{alone.error().code, alone.error().message, source.pointer};
    }
    if (alone->regular) return automaton(source, std::move(*alone->regular));
    return graft(std::move(*parsed));
  }

  // Another tree's nodes and rules become ours.
  uint32_t graft(EbnfTree other) {
    const auto nodes = static_cast<uint32_t>(tree_.nodes.size());
    const auto sets = static_cast<uint32_t>(tree_.sets.size());
    const auto dfas = static_cast<uint32_t>(tree_.dfas.size());
    const auto rules = static_cast<uint32_t>(tree_.rules.size());
    for (EbnfNode& node : other.nodes) {
      for (uint32_t& child : node.children) child += nodes;
      if (node.kind == Kind::kSet) node.index += sets;
      if (node.kind == Kind::kDfa) node.index += dfas;
      if (node.kind == Kind::kRule) node.index += rules;
      node.at = 0;
      tree_.nodes.push_back(std::move(node));
    }
    for (CodePointSet& set : other.sets) tree_.sets.push_back(std::move(set));
    for (ByteDfa& dfa : other.dfas) tree_.dfas.push_back(std::move(dfa));
    for (EbnfRule& rule : other.rules) {
      if (rule.body != kNoBody) rule.body += nodes;
      rule.at = 0;
      tree_.rules.push_back(std::move(rule));
    }
    return tree_.add({.kind = Kind::kRule, .index = rules + other.start});
  }

  Result<uint32_t> read_any_text(const Place& place, const std::vector<std::string>& ends) {
    TRY(only_members(place, {"type", "excludes"}));
    TRY_ASSIGN(std::vector<std::string> never, marks_at(place, "excludes"));
    never.insert(never.end(), ends.begin(), ends.end());
    return automaton(place, text_without(never, text_limits_));
  }

  Result<uint32_t> read_elements(const Place& place, std::string_view type, int depth) {
    TRY(only_members(place, {"type", "elements"}));
    TRY_ASSIGN(const Place elements, array_at(place, "elements"));
    std::vector<uint32_t> parts;
    for (size_t i = 0; i < elements.value.as_array().size(); ++i) {
      TRY_ASSIGN(const uint32_t part, read_format(elements.item(i), {}, depth + 1));
      parts.push_back(part);
    }
    return type == "or" ? any_of(std::move(parts)) : sequence(std::move(parts));
  }

  Result<uint32_t> read_repeat(const Place& place, std::string_view type, int depth) {
    uint32_t least = type == "plus" ? 1 : 0;
    uint32_t most = type == "optional" ? 1 : kUnlimited;
    if (type == "repeat") {
      TRY(only_members(place, {"type", "content", "min", "max"}));
      TRY_ASSIGN(const int64_t min, count_at(place, "min", 0));
      TRY_ASSIGN(const int64_t max, count_at(place, "max", -1));
      if (max >= 0 && max < min) return place.invalid("'max' is less than 'min'");
      least = static_cast<uint32_t>(min);
      if (max >= 0) most = static_cast<uint32_t>(max);
    } else {
      TRY(only_members(place, {"type", "content"}));
    }
    TRY_ASSIGN(const Place content, member_at(place, "content"));
    TRY_ASSIGN(const uint32_t part, read_format(content, {}, depth + 1));
    return repeat(part, least, most);
  }

  Result<Tag> read_tag(const Place& place, int depth) {
    TRY(is_object(place));
    TRY(only_members(place, {"type", "begin", "content", "end"}));
    const Json* const own_type = place.value.find("type");
    if (own_type != nullptr && !(*own_type == Json("tag"))) {
      return place.member("type", *own_type).invalid("'type' must be 'tag' here");
    }
    TRY_ASSIGN(std::string begin, text_at(place, "begin"));
    TRY_ASSIGN(const Place end, member_at(place, "end"));
    std::vector<std::string> ends;
    if (end.value.is_array()) {
      if (end.value.as_array().empty()) return end.invalid("'end' must not be empty");
      for (size_t i = 0; i < end.value.as_array().size(); ++i) {
        TRY_ASSIGN(std::string one, as_text(end.item(i), "end"));
        ends.push_back(std::move(one));
      }
    } else {
      TRY_ASSIGN(std::string one, as_text(end, "end"));
      ends.push_back(std::move(one));
    }
    TRY_ASSIGN(const Place content, member_at(place, "content"));
    Tag tag{.begin = std::move(begin), .pointer = place.pointer};
    const Json* const type = content.value.find("type");
    const bool free = type != nullptr && type->is_string() && type->as_string() == "any_text";
    std::vector<std::string> marks;  // an end that is empty stops nothing
    for (const std::string& one : ends) {
      if (!one.empty()) marks.push_back(one);
    }
    if (free && marks.size() == ends.size()) {
      // The first end is the end, also where one overlaps what stands before it.
      TRY(only_members(content, {"type", "excludes"}));
      TRY_ASSIGN(const std::vector<std::string> never, marks_at(content, "excludes"));
      TRY_ASSIGN(tag.behind,
                 automaton(content, text_until({.ends = ends, .marks = ends, .never = never},
                                               text_limits_)));
      return tag;
    }
    TRY_ASSIGN(const uint32_t inside, read_format(content, marks, depth + 1));
    std::vector<uint32_t> ways;
    for (std::string& one : ends) ways.push_back(text(std::move(one)));
    tag.behind = sequence({inside, any_of(std::move(ways))});
    return tag;
  }

  Result<std::vector<Tag>> tags_at(const Place& place, int depth) {
    TRY_ASSIGN(const Place all, array_at(place, "tags"));
    std::vector<Tag> tags;
    for (size_t i = 0; i < all.value.as_array().size(); ++i) {
      TRY_ASSIGN(Tag tag, read_tag(all.item(i), depth + 1));
      tags.push_back(std::move(tag));
    }
    return tags;
  }

  Result<uint32_t> read_triggered_tags(const Place& place, const std::vector<std::string>& ends,
                                       int depth) {
    TRY(only_members(place,
                     {"type", "triggers", "tags", "at_least_one", "stop_after_first", "excludes"}));
    TRY_ASSIGN(std::vector<Tag> tags, tags_at(place, depth));
    return read_triggered(place, "tags", std::move(tags), ends);
  }

  // One of the tags that a trigger calls, behind the trigger.
  Result<uint32_t> behind_trigger(const Place& trigger, const std::vector<Tag>& tags,
                                  std::vector<int>& calls) {
    const std::string& word = trigger.value.as_string();
    std::vector<uint32_t> ways;
    for (size_t i = 0; i < tags.size(); ++i) {
      if (!tags[i].begin.starts_with(word)) continue;
      ++calls[i];
      ways.push_back(sequence({text(tags[i].begin.substr(word.size())), tags[i].behind}));
    }
    if (ways.empty()) {
      return trigger.invalid(fmt::format("no 'begin' begins with the trigger '{:.60}'", word));
    }
    return any_of(std::move(ways));
  }

  // Free text in which a trigger must go on as one of the tags that begin with it. Of the trigger
  // <f and the structure <f> integer </f>: (text until the first <f, then ">", a value, "</f>")*,
  // then text without <f. So "a < f" passes and "a <f b" does not.
  Result<uint32_t> read_triggered(const Place& place, std::string_view tags_key,
                                  std::vector<Tag> tags, const std::vector<std::string>& ends) {
    TRY_ASSIGN(const Place triggers, array_at(place, "triggers"));
    TRY_ASSIGN(const std::vector<std::string> words, marks_at(place, "triggers"));
    TRY_ASSIGN(std::vector<std::string> never, marks_at(place, "excludes"));
    TRY_ASSIGN(const bool at_least_one, flag_at(place, "at_least_one"));
    TRY_ASSIGN(const bool only_one, flag_at(place, "stop_after_first"));
    never.insert(never.end(), ends.begin(), ends.end());
    std::vector<int> calls(tags.size(), 0);
    std::vector<uint32_t> ways;
    for (size_t i = 0; i < words.size(); ++i) {
      const Place trigger = triggers.item(i);
      if (!budget_.step(512)) return too_complex(trigger);
      TRY_ASSIGN(const uint32_t behind, behind_trigger(trigger, tags, calls));
      Result<ByteDfa> until = text_until(
          {.ends = std::span(&words[i], 1), .marks = words, .never = never}, text_limits_);
      if (until.ok() && until->is_empty()) {
        return trigger.invalid(
            fmt::format("the trigger '{:.60}' holds another one, which comes first", words[i]));
      }
      TRY_ASSIGN(const uint32_t before, automaton(trigger, std::move(until)));
      ways.push_back(sequence({before, behind}));
    }
    for (size_t i = 0; i < tags.size(); ++i) {
      if (calls[i] == 1) continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("'begin' must begin with one of the triggers, not with {}",
                               calls[i] == 0 ? "none" : "several"),
                   fmt::format("{}/begin", tags[i].pointer)};
    }
    never.insert(never.end(), words.begin(), words.end());
    TRY_ASSIGN(const uint32_t rest, automaton(place, text_without(never, text_limits_)));
    const uint32_t triggered = any_of(std::move(ways));
    std::vector<uint32_t> at_once;
    for (const Tag& tag : tags) at_once.push_back(sequence({text(tag.begin), tag.behind}));
    if (at_least_one && only_one) return any_of(std::move(at_once));
    if (only_one) return any_of({triggered, rest});
    const uint32_t more = repeat(triggered, 0, kUnlimited);
    if (!at_least_one) return sequence({more, rest});
    return sequence({any_of(std::move(at_once)), more, rest});
  }

  Result<uint32_t> read_separated(const Place& place, int depth) {
    TRY(only_members(place, {"type", "tags", "separator", "at_least_one", "stop_after_first"}));
    TRY_ASSIGN(const std::vector<Tag> tags, tags_at(place, depth));
    TRY_ASSIGN(std::string separator, text_at(place, "separator"));
    TRY_ASSIGN(const bool at_least_one, flag_at(place, "at_least_one"));
    TRY_ASSIGN(const bool only_one, flag_at(place, "stop_after_first"));
    std::vector<uint32_t> ways;
    for (const Tag& tag : tags) ways.push_back(sequence({text(tag.begin), tag.behind}));
    const uint32_t one = any_of(std::move(ways));
    uint32_t all = one;
    if (!only_one) {
      const uint32_t next = sequence({text(std::move(separator)), one});
      all = sequence({one, repeat(next, 0, kUnlimited)});
    }
    return at_least_one ? all : repeat(all, 0, 1);
  }

  CompileBudget budget_;
  DfaLimits text_limits_ = kTextLimits;
  size_t formats_ = 0;
  EbnfTree tree_;
  std::unique_ptr<JsonTables> tables_;
};

}  // namespace

Result<std::shared_ptr<const Grammar>> compile_structural_tag(const Json& tag,
                                                              const TagOptions& options) {
  return TagReader(options).read(tag);
}

}  // namespace pelton::grammar
