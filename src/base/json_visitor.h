// JSON as a stream of events, for files too large to hold as Json values. The same grammar and
// bounds as Json::parse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

// How many members or items each container of a text has, in the order in which they begin, and how
// many values there are in all. Of a text that is no JSON: some numbers, none above its bytes.
struct JsonSizes {
  std::vector<uint32_t> containers;
  size_t values = 0;
};

// Stops counting once there are more than `values_max`, or it is too deep.
JsonSizes count_json(std::string_view text, size_t values_max);

// Builds the value whose events it is given: a part of a large text that is wanted as Json.
class JsonBuilder : public JsonVisitor {
 public:
  // Stops after `values_max` values: a Json takes far more memory than its text.
  explicit JsonBuilder(size_t values_max) : values_left_(values_max) {}
  // Of a text whose sizes are known: memory is taken once, and no more than the values need. They
  // outlive it.
  JsonBuilder(size_t values_max, std::span<const uint32_t> container_sizes)
      : values_left_(values_max), sizes_(container_sizes) {}

  bool begin_object() override;
  bool end_object() override { return close(); }
  bool begin_array() override;
  bool end_array() override { return close(); }
  bool key(std::string_view name) override;
  bool string(std::string_view value) override;
  bool integer(int64_t value) override;
  bool other(const Json& value) override;

  bool done() const { return done_; }
  Json take() { return std::move(result_); }

 private:
  bool close();
  template <typename Value>
  bool add(Value&& value);
  size_t next_size();  // of the container that begins; 0 where that is not known

  size_t values_left_;
  std::span<const uint32_t> sizes_;  // of the containers to come
  std::vector<Json> open_;
  std::vector<std::string> keys_;  // of the objects that wait for this value
  Json result_;
  bool done_ = false;
};

}  // namespace pelton::base
