// JSON Schema -> grammar. Draft 2020-12, and the older drafts' forms where `$schema` names them or
// where they mean nothing else. Fails closed: what it cannot promise is an Error whose field is the
// JSON pointer of the keyword. A pure function; any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/json.h"
#include "base/result.h"
#include "grammar/compile_deadline.h"
#include "grammar/grammar.h"
#include "grammar/json_tables.h"

namespace pelton::grammar {

struct SchemaOptions {
  // Whitespace between tokens of JSON: none, or up to 64 characters in each place (models differ
  // in how they like their JSON).
  enum class Whitespace { kNone, kFlexible };
  Whitespace whitespace = Whitespace::kFlexible;
  int64_t time_us_max = 900'000;
  size_t bytes_max = 48 << 20;
  const CompileDeadline* deadline = nullptr;  // of the request; null: none
};

// Errors, each with `field`: the JSON pointer. kUnsupported: a keyword or a combination we do not
// do; kInvalidArgument: no schema, or nothing can satisfy it; kDoesNotFit: too complex.
Result<std::shared_ptr<const Grammar>> compile_json_schema(const Json& schema,
                                                           const SchemaOptions& options);

// The same as tables alone, for a grammar of which they are a part.
Result<std::unique_ptr<JsonTables>> json_tables_of(const Json& schema,
                                                   const SchemaOptions& options);

// Any JSON object: what `response_format: json_object` asks for.
std::shared_ptr<const Grammar> any_json_object(SchemaOptions::Whitespace whitespace);

}  // namespace pelton::grammar
