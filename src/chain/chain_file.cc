#include "chain/chain_file.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "chain/scanner.h"
#include "cli/command_line.h"

namespace pelton::chain {
namespace {

using cli::TomlNode;
using NodeKind = cli::TomlNode::Kind;

// One table of the file: its members by name, errors with their lines.
class Table {
 public:
  Table(const TomlNode& node, std::string name, const std::string& file)
      : node_(node), name_(std::move(name)), file_(file) {}

  Result<void> expect_only(std::initializer_list<std::string_view> known) const {
    return cli::expect_only_keys(node_, name_, file_, known);
  }
  const TomlNode* find(std::string_view key) const { return node_.find(key); }

  Result<std::string> text(std::string_view key, std::string otherwise) const {
    const TomlNode* const value = find(key);
    if (value == nullptr) return otherwise;
    if (value->kind != NodeKind::kText) return bad(key, "must be a text in quotes");
    return value->text;
  }
  struct Bounds {
    double least = 0;
    double most = 0;
  };
  Result<double> number(std::string_view key, double otherwise, const Bounds& bounds) const {
    const TomlNode* const value = find(key);
    if (value == nullptr) return otherwise;
    const bool is_number = value->kind == NodeKind::kInteger || value->kind == NodeKind::kNumber;
    if (!is_number || !(value->number >= bounds.least && value->number <= bounds.most)) {
      return bad(key, fmt::format("must be a number from {} to {}", bounds.least, bounds.most));
    }
    return value->number;
  }
  Result<int64_t> integer(std::string_view key, int64_t otherwise, const Bounds& bounds) const {
    const TomlNode* const value = find(key);
    if (value != nullptr && value->kind != NodeKind::kInteger) {
      return bad(key,
                 fmt::format("must be a whole number from {} to {}", bounds.least, bounds.most));
    }
    TRY_ASSIGN(const double read, number(key, static_cast<double>(otherwise), bounds));
    return static_cast<int64_t>(read);
  }

  // The line of that key, or the table's own.
  Error bad(std::string_view key, std::string_view what) const {
    int line = node_.line;
    for (const cli::TomlMember& member : node_.members) {
      if (member.name == key) line = member.line;
    }
    return cli::bad_toml(file_, line, fmt::format("{}: '{}' {}", name_, key, what));
  }
  Error bad(std::string_view what) const {
    return cli::bad_toml(file_, node_.line, fmt::format("{} {}", name_, what));
  }
  const TomlNode& node() const { return node_; }
  const std::string& file() const { return file_; }

 private:
  const TomlNode& node_;
  const std::string name_;
  const std::string& file_;
};

constexpr size_t kNameMax = 64;

// As expressions can name it.
bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameMax && begins_name(text[0]) &&
         std::ranges::all_of(text, in_name);
}

// As a URL can: 'a-b' too.
bool is_chain_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameMax && in_name(text[0]) &&
         std::ranges::all_of(text, [](char c) { return in_name(c) || c == '-' || c == '.'; });
}

// Of the names that expressions use for something else.
bool is_reserved(std::string_view name) {
  constexpr std::string_view kReserved[] = {"input", "item", "index", "and",  "or",
                                            "not",   "true", "false", "null", "output"};
  return std::ranges::find(kReserved, name) != std::end(kReserved);
}

constexpr std::pair<std::string_view, Endpoint> kEndpoints[] = {
    {"chat", Endpoint::kChat},
    {"completions", Endpoint::kCompletions},
    {"embeddings", Endpoint::kEmbeddings},
    {"rerank", Endpoint::kRerank}};

Result<void> read_builtin(const Table& table, std::string_view name, Step& step) {
  step.kind = Step::Kind::kBuiltin;
  step.builtin = find_builtin(name);
  if (step.builtin != nullptr) return {};
  std::vector<std::string> names;
  for (const Builtin& builtin : builtins()) names.emplace_back(builtin.name);
  const std::optional<std::string> near = cli::nearest(name, names);
  return table.bad("use", fmt::format("there is no builtin '{}'{}; there are {}", name,
                                      near ? fmt::format("; did you mean '{}'?", *near) : "",
                                      fmt::join(names, ", ")));
}

Result<void> read_model(const Table& table, std::string_view name, Step& step) {
  step.kind = Step::Kind::kModel;
  step.target = std::string(name);
  if (name.empty()) {
    return table.bad("use", "names no model: \"model:NAME\", or \"model:*\" for the one served");
  }
  if (name.starts_with("chain:")) {
    return table.bad("use", "names a chain: a step asks a model, so that no chain asks itself");
  }
  TRY_ASSIGN(const std::string endpoint, table.text("endpoint", "chat"));
  for (const auto& [known, value] : kEndpoints) {
    if (known != endpoint) continue;
    step.endpoint = value;
    return {};
  }
  return table.bad("endpoint", fmt::format("must be chat, completions, embeddings or rerank, and "
                                           "is '{}'",
                                           endpoint));
}

Result<void> read_http(const Table& table, std::string_view url, Step& step) {
  step.kind = Step::Kind::kHttp;
  step.target = std::string(url);
  if (!url.starts_with("http://") && !url.starts_with("https://")) {
    return table.bad("use", "is \"http:URL\", as in \"http:https://search.example/find\"");
  }
  if (url.find("${") != std::string_view::npos) {
    return table.bad("use", "may hold no expression: what differs goes into 'with'");
  }
  TRY_ASSIGN(const std::string method, table.text("method", "POST"));
  if (method != "POST" && method != "GET") return table.bad("method", "must be POST or GET");
  step.posts = method == "POST";
  TRY_ASSIGN(const std::string answer, table.text("answer", "json"));
  if (answer != "json" && answer != "text") return table.bad("answer", "must be json or text");
  step.takes_text = answer == "text";
  return {};
}

Result<void> read_use(const Table& table, Step& step) {
  TRY_ASSIGN(const std::string use, table.text("use", ""));
  const size_t colon = std::min(use.find(':'), use.size());
  const std::string_view kind = std::string_view(use).substr(0, colon);
  const std::string_view target =
      colon < use.size() ? std::string_view(use).substr(colon + 1) : std::string_view();
  const bool is_model = kind == "model";
  const bool is_http = kind == "http";
  for (const std::string_view key : {"endpoint"}) {
    if (!is_model && table.find(key) != nullptr) return table.bad(key, "is of model: steps");
  }
  for (const std::string_view key : {"method", "answer"}) {
    if (!is_http && table.find(key) != nullptr) return table.bad(key, "is of http: steps");
  }
  if (is_model) return read_model(table, target, step);
  if (is_http) return read_http(table, target, step);
  if (kind == "builtin") return read_builtin(table, target, step);
  if (kind == "exec") {
    return table.bad("use",
                     "exec: steps are not run, as there is no sandbox for them; offer the "
                     "program over HTTP and use http:");
  }
  return table.bad("use", "must be \"model:NAME\", \"http:URL\" or \"builtin:NAME\"");
}

Result<void> read_retry(const Table& step_table, Step& step) {
  const TomlNode* const node = step_table.find("retry");
  if (node == nullptr) return {};
  if (node->kind != NodeKind::kTable) return step_table.bad("retry", "must be a table");
  const Table table(*node, fmt::format("step '{}': retry", step.name), step_table.file());
  TRY(table.expect_only({"max", "wait_s", "on"}));
  TRY_ASSIGN(const int64_t most, table.integer("max", 2, {0, 10}));
  step.retry.most = static_cast<int>(most);
  TRY_ASSIGN(step.retry.wait_s, table.number("wait_s", 0.5, {0, 30}));
  const TomlNode* const on = table.find("on");
  if (on == nullptr) return {};
  if (on->kind != NodeKind::kList) return table.bad("on", "must be a list of texts");
  step.retry.server_error = step.retry.busy = step.retry.timeout = step.retry.unreachable = false;
  for (const TomlNode& one : on->items) {
    bool* const flag = one.text == "5xx"           ? &step.retry.server_error
                       : one.text == "429"         ? &step.retry.busy
                       : one.text == "timeout"     ? &step.retry.timeout
                       : one.text == "unreachable" ? &step.retry.unreachable
                                                   : nullptr;
    if (one.kind != NodeKind::kText || flag == nullptr) {
      return table.bad("on", "holds \"5xx\", \"429\", \"timeout\" or \"unreachable\"");
    }
    *flag = true;
  }
  return {};
}

Result<std::optional<Template>> read_condition(const Table& table, std::string_view key) {
  const TomlNode* const node = table.find(key);
  if (node == nullptr) return std::optional<Template>();
  TRY_ASSIGN(Template tree, read_template(*node, table.file()));
  if (tree.kind != Template::Kind::kExpression) {
    return table.bad(key, "must be one expression, as in \"${step.field}\"");
  }
  return std::optional(std::move(tree));
}

Result<Step> read_step(const TomlNode& node, size_t number, const std::string& file) {
  if (node.kind != NodeKind::kTable) return cli::bad_toml(file, node.line, "'step' is no table");
  const Table unnamed(node, fmt::format("step {}", number), file);
  Step step;
  step.line = node.line;
  TRY_ASSIGN(step.name, unnamed.text("name", ""));
  if (!is_name(step.name)) {
    return unnamed.bad("name", fmt::format("must be a letter or '_' and then letters, digits or "
                                           "'_', at most {}, and is '{}'",
                                           kNameMax, step.name));
  }
  if (is_reserved(step.name)) return unnamed.bad("name", "is one that expressions use themselves");
  const Table table(node, fmt::format("step '{}'", step.name), file);
  TRY(table.expect_only({"name", "use", "endpoint", "method", "answer", "with", "for_each",
                         "parallel", "pieces_max", "when", "retry", "timeout_s"}));
  TRY(read_use(table, step));
  TRY(read_retry(table, step));
  if (const TomlNode* const with = table.find("with"); with != nullptr) {
    if (with->kind != NodeKind::kTable) return table.bad("with", "must be a table");
    TRY_ASSIGN(step.with, read_template(*with, file));
  }
  step.with.kind = Template::Kind::kObject;
  step.with.line = step.with.line == 0 ? step.line : step.with.line;
  TRY_ASSIGN(step.for_each, read_condition(table, "for_each"));
  TRY_ASSIGN(step.when, read_condition(table, "when"));
  for (const std::string_view key : {"parallel", "pieces_max"}) {
    if (!step.for_each && table.find(key) != nullptr) return table.bad(key, "wants 'for_each'");
  }
  TRY_ASSIGN(const int64_t parallel, table.integer("parallel", 4, {1, kParallelMax}));
  step.parallel = static_cast<int>(parallel);
  TRY_ASSIGN(step.pieces_max, table.integer("pieces_max", 10'000, {1, kPiecesMax}));
  TRY_ASSIGN(step.timeout_s, table.number("timeout_s", 120, {0.001, 86'400}));
  return step;
}

Result<void> read_input(const Table& root, Chain& chain) {
  const TomlNode* const node = root.find("input");
  if (node == nullptr) return {};
  if (node->kind != NodeKind::kTable) return root.bad("input", "must be a table");
  const Table table(*node, "input", root.file());
  for (const cli::TomlMember& member : node->members) {
    if (!is_name(member.name)) return table.bad(member.name, "is no name for expressions");
    const std::optional<Type> type = parse_type(member.value.text);
    if (member.value.kind != NodeKind::kText || !type) {
      return table.bad(member.name,
                       "must be \"string\", \"number\", \"integer\", \"boolean\", "
                       "\"object\", \"any\" or a list, \"[string]\"; with '?' where "
                       "it may be left out");
    }
    chain.input.push_back({.name = member.name, .type = *type});
  }
  return {};
}

Result<std::string> read_output(const Table& root, Chain& chain) {
  const TomlNode* const node = root.find("output");
  if (node == nullptr || node->kind != NodeKind::kTable || node->members.empty()) {
    return root.bad("output", "must be a table: what the chain answers");
  }
  TomlNode fields = *node;
  std::string stream_from;
  for (const cli::TomlMember& member : node->members) {
    if (member.name == "stream_from") stream_from = member.value.text;
  }
  std::erase_if(fields.members,
                [](const cli::TomlMember& member) { return member.name == "stream_from"; });
  TRY_ASSIGN(chain.output, read_template(fields, root.file()));
  return stream_from;
}

Result<void> find_stream(const Table& root, std::string_view name, Chain& chain) {
  if (root.find("output")->find("stream_from") == nullptr) return {};
  const auto found =
      std::ranges::find_if(chain.steps, [&](const Step& step) { return step.name == name; });
  const bool fits =
      found != chain.steps.end() && found->kind == Step::Kind::kModel && !found->for_each &&
      (found->endpoint == Endpoint::kChat || found->endpoint == Endpoint::kCompletions);
  if (!fits) {
    return root.bad("output", fmt::format("'stream_from' names a model: step that writes text, "
                                          "without for_each; '{}' is none",
                                          name));
  }
  chain.stream_from = static_cast<size_t>(found - chain.steps.begin());
  return {};
}

}  // namespace

Result<Chain> read_chain_tables(const TomlNode& node, const std::string& file) {
  const Table root(node, "chain", file);
  TRY(root.expect_only({"name", "about", "input", "output", "timeout_s", "step"}));
  Chain chain;
  chain.file = file;
  TRY_ASSIGN(chain.name, root.text("name", ""));
  if (!is_chain_name(chain.name)) {
    return root.bad("name", fmt::format("must be letters, digits, '_', '-' or '.', at most {}, and "
                                        "is '{}'",
                                        kNameMax, chain.name));
  }
  TRY_ASSIGN(chain.about, root.text("about", ""));
  if (root.find("timeout_s") != nullptr) {
    TRY_ASSIGN(chain.timeout_s, root.number("timeout_s", 0, {0.001, 86'400}));
  }
  TRY(read_input(root, chain));
  const TomlNode* const steps = root.find("step");
  if (steps == nullptr || steps->kind != NodeKind::kList || steps->items.empty()) {
    return root.bad("has no [[step]]");
  }
  if (steps->items.size() > kStepsMax) {
    return root.bad("step", fmt::format("stands there {} times; a chain has at most {} steps",
                                        steps->items.size(), kStepsMax));
  }
  for (const TomlNode& one : steps->items) {
    TRY_ASSIGN(Step step, read_step(one, chain.steps.size() + 1, file));
    for (const Step& before : chain.steps) {
      if (before.name != step.name) continue;
      return cli::bad_toml(
          file, step.line,
          fmt::format("there is a step '{}' already, in line {}", step.name, before.line));
    }
    chain.steps.push_back(std::move(step));
  }
  TRY_ASSIGN(const std::string stream_from, read_output(root, chain));
  TRY(find_stream(root, stream_from, chain));
  return chain;
}

}  // namespace pelton::chain
