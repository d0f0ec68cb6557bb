// A parsed template. Plain values that only the parser fills; immutable afterwards, any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "jinja/value.h"

namespace pelton::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

// A filter's or a function's argument by name.
struct NamedArgument {
  std::string name;
  ExpressionPtr value;
};

struct Expression {
  enum class Kind : uint8_t {
    kConstant,     // constant
    kName,         // name
    kList,         // parts
    kTuple,        // parts
    kDict,         // parts: key, value, key, value ...
    kAttribute,    // parts[0].name
    kItem,         // parts[0][parts[1]]
    kSlice,        // parts[0][parts[1]:parts[2]:parts[3]]; null: left out
    kCall,         // parts[0](parts[1...], named)
    kFilter,       // parts[0] | name(parts[1...], named)
    kTest,         // parts[0] is [not] name(parts[1...], named)
    kNot,          // parts[0]
    kNegative,     // parts[0]
    kPositive,     // parts[0]
    kArithmetic,   // parts[0] name parts[1]
    kConcatenate,  // all parts
    kCompare,      // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    kAnd,          // parts[0], parts[1]
    kOr,           // parts[0], parts[1]
    kConditional,  // parts[0] if parts[1] else parts[2]; null: undefined
  };
  Kind kind = Kind::kConstant;
  bool negated = false;  // kTest
  int line = 1;
  int height = 1;  // of the tree below and with it
  std::string name = {};
  Value constant = {};
  std::vector<ExpressionPtr> parts = {};
  std::vector<NamedArgument> named = {};
  std::vector<std::string> operators = {};  // "in", "not in", "<" ...
};

// What a value is assigned to: `name`, or the attribute of a namespace of that name.
struct Target {
  std::string name;
  std::string attribute = {};
};

struct Parameter {
  std::string name;
  ExpressionPtr value = nullptr;  // where the call gives none; null: undefined
};

struct Statement;
using Body = std::vector<Statement>;

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,       // text
    kPrint,      // value
    kIf,         // branches, otherwise
    kFor,        // targets in value if condition: body, otherwise
    kSet,        // targets = value
    kSetBlock,   // targets[0] = what body prints, through the filters of value (a kFilter of null)
    kMacro,      // text(parameters): body
    kCallBlock,  // value is the call; parameters, body: the caller
    kFilterBlock,  // value: filters of what body prints
    kWith,         // parameters: assignments; body
    kBody,         // body
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 1;
  std::string text = {};
  ExpressionPtr value = nullptr;
  ExpressionPtr condition = nullptr;
  std::vector<Target> targets = {};
  std::vector<Parameter> parameters = {};
  std::vector<Branch> branches = {};
  Body body = {};
  Body otherwise = {};
};

}  // namespace pelton::jinja
