#include "api/stream_asked.h"

#include "base/json_visitor.h"

namespace pelton::api {
namespace {

// The body's "stream", if it is a boolean of the outermost object.
class StreamVisitor final : public base::JsonVisitor {
 public:
  bool begin_object() override { return begin(); }
  bool end_object() override { return end(); }
  bool begin_array() override { return begin(); }
  bool end_array() override { return end(); }
  bool key(std::string_view name) override {
    is_next_ = depth_ == 1 && name == "stream";
    return true;
  }
  bool string(std::string_view /*value*/) override { return scalar(); }
  bool integer(int64_t /*value*/) override { return scalar(); }
  bool other(const Json& value) override {
    if (is_next_ && value.is_bool()) streams_ = value.as_bool();
    return scalar();
  }

  bool streams() const { return streams_; }

 private:
  bool begin() {
    is_next_ = false;
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }
  bool scalar() {
    is_next_ = false;
    return depth_ > 0;
  }

  int depth_ = 0;
  bool is_next_ = false;
  bool streams_ = false;
};

}  // namespace

bool stream_asked(std::string_view body) {
  StreamVisitor visitor;
  return base::visit_json(body, visitor).ok() && visitor.streams();
}

}  // namespace pelton::api
