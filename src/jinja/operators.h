// Operators on values, as Python has them. All charge what they cost.
#pragma once

#include <string_view>

#include "base/result.h"
#include "jinja/runtime.h"
#include "jinja/value.h"

namespace pelton::jinja {

// + - * / // % **. Integers stay within 64 bits; past them there is an error.
Result<Value> arithmetic(Runtime& runtime, std::string_view name, const Value& a, const Value& b);

// == != < <= > >= in, not in.
Result<bool> compare(Runtime& runtime, std::string_view name, const Value& a, const Value& b);

// value.name: a method or an attribute, then a dict's member; undefined if there is none. Error: of
// an undefined value.
Result<Value> attribute_of(Runtime& runtime, const Value& value, std::string_view name);
// value[key]: an item or a member, then an attribute.
Result<Value> item_of(Runtime& runtime, const Value& value, const Value& key);
// value[begin:end:step]; null: left out.
Result<Value> slice_of(Runtime& runtime, const Value& value, const Value* begin, const Value* end,
                       const Value* step);

}  // namespace pelton::jinja
