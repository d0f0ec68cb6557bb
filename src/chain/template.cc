#include "chain/template.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

namespace pelton::chain {
namespace {

using Kind = Template::Kind;
using cli::TomlNode;

constexpr int64_t kValueBytes = 40;

Error bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), {}};
}

Template literal_text(std::string text, int line) {
  Template part;
  part.line = line;
  part.literal = Json(std::move(text));
  return part;
}

// Where the '}' of a "${" stands that ends before `begin`; a text in quotes may hold one.
size_t end_of_expression(std::string_view text, size_t begin) {
  bool quoted = false;
  for (size_t at = begin; at < text.size(); ++at) {
    if (text[at] == '\'') quoted = !quoted;
    if (text[at] == '}' && !quoted) return at;
  }
  return std::string_view::npos;
}

Result<Template> read_text(const TomlNode& node, const std::string& file) {
  const std::string_view text = node.text;
  Template whole;
  whole.kind = Kind::kText;
  whole.line = node.line;
  std::string literal;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with("$${")) {
      literal += "${";
      at += 3;
      continue;
    }
    if (!text.substr(at).starts_with("${")) {
      literal += text[at++];
      continue;
    }
    const size_t end = end_of_expression(text, at + 2);
    if (end == std::string_view::npos) {
      return cli::bad_toml(file, node.line, "'${' without its '}'; \"$${\" is one that is none");
    }
    const std::string_view inner = text.substr(at + 2, end - at - 2);
    Result<Expression> expression = parse_expression(inner);
    if (!expression.ok()) {
      return cli::bad_toml(file, node.line,
                           fmt::format("'${{{}}}' {}", inner, expression.error().message));
    }
    if (!literal.empty()) {
      whole.parts.push_back(literal_text(std::exchange(literal, {}), node.line));
    }
    Template part;
    part.kind = Kind::kExpression;
    part.line = node.line;
    part.expression = *std::move(expression);
    whole.parts.push_back(std::move(part));
    at = end + 1;
  }
  if (whole.parts.empty()) return literal_text(std::move(literal), node.line);
  if (whole.parts.size() == 1 && literal.empty() && whole.parts[0].kind == Kind::kExpression) {
    Template only = std::move(whole.parts[0]);
    return only;
  }
  if (!literal.empty()) whole.parts.push_back(literal_text(std::move(literal), node.line));
  return whole;
}

Result<void> spend(RenderBudget& budget, int64_t bytes) {
  budget.bytes_left -= bytes;
  if (budget.bytes_left >= 0) return {};
  return Error{ErrorCode::kDoesNotFit, "what its templates come to is too large", {}};
}

Result<Json> render_text(const Template& tree, const ValueOf& names, RenderBudget& budget) {
  std::string text;
  for (const Template& part : tree.parts) {
    if (part.kind == Kind::kLiteral) {
      TRY(spend(budget, std::ssize(part.literal.as_string())));
      text += part.literal.as_string();
      continue;
    }
    TRY_ASSIGN(const Evaluated value, evaluate(part.expression, names));
    const Json& inserted = value.get();
    if (inserted.is_null()) continue;
    TRY(spend(budget, inserted.is_string() ? std::ssize(inserted.as_string())
                                           : approximate_bytes(inserted)));
    text += inserted.is_string() ? inserted.as_string() : inserted.dump();
  }
  return Json(std::move(text));
}

}  // namespace

const Template* Template::find(std::string_view name) const {
  for (const auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return nullptr;
}

Result<Template> read_template(const TomlNode& node, const std::string& file) {
  Template tree;
  tree.line = node.line;
  switch (node.kind) {
    case TomlNode::Kind::kText:
      return read_text(node, file);
    case TomlNode::Kind::kBoolean:
      tree.literal = Json(node.boolean);
      return tree;
    case TomlNode::Kind::kInteger:
      tree.literal = Json(node.integer);
      return tree;
    case TomlNode::Kind::kNumber:
      tree.literal = Json(node.number);
      return tree;
    case TomlNode::Kind::kList:
      tree.kind = Kind::kList;
      for (const TomlNode& item : node.items) {
        TRY_ASSIGN(Template part, read_template(item, file));
        tree.parts.push_back(std::move(part));
      }
      return tree;
    case TomlNode::Kind::kTable:
      tree.kind = Kind::kObject;
      for (const cli::TomlMember& member : node.members) {
        TRY_ASSIGN(Template value, read_template(member.value, file));
        tree.members.push_back({.name = member.name, .value = std::move(value)});
      }
      return tree;
    case TomlNode::Kind::kOther:
      break;
  }
  return cli::bad_toml(file, node.line, "a date, a time, or a value nested too deeply");
}

void for_each_name(const Template& tree,
                   const std::function<void(std::string_view name, int line)>& found) {
  if (tree.kind == Kind::kExpression) {
    for_each_name(tree.expression, [&](std::string_view name) { found(name, tree.line); });
  }
  for (const Template& part : tree.parts) for_each_name(part, found);
  for (const auto& [name, value] : tree.members) for_each_name(value, found);
}

Result<Type> type_of(const Template& tree, const TypeOf& names, const std::string& file) {
  switch (tree.kind) {
    case Kind::kLiteral: {
      Expression literal;
      literal.value = tree.literal;
      return type_of(literal, names);
    }
    case Kind::kExpression: {
      Result<Type> type = type_of(tree.expression, names);
      if (!type.ok()) return cli::bad_toml(file, tree.line, type.error().message);
      return type;
    }
    case Kind::kText:
      for (const Template& part : tree.parts) TRY(type_of(part, names, file));
      return Type::of(Type::Kind::kText);
    case Kind::kList: {
      std::optional<Type> item;
      for (const Template& part : tree.parts) {
        TRY_ASSIGN(Type type, type_of(part, names, file));
        const bool same = !item || (accepts(*item, type) && accepts(type, *item));
        item = same ? std::move(type) : Type().or_null();
      }
      return Type::list(item ? *std::move(item) : Type());
    }
    case Kind::kObject: {
      std::vector<Type::Field> fields;
      for (const auto& [name, value] : tree.members) {
        TRY_ASSIGN(Type type, type_of(value, names, file));
        fields.push_back({.name = name, .type = std::move(type)});
      }
      return Type::object(std::move(fields));
    }
  }
  return Type();
}

Result<Json> render(const Template& tree, const ValueOf& names, RenderBudget& budget) {
  switch (tree.kind) {
    case Kind::kLiteral:
      TRY(spend(budget, approximate_bytes(tree.literal)));
      return tree.literal;
    case Kind::kExpression: {
      TRY_ASSIGN(Evaluated value, evaluate(tree.expression, names));
      TRY(spend(budget, approximate_bytes(value.get())));
      return value.take();
    }
    case Kind::kText:
      return render_text(tree, names, budget);
    case Kind::kList: {
      Json::Array items;
      for (const Template& part : tree.parts) {
        TRY_ASSIGN(Json item, render(part, names, budget));
        items.push_back(std::move(item));
      }
      return Json(std::move(items));
    }
    case Kind::kObject: {
      Json object{Json::Object{}};
      for (const auto& [name, value] : tree.members) {
        TRY_ASSIGN(Json member, render(value, names, budget));
        object.as_object().push_back({.key = name, .value = std::move(member)});
      }
      return object;
    }
  }
  return bad("is of no kind");
}

int64_t approximate_bytes(const Json& value) {
  int64_t bytes = kValueBytes;
  if (value.is_string()) bytes += std::ssize(value.as_string());
  if (value.is_array()) {
    for (const Json& item : value.as_array()) bytes += approximate_bytes(item);
  }
  if (value.is_object()) {
    for (const Json::Member& member : value.as_object()) {
      bytes += std::ssize(member.key) + approximate_bytes(member.value);
    }
  }
  return bytes;
}

}  // namespace pelton::chain
