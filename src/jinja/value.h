// A value of a template's run, as Python has it: undefined, none, bool, int, float, str, list,
// tuple, dict, or an object of the interpreter's own (namespace, loop, macro, method). Lists and
// dicts do not change once they are values, and know how deep they nest, so that whatever walks
// them may recurse. One run's; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "jinja/text.h"

namespace pelton::jinja {

class Runtime;
class Value;

// How deep lists and dicts may nest: a JSON text's depth, and some more around it.
inline constexpr int kValueDepthMax = Json::kDepthMax + 64;

struct Undefined {
  std::shared_ptr<const std::string> why;  // null: nothing more to say than that it is undefined
};
struct None {};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;
  size_t weight = 1;
  size_t comparison = 1;
};

struct Dict {
  std::vector<std::pair<Value, Value>> members;  // in order; keys apart
  int depth = 1;
  size_t weight = 1;
  size_t comparison = 1;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// What only the interpreter makes.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual std::optional<Value> attribute(std::string_view name) const;
  // How many attributes are looked through for one.
  virtual size_t attribute_count() const { return 0; }
  virtual bool is_callable() const { return false; }
  virtual Result<Value> call(Runtime& runtime, Arguments arguments);
};

class Value {
 public:
  Value() = default;                                    // undefined
  Value(Undefined value) : value_(std::move(value)) {}  // NOLINT: implicit
  Value(None value) : value_(value) {}                  // NOLINT: implicit
  Value(bool value) : value_(value) {}                  // NOLINT: implicit
  Value(int64_t value) : value_(value) {}               // NOLINT: implicit
  Value(double value) : value_(value) {}                // NOLINT: implicit
  Value(Text value)                                     // NOLINT: implicit
      : value_(std::make_shared<const Text>(std::move(value))) {}
  Value(std::shared_ptr<Object> value) : value_(std::move(value)) {}  // NOLINT: implicit
  // Of the template's own words.
  static Value own(std::string_view text) { return Text(std::string(text)); }
  static Value input(std::string_view text) { return Text::from_input(std::string(text)); }
  static Value count(size_t value) { return static_cast<int64_t>(value); }
  static Value undefined(std::string why);
  // Deeper than kValueDepthMax: an error.
  static Result<Value> list(std::vector<Value> items);
  static Result<Value> tuple(std::vector<Value> items);
  static Result<Value> dict(Dict dict);
  // Every string of it is input. No Json is too deep.
  static Value from_json(const Json& json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(value_); }
  bool is_none() const { return std::holds_alternative<None>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(value_); }
  bool is_float() const { return std::holds_alternative<double>(value_); }
  // As in Python a bool is a number, too.
  bool is_number() const { return is_bool() || is_integer() || is_float(); }
  bool is_string() const { return holds<const Text>(); }
  bool is_list() const { return holds<const List>() && !as_list().is_tuple; }
  bool is_tuple() const { return holds<const List>() && as_list().is_tuple; }
  bool is_sequence() const { return holds<const List>(); }
  bool is_dict() const { return holds<const Dict>(); }
  Object* object() const;  // null: another kind
  bool is_callable() const { return object() != nullptr && object()->is_callable(); }

  bool as_bool() const { return std::get<bool>(value_); }
  // Of a bool, too; as_number() of any number.
  int64_t as_integer() const;
  double as_number() const;
  const Text& as_text() const { return *std::get<std::shared_ptr<const Text>>(value_); }
  const std::string& as_string() const { return as_text().bytes(); }
  const List& as_list() const { return *std::get<std::shared_ptr<const List>>(value_); }
  const Dict& as_dict() const { return *std::get<std::shared_ptr<const Dict>>(value_); }

  // Whether `if` takes it.
  bool truth() const;
  // "str", "list", "Undefined".
  std::string_view type_name() const;
  // How deep it nests; 0: it holds nothing.
  int depth() const;
  // How much there is to walk, in steps: values, and a share of the length of strings.
  size_t weight() const;
  // How long comparing it with its like takes, in steps: a dict's members are looked for one by
  // one.
  size_t comparison() const;
  // What an undefined value says when it is used.
  std::string why_undefined() const;

  friend bool operator==(const Value& a, const Value& b);

 private:
  static Result<Value> sequence(std::vector<Value> items, bool is_tuple);

  template <typename T>
  bool holds() const {
    return std::holds_alternative<std::shared_ptr<T>>(value_);
  }

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      value_;
};

// What went wrong in a template's run.
Error failure(std::string message);

// a < b as Python has it for numbers, strings, lists; an error for anything else.
Result<bool> is_less(const Value& a, const Value& b);

// The arguments by parameter name, null where absent. Error: too many, an unknown name, a required
// one missing.
Result<std::vector<const Value*>> bind(std::string_view function, const Arguments& arguments,
                                       std::initializer_list<std::string_view> parameters,
                                       size_t required);

}  // namespace pelton::jinja
