#include "api/field_table.h"

#include <algorithm>
#include <utility>

namespace pelton::api {

// A parser that calls find("n") and then integer("n", {.low = 1, .high = 8}) notes "n" of any kind,
// then, in its place, as an integer from 1 to 8; a text("n") after that changes nothing.
void FieldTable::note(Field field) {
  const auto known = std::find_if(fields_.begin(), fields_.end(),
                                  [&](const Field& one) { return one.name == field.name; });
  if (known == fields_.end()) {
    fields_.push_back(std::move(field));
  } else if (known->kind == Kind::kAny) {
    *known = std::move(field);
  }
}

const FieldTable::Field* FieldTable::find(std::string_view name) const {
  for (const Field& field : fields_) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

}  // namespace pelton::api
