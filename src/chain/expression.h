// Expressions of chain files, what stands between ${ and }: paths into values, comparisons, a few
// functions. They are parsed and given their type when the file is read, and evaluated when it
// runs. Values, pure functions; time and memory are bounded by the expression and the values that
// it reads.
//
//   ${draft.text}   ${pieces[*].text}   ${input.k ?? 3}   ${not contains(review.text, 'fine')}
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "chain/value_type.h"

namespace pelton::chain {

struct Expression {
  enum class Kind {
    kLiteral,   // value
    kPath,      // name, then parts
    kCall,      // name(operands)
    kNot,       // operands[0]
    kAnd,       // operands[0], [1], as all below
    kOr,        //
    kDefault,   // a ?? b
    kEqual,     //
    kNotEqual,  //
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
  };
  // Of a path: .field, [3] or [*].
  struct Part {
    enum class Kind { kField, kIndex, kEach };
    Kind kind = Kind::kField;
    std::string field;
    int64_t index = 0;  // negative: from the end
  };

  Kind kind = Kind::kLiteral;
  Json value;
  std::string name;
  std::vector<Part> parts;
  std::vector<Expression> operands;
};

// Errors: kInvalidArgument, without a place: whoever reads the file knows the line.
Result<Expression> parse_expression(std::string_view text);

// Calls `found` with the first name of every path in it.
void for_each_name(const Expression& expression,
                   const std::function<void(std::string_view name)>& found);

// The type of a name; null: there is none.
using TypeOf = std::function<const Type*(std::string_view name)>;
// Errors: kInvalidArgument, of a field that is not there (with the nearest that is) or operands
// that do not fit. Names must be known.
Result<Type> type_of(const Expression& expression, const TypeOf& names);

// The value of a name; null: there is none, which a check of names excludes.
using ValueOf = std::function<const Json*(std::string_view name)>;
// A value that lies elsewhere, or one of its own.
class Evaluated {
 public:
  Evaluated(const Json* elsewhere) : elsewhere_(elsewhere) {}  // NOLINT: implicit
  Evaluated(Json own) : own_(std::move(own)) {}                // NOLINT: implicit
  const Json& get() const { return elsewhere_ != nullptr ? *elsewhere_ : own_; }
  Json take() { return elsewhere_ != nullptr ? *elsewhere_ : std::move(own_); }

 private:
  const Json* elsewhere_ = nullptr;
  Json own_;
};
// Errors: kInvalidArgument, of a value that is not what the expression takes it for.
Result<Evaluated> evaluate(const Expression& expression, const ValueOf& names);

}  // namespace pelton::chain
