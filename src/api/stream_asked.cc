#include "api/stream_asked.h"

#include "base/json_visitor.h"

namespace pelton::api {
namespace {

// Of the outermost object's fields alone.
class StreamVisitor final : public base::JsonVisitor {
 public:
  bool begin_object() override { return begin(); }
  bool end_object() override { return end(); }
  bool begin_array() override { return depth_ > 0 && begin(); }
  bool end_array() override { return end(); }
  bool key(std::string_view name) override {
    const bool is_outermost = depth_ == 1;
    is_stream_ = is_outermost && name == "stream";
    is_format_ = is_outermost && name == "stream_format";
    return true;
  }
  bool string(std::string_view value) override {
    if (is_format_) asked_.is_sse = value == "sse";
    return scalar();
  }
  bool integer(int64_t /*value*/) override { return scalar(); }
  bool other(const Json& value) override {
    if (is_stream_ && value.is_bool()) asked_.stream = value.as_bool();
    return scalar();
  }

  const StreamAsked& asked() const { return asked_; }

 private:
  bool begin() {
    is_stream_ = is_format_ = false;
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }
  bool scalar() {
    is_stream_ = is_format_ = false;
    return depth_ > 0;
  }

  int depth_ = 0;
  bool is_stream_ = false;  // of "stream" the value comes next
  bool is_format_ = false;
  StreamAsked asked_;
};

}  // namespace

std::optional<StreamAsked> stream_asked(std::string_view body) {
  StreamVisitor visitor;
  if (!base::visit_json(body, visitor).ok()) return std::nullopt;
  return visitor.asked();
}

}  // namespace pelton::api
