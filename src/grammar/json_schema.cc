#include "grammar/json_schema.h"

#include "grammar/compile_budget.h"
#include "grammar/schema_graph.h"
#include "grammar/schema_tables.h"

namespace pelton::grammar {
namespace {

constexpr uint16_t kWhitespaceMax = 64;

}  // namespace

Result<std::unique_ptr<JsonTables>> json_tables_of(const Json& schema,
                                                   const SchemaOptions& options) {
  CompileBudget budget(options.time_us_max, options.bytes_max, options.deadline);
  SchemaGraph graph;
  TRY_ASSIGN(const NodeId root, graph.read(schema, budget));
  SchemaTables tables(graph, budget);
  const bool flexible = options.whitespace == SchemaOptions::Whitespace::kFlexible;
  return tables.build(root, flexible ? kWhitespaceMax : uint16_t{0});
}

Result<std::shared_ptr<const Grammar>> compile_json_schema(const Json& schema,
                                                           const SchemaOptions& options) {
  TRY_ASSIGN(std::unique_ptr<JsonTables> built, json_tables_of(schema, options));
  return Grammar::from_json_tables(std::move(built));
}

std::shared_ptr<const Grammar> any_json_object(SchemaOptions::Whitespace whitespace) {
  Json schema;
  schema.set("type", "object");
  Result<std::shared_ptr<const Grammar>> grammar =
      compile_json_schema(schema, {.whitespace = whitespace});
  return std::move(grammar).value();
}

}  // namespace pelton::grammar
