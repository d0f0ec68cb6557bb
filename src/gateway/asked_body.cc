#include "gateway/asked_body.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "api/builtin_tools.h"
#include "base/json_visitor.h"

namespace pelton::gateway {
namespace {

// Where in an object a visitor stands: of the keys on the way down only the last two are looked at.
class PathVisitor : public base::JsonVisitor {
 public:
  bool begin_object() override { return opens('{'); }
  bool begin_array() override { return opens('['); }
  bool end_object() override { return closes('}'); }
  bool end_array() override { return closes(']'); }
  bool key(std::string_view name) override {
    keys_.back() = name;
    add_key(name);
    return true;
  }
  bool integer(int64_t value) override { return other(Json(value)); }
  bool other(const Json& value) override {
    add(value.dump());
    return depth() > 0;  // else it is no object
  }
  bool string(std::string_view value) override {
    text(value);
    return depth() > 0;
  }

 protected:
  size_t depth() const { return keys_.size(); }
  // Of the container so many levels below the top: the last key that was read there.
  const std::string& key_at(size_t level) const { return keys_[level]; }

  virtual void text(std::string_view value) = 0;
  virtual void add(std::string_view value) = 0;
  virtual void add_key(std::string_view name) = 0;
  virtual void opened(char bracket) = 0;
  virtual void closed(char bracket) = 0;

 private:
  bool opens(char bracket) {
    if (depth() == 0 && bracket == '[') return false;
    opened(bracket);
    keys_.emplace_back();
    return true;
  }
  bool closes(char bracket) {
    keys_.pop_back();
    closed(bracket);
    return true;
  }

  std::vector<std::string> keys_;  // by level; of an array empty
};

class BeginningVisitor final : public PathVisitor {
 public:
  std::string take() {
    if (!has_turn_) return "";
    return system_ + instructions_ + (messages_.empty() ? input_ : messages_);
  }

 private:
  // Where what is read is to be kept; null: nowhere.
  std::string* kept() {
    if (depth() == 0) return nullptr;
    const std::string& name = key_at(0);
    if (name == "system") return &system_;
    if (name == "instructions") return &instructions_;
    if (is_done_) return nullptr;
    return name == "messages" ? &messages_ : name == "input" ? &input_ : nullptr;
  }
  bool is_turn(size_t level) const {
    return depth() == level && (key_at(0) == "messages" || key_at(0) == "input");
  }

  void keep(char kind, std::string_view value) {
    std::string* const into = kept();
    if (into == nullptr) return;
    // Lengths first: no two different beginnings are written alike.
    *into += kind;
    *into += std::to_string(value.size());
    *into += ':';
    *into += value;
  }
  void text(std::string_view value) override {
    keep('s', value);
    if (is_turn(1) && key_at(0) == "input" && !value.empty()) note_turn();
    if (is_turn(3) && key_at(2) == "role") is_users_ = value == "user";
  }
  void add(std::string_view value) override { keep('v', value); }
  void add_key(std::string_view name) override {
    if (depth() > 1) keep('k', name);
  }
  void opened(char bracket) override {
    if (depth() > 0) keep(bracket, "");
    if (bracket == '{' && is_turn(2)) is_users_ = false;
  }
  void closed(char bracket) override {
    if (depth() > 0) keep(bracket, "");
    if (bracket == '}' && is_turn(2) && std::exchange(is_users_, false)) note_turn();
  }
  void note_turn() {
    has_turn_ = true;
    is_done_ = true;
  }

  std::string system_;
  std::string instructions_;
  std::string messages_;
  std::string input_;
  bool is_users_ = false;  // the turn at hand
  bool has_turn_ = false;
  bool is_done_ = false;  // further turns do not count
};

class UserVisitor final : public PathVisitor {
 public:
  std::string take() {
    if (!safety_identifier_.empty()) return std::move(safety_identifier_);
    return std::move(user_.empty() ? user_id_ : user_);
  }

 private:
  void text(std::string_view value) override {
    if (depth() == 1 && key_at(0) == "safety_identifier") safety_identifier_ = value;
    if (depth() == 1 && key_at(0) == "user") user_ = value;
    if (depth() == 2 && key_at(0) == "metadata" && key_at(1) == "user_id") user_id_ = value;
  }
  void add(std::string_view /*value*/) override {}
  void add_key(std::string_view /*name*/) override {}
  void opened(char /*bracket*/) override {}
  void closed(char /*bracket*/) override {}

  std::string safety_identifier_;
  std::string user_;
  std::string user_id_;
};

class ToolVisitor final : public PathVisitor {
 public:
  bool has_builtin() const { return tools_.any(); }

 private:
  void text(std::string_view value) override {
    const bool is_type = depth() == 3 && key_at(0) == "tools" && key_at(2) == "type";
    if (is_type) tools_.add(value, {.browser = true, .python = true});
  }
  void add(std::string_view /*value*/) override {}
  void add_key(std::string_view /*name*/) override {}
  void opened(char /*bracket*/) override {}
  void closed(char /*bracket*/) override {}

  api::BuiltinTools tools_;
};

template <typename Visitor>
std::string taken_from(std::string_view body) {
  Visitor visitor;
  return base::visit_json(body, visitor).ok() ? visitor.take() : "";
}

}  // namespace

std::string conversation_beginning(std::string_view body) {
  return taken_from<BeginningVisitor>(body);
}

std::string user_of_body(std::string_view body) {
  return taken_from<UserVisitor>(body);
}

bool has_builtin_tool(std::string_view body) {
  ToolVisitor visitor;
  return base::visit_json(body, visitor).ok() && visitor.has_builtin();
}

}  // namespace pelton::gateway
