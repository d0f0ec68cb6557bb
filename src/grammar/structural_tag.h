// Structural tags -> Grammar: text in which structures stand, as vLLM, XGrammar and SGLang take
// them. Either `{"structures": [{"begin", "schema", "end"}], "triggers": [...]}`: free text, but
// once it has spelled a trigger it goes on as one of the structures that begin with it; or
// `{"format": {...}}`, a tree of formats (docs/serving.md lists them). Fails closed: a member or a
// format that is not understood is an Error whose field is its JSON pointer. A pure function; any
// thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/json.h"
#include "base/result.h"
#include "grammar/compile_deadline.h"
#include "grammar/grammar.h"

namespace pelton::grammar {

struct TagOptions {
  // For all parts together, as SchemaOptions has them for one schema.
  int64_t time_us_max = 900'000;
  size_t bytes_max = 48 << 20;
  const CompileDeadline* deadline = nullptr;  // of the request; null: none
};

// Errors, each with `field`: the JSON pointer. kUnsupported, kInvalidArgument, kDoesNotFit as
// compile_json_schema says.
Result<std::shared_ptr<const Grammar>> compile_structural_tag(const Json& tag,
                                                              const TagOptions& options);

}  // namespace pelton::grammar
