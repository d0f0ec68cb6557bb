// JSON as a stream of events, for files too large to hold as Json values. The same grammar and
// bounds as Json::parse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pelton::base {

// What a text contains, in its order. Each call returns false to stop the parse. Views live for the
// length of the call.
class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;
  virtual bool begin_object() = 0;
  virtual bool end_object() = 0;
  virtual bool begin_array() = 0;
  virtual bool end_array() = 0;
  virtual bool key(std::string_view name) = 0;
  virtual bool string(std::string_view value) = 0;
  virtual bool integer(int64_t value) = 0;
  virtual bool other(const Json& value) = 0;  // null, a boolean, a number that is no int64
};

// Errors: kInvalidArgument with the byte offset if that is no JSON (what came before it has been
// visited); kCancelled if the visitor stopped.
Result<void> visit_json(std::string_view text, JsonVisitor& visitor);

// Builds the value whose events it is given: a part of a large text that is wanted as Json.
class JsonBuilder : public JsonVisitor {
 public:
  // Stops after `values_max` values: a Json takes far more memory than its text.
  explicit JsonBuilder(size_t values_max) : values_left_(values_max) {}

  bool begin_object() override { return open(Json(Json::Object{})); }
  bool end_object() override { return close(); }
  bool begin_array() override { return open(Json(Json::Array{})); }
  bool end_array() override { return close(); }
  bool key(std::string_view name) override;
  bool string(std::string_view value) override { return add(Json(value)); }
  bool integer(int64_t value) override { return add(Json(value)); }
  bool other(const Json& value) override { return add(value); }

  bool done() const { return done_; }
  Json take() { return std::move(result_); }

 private:
  bool open(Json container);
  bool close();
  bool add(Json value);

  size_t values_left_;
  std::vector<Json> open_;
  std::vector<std::string> keys_;  // of the objects that wait for this value
  Json result_;
  bool done_ = false;
};

}  // namespace pelton::base
