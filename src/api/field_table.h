// Which fields a parser reads of a body: their names, kinds and limits, noted as they are read. A
// parser reads all of its fields even of an empty object, so one run over "{}" gives the table, and
// the table cannot differ from the parser. Of it the OpenAPI document's request schemas are made.
// A value on the stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::api {

struct NumberRange {
  double low;
  double high;
  bool low_open = false;  // low itself is refused
};

struct IntegerRange {
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();
};

class FieldTable {
 public:
  enum class Kind { kAny, kObject, kArray, kNumber, kInteger, kBoolean, kText };

  struct Field {
    std::string name;
    Kind kind = Kind::kAny;
    NumberRange numbers = {};    // kNumber
    IntegerRange integers = {};  // kInteger
    size_t size_max = SIZE_MAX;  // kText: bytes; kArray: items
  };

  // A field is noted once; what is first known of its kind stays.
  void note(Field field);

  const std::vector<Field>& fields() const { return fields_; }  // in the order of their reads
  const Field* find(std::string_view name) const;

 private:
  std::vector<Field> fields_;
};

}  // namespace pelton::api
