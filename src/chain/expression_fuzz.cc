// Any bytes as an expression: refused, or given a type and a value, each of which may fail too; a
// value is of its type.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "chain/expression.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;         // NOLINT
  using namespace pelton::chain;  // NOLINT
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Expression> expression = parse_expression(text);
  if (!expression.ok()) {
    CHECK(!expression.error().message.empty());
    return 0;
  }
  static const Json value =
      *Json::parse(R"({"text":"ab","list":[{"n":1,"s":"x"},{"n":2,"s":"y"}],"n":3.5,"b":true})");
  static const Type item = Type::object({{.name = "n", .type = Type::of(Type::Kind::kInteger)},
                                         {.name = "s", .type = Type::of(Type::Kind::kText)}});
  static const Type type =
      Type::object({{.name = "text", .type = Type::of(Type::Kind::kText)},
                    {.name = "list", .type = Type::list(item)},
                    {.name = "n", .type = Type::of(Type::Kind::kNumber)},
                    {.name = "b", .type = Type::of(Type::Kind::kBoolean)},
                    {.name = "none", .type = Type::of(Type::Kind::kText).or_null()}});
  const Result<Type> of = type_of(*expression, [](std::string_view) { return &type; });
  const Result<Evaluated> result = evaluate(*expression, [](std::string_view) { return &value; });
  if (of.ok() && result.ok()) CHECK(holds(*of, result->get()), result->get().dump());
  return 0;
}
