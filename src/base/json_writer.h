// Writes JSON text straight into a string. Commas are its business; balance is the caller's
// (CHECKed).
//
//   JsonWriter w(out);
//   w.begin_object();
//   w.key("id").string(id).key("n").integer(3);
//   w.end_object();
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace pelton::base {

class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view value);  // invalid UTF-8 becomes U+FFFD
  JsonWriter& integer(int64_t value);
  JsonWriter& number(double value);  // shortest form that reads back equal; not finite: null
  JsonWriter& boolean(bool value);
  JsonWriter& null();
  JsonWriter& value(const Json& value);
  JsonWriter& raw(std::string_view json);  // text that already is one JSON value

 private:
  void separate();

  std::string& out_;
  bool comma_ = false;  // a value stands before us in this container
};

// `text` between quotes, escaped.
void append_json_string(std::string& out, std::string_view text);
void append_json_number(std::string& out, double value);

}  // namespace pelton::base
