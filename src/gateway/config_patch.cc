#include "gateway/config_patch.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/toml_tree.h"
#include "gateway/config_changes.h"
#include "gateway/config_json.h"

namespace pelton::gateway {
namespace {

using cli::TomlNode;
using Path = std::vector<std::string>;

Error bad_patch(std::string what) {
  return {ErrorCode::kInvalidArgument, std::move(what), "body"};
}

std::string_view without_blanks(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : line.substr(first);
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

bool is_header(std::string_view line) {
  return without_blanks(line).starts_with('[');
}

// Of a line by itself the comment behind its value, with the blanks before it.
std::string_view comment_behind(std::string_view line) {
  std::string_view open;  // the quotes of the text that it is within
  for (size_t i = 0; i < line.size();) {
    const std::string_view rest = line.substr(i);
    const char first = rest.front();
    if (!open.empty()) {
      if (rest.starts_with(open)) {
        i += open.size();
        // Of a text that ends with quotes.
        while (open.size() == 3 && i < line.size() && line[i] == first) ++i;
        open = {};
      } else {
        i += first == '\\' && open.front() == '"' ? 2 : 1;
      }
    } else if (first == '"' || first == '\'') {
      const bool is_long = rest.starts_with(R"(""")") || rest.starts_with("'''");
      open = rest.substr(0, is_long ? 3 : 1);
      i += open.size();
    } else if (first == '#') {
      const size_t value_end = line.substr(0, i).find_last_not_of(" \t");
      return line.substr(value_end == std::string_view::npos ? 0 : value_end + 1);
    } else {
      ++i;
    }
  }
  return {};
}

Path parent_of(const Path& path) {
  return path.empty() ? path : Path(path.begin(), path.end() - 1);
}

// The members of an object by their names.
using Members = std::map<std::string_view, const Json*>;
Members members_of(const Json& object) {
  Members members;
  for (const Json::Member& one : object.as_object()) members[one.key] = &one.value;
  return members;
}

// The lines of one object, and which of them are which key's, as far as lines show. Edits are
// collected, and carried out at once, so that the numbers of lines hold.
class ObjectLines {
 public:
  ObjectLines(std::string_view text, std::string kind, const TomlNode& object)
      : lines_(lines_of(text)), kind_(std::move(kind)) {
    const auto first =
        std::ranges::find_if(lines_, [](const auto& line) { return is_header(line); });
    entries_.push_back({.begin = static_cast<size_t>(first - lines_.begin()), .is_header = true});
    add_entries(object, {});
    std::ranges::stable_sort(entries_, {}, &Entry::begin);
    for (size_t i = 0; i < entries_.size(); ++i) {
      end_entry(i);
      places_.try_emplace(entries_[i].path, i);
      if (!entries_[i].is_header) last_keys_[parent_of(entries_[i].path)] = i;
    }
  }

  // False: it is not distinguished by its lines.
  bool edit(const Json& was, const Json& now) { return edit_table(was, now, {}); }

  std::string text() {
    // Of several at one line what is put before it goes before what takes its place.
    std::ranges::stable_sort(edits_, [](const Edit& a, const Edit& b) {
      if (a.begin != b.begin) return a.begin < b.begin;
      return a.end == a.begin && b.end > b.begin;
    });
    std::string whole;
    size_t at = 0;
    const auto copy_until = [&](size_t line) {
      for (; at < line; ++at) whole += lines_[at];
    };
    for (const Edit& edit : edits_) {
      copy_until(edit.begin);
      whole += edit.text;
      at = std::max(at, edit.end);
    }
    copy_until(lines_.size());
    return whole;
  }

 private:
  struct Entry {
    Path path = {};
    size_t begin = 0;
    size_t end = 0;  // of a table's header: the line behind it
    bool is_header = false;
  };
  struct Edit {
    size_t begin = 0;
    size_t end = 0;
    std::string text;
  };

  void add_entries(const TomlNode& table, const Path& path) {
    for (const cli::TomlMember& member : table.members) {
      const auto line = static_cast<size_t>(std::max(member.line - 1, 0));
      Entry entry{.path = path, .begin = line};
      entry.path.push_back(member.name);
      entry.is_header = line < lines_.size() && is_header(lines_[line]);
      entries_.push_back(entry);
      if (entry.is_header && member.value.kind == TomlNode::Kind::kTable) {
        add_entries(member.value, entry.path);
      }
    }
  }

  // Blank lines and comments before the next one are about that.
  void end_entry(size_t i) {
    Entry& entry = entries_[i];
    entry.end = lines_.size();
    for (size_t next = i + 1; next < entries_.size(); ++next) {
      if (entries_[next].begin > entry.begin) {
        entry.end = entries_[next].begin;
        break;
      }
    }
    entry.end = trimmed_end(entry);
    if (entry.is_header) entry.end = entry.begin + 1;
  }

  size_t trimmed_end(const Entry& entry) const {
    size_t end = entry.end;
    while (end > entry.begin + 1) {
      const std::string_view line = without_blanks(lines_[end - 1]);
      const bool is_key = !line.empty() && line[0] != '#' && line[0] != '\n' && line[0] != '\r';
      if (is_key) break;
      --end;
    }
    return end;
  }

  const Entry* find(const Path& path) const {
    const auto found = places_.find(path);
    return found == places_.end() ? nullptr : &entries_[found->second];
  }

  bool edit_table(const Json& was, const Json& now, const Path& path) {
    const Members old_members = members_of(was);
    const Members new_members = members_of(now);
    for (const Json::Member& member : was.as_object()) {
      Path own = path;
      own.push_back(member.key);
      const Entry* entry = find(own);
      if (entry == nullptr) return false;
      const auto found = new_members.find(member.key);
      const Json* value = found == new_members.end() ? nullptr : found->second;
      if (value != nullptr && is_same_json(member.value, *value)) continue;
      const bool goes_on =
          value != nullptr && entry->is_header && member.value.is_object() && value->is_object();
      const bool is_done = goes_on            ? edit_table(member.value, *value, own)
                           : value == nullptr ? remove(*entry)
                                              : replace(*entry, *value);
      if (!is_done) return false;
    }
    for (const Json::Member& member : now.as_object()) {
      if (!old_members.contains(member.key) && !add(path, member)) return false;
    }
    return true;
  }

  bool remove(const Entry& entry) {
    size_t end = entry.end;
    if (entry.is_header) {
      Entry whole = entry;
      whole.end = lines_.size();
      for (size_t i = places_.at(entry.path) + 1; i < entries_.size(); ++i) {
        const Entry& next = entries_[i];
        const bool is_within = next.path.size() >= entry.path.size() &&
                               std::equal(entry.path.begin(), entry.path.end(), next.path.begin());
        if (next.begin <= entry.begin || is_within) continue;
        whole.end = next.begin;
        break;
      }
      end = trimmed_end(whole);
    }
    edits_.push_back({.begin = entry.begin, .end = end, .text = {}});
    return true;
  }

  bool replace(const Entry& entry, const Json& value) {
    const std::optional<std::string> text = toml_value(value);
    if (entry.is_header || !text) return false;
    std::string_view line = lines_[entry.begin];
    const std::string indent(line.substr(0, line.size() - without_blanks(line).size()));
    line = line.substr(0, line.find_last_not_of("\r\n") + 1);
    const bool is_one_line = entry.end == entry.begin + 1;
    edits_.push_back({.begin = entry.begin,
                      .end = entry.end,
                      .text = fmt::format("{}{} = {}{}\n", indent, toml_key(entry.path.back()),
                                          *text, is_one_line ? comment_behind(line) : "")});
    return true;
  }

  bool add(const Path& path, const Json::Member& member) {
    const std::optional<std::string> value = toml_value(member.value);
    if (!value) return false;
    if (path.empty() && member.value.is_object()) {
      std::string table = fmt::format("[{}.{}]\n", kind_, toml_key(member.key));
      for (const Json::Member& one : member.value.as_object()) {
        table += fmt::format("{} = {}\n", toml_key(one.key), toml_value(one.value).value_or(""));
      }
      edits_.push_back({.begin = lines_.size(), .end = lines_.size(), .text = std::move(table)});
      return true;
    }
    const Entry* behind = find(path);  // the table's header, or the last key below it
    if (behind == nullptr) return false;
    if (const auto last = last_keys_.find(path); last != last_keys_.end()) {
      const Entry& key = entries_[last->second];
      if (key.begin >= behind->begin) behind = &key;
    }
    const std::string_view line = lines_[behind->begin];
    const std::string_view indent = line.substr(0, line.size() - without_blanks(line).size());
    edits_.push_back({.begin = behind->end,
                      .end = behind->end,
                      .text = fmt::format("{}{} = {}\n", indent, toml_key(member.key), *value)});
    return true;
  }

  std::vector<std::string> lines_;
  const std::string kind_;
  std::vector<Entry> entries_;        // by their lines
  std::map<Path, size_t> places_;     // in entries_
  std::map<Path, size_t> last_keys_;  // of a table's path the last one that is no header, there
  std::vector<Edit> edits_;
};

// Written as a hand would begin it.
std::optional<std::string> object_text(const std::string& kind, const Json& object) {
  std::string out = is_config_list(kind) ? "[[" + kind + "]]\n" : "[" + kind + "]\n";
  const auto put = [&out](const Json::Member& member) {
    const std::optional<std::string> value = toml_value(member.value);
    if (value) out += fmt::format("{} = {}\n", toml_key(member.key), *value);
    return value.has_value();
  };
  for (const Json::Member& member : object.as_object()) {
    if (!member.value.is_object() && !put(member)) return std::nullopt;
  }
  for (const Json::Member& member : object.as_object()) {
    if (!member.value.is_object()) continue;
    out += fmt::format("[{}.{}]\n", kind, toml_key(member.key));
    if (!std::ranges::all_of(member.value.as_object(), put)) return std::nullopt;
  }
  return out;
}

// The one object that a text of its own says; null: it does not.
const TomlNode* object_in(const TomlNode& tree) {
  if (tree.members.size() != 1) return nullptr;
  const TomlNode& value = tree.members.front().value;
  if (value.kind == TomlNode::Kind::kTable) return &value;
  const bool is_one = value.kind == TomlNode::Kind::kList && value.items.size() == 1 &&
                      value.items.front().kind == TomlNode::Kind::kTable;
  return is_one ? &value.items.front() : nullptr;
}

bool says(const std::string& text, const std::string& kind, const Json& object) {
  const Result<TomlNode> tree = cli::parse_toml(text, kind);
  const TomlNode* read = tree.ok() ? object_in(*tree) : nullptr;
  return read != nullptr && is_same_json(json_of(*read), object);
}

// Lines that end as those of a file do, where that says the same.
std::string with_line_ends(std::string text, std::string_view end, const std::string& kind,
                           const Json& now) {
  if (end == "\n") return text;
  std::string ended;
  for (const char c : text) {
    if (c == '\n' && !ended.ends_with('\r')) ended += '\r';
    ended += c;
  }
  return says(ended, kind, now) ? ended : text;
}

// `end`: of the file's lines.
Result<std::string> edited(const std::string& own, const std::string& kind, const TomlNode& object,
                           const Json& now, std::string_view end) {
  ObjectLines lines(own + "\n", kind, object);
  if (lines.edit(json_of(object), now)) {
    std::string text = lines.text();
    if (says(text, kind, now)) return with_line_ends(std::move(text), end, kind, now);
  }
  // As a whole, below the comment that stands above it.
  std::string text;
  for (const std::string& line : lines_of(own)) {
    if (is_header(line)) break;
    text += line;
  }
  const std::optional<std::string> whole = object_text(kind, now);
  if (whole && says(text + *whole, kind, now)) {
    return with_line_ends(text + *whole, end, kind, now);
  }
  return bad_patch(fmt::format("'{}' has a value that TOML has not: null within a list", kind));
}

// A new object is called what its patch calls it.
void name_object(const ConfigPlace& place, Json& object) {
  const auto put_first = [&object](std::string_view key, std::string_view value) {
    if (object.find(key) != nullptr) return;
    Json::Object& members = object.as_object();
    members.insert(members.begin(), {.key = std::string(key), .value = value});
  };
  if (place.kind != "route") return put_first(place.kind == "worker" ? "url" : "name", place.name);
  std::string_view model = place.name;
  const std::string tenant = "/" + object.string("tenant").value_or("*");
  if (model.ends_with(tenant)) model.remove_suffix(tenant.size());
  put_first("model", model);
}

bool is_kind_name(std::string_view kind) {
  return !kind.empty() && toml_key(kind) == kind;
}

Result<void> add_object(ConfigEdit& edit, const ConfigPlace& place, const Json& patch,
                        std::string_view end) {
  Json object = merged_json(Json::Object(), patch);
  if (is_config_list(place.kind)) name_object(place, object);
  const std::optional<std::string> own = object_text(place.kind, object);
  if (!own || !says(*own, place.kind, object)) {
    return bad_patch(fmt::format("'{}' has a value that TOML has not", place.kind));
  }
  return edit.put(place, with_line_ends(*own, end, place.kind, object));
}

// `end`: of the file's lines.
Result<void> patch_object(ConfigEdit& edit, const std::string& file, const ConfigPlace& place,
                          const Json& patch, std::string_view end) {
  if (!is_kind_name(place.kind)) return bad_patch(fmt::format("nothing is a '{}'", place.kind));
  if (!patch.is_object() && !patch.is_null()) {
    return bad_patch(fmt::format("{}{}{} is an object, not {}", place.kind,
                                 place.name.empty() ? "" : " ", place.name, patch.kind_name()));
  }
  TRY_ASSIGN(const std::optional<std::string> own, edit.find(place));
  if (patch.is_null()) return own ? edit.take_out(place) : Result<void>();
  if (!own) return add_object(edit, place, patch, end);
  TRY_ASSIGN(const TomlNode tree, cli::parse_toml(*own + "\n", file));
  const TomlNode* object = object_in(tree);
  if (object == nullptr) return cli::bad_toml(file, 1, "edit the file as a whole");
  const Json was = json_of(*object);
  const Json now = merged_json(was, patch);
  if (is_same_json(was, now)) return {};
  TRY_ASSIGN(const std::string changed, edited(*own, place.kind, *object, now, end));
  return edit.put(place, changed);
}

// Of all of a kind, or those that the patch names.
Result<void> patch_kind(ConfigEdit& edit, const std::string& file, const Json::Member& kind,
                        std::string_view end) {
  if (!is_config_list(kind.key)) {
    return patch_object(edit, file, {.kind = kind.key, .name = {}}, kind.value, end);
  }
  if (kind.value.is_null()) {
    for (std::string& name : edit.names(kind.key)) {
      TRY(edit.take_out({.kind = kind.key, .name = std::move(name)}));
    }
    return {};
  }
  if (!kind.value.is_object()) {
    return bad_patch(
        fmt::format("'{}' is an object by names, not {}", kind.key, kind.value.kind_name()));
  }
  for (const Json::Member& one : kind.value.as_object()) {
    TRY(patch_object(edit, file, {.kind = kind.key, .name = one.key}, one.value, end));
  }
  return {};
}

}  // namespace

Json merged_json(Json target, const Json& patch) {
  if (!patch.is_object()) return patch;
  if (!target.is_object()) target = Json::Object();
  Json::Object& members = target.as_object();
  std::map<std::string, size_t, std::less<>> places;
  for (size_t i = 0; i < members.size(); ++i) places.emplace(members[i].key, i);
  std::vector<bool> is_gone(members.size(), false);
  for (const Json::Member& change : patch.as_object()) {
    const auto [place, is_new] = places.try_emplace(change.key, members.size());
    if (is_new) {
      members.push_back({.key = change.key, .value = nullptr});
      is_gone.push_back(true);
    }
    is_gone[place->second] = change.value.is_null();
    if (change.value.is_null()) continue;
    Json& value = members[place->second].value;
    value = merged_json(std::move(value), change.value);
  }
  Json::Object left;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!is_gone[i]) left.push_back(std::move(members[i]));
  }
  return left;
}

Result<std::string> patched_config(std::string_view text, const std::string& file,
                                   const Json& patch) {
  if (!patch.is_object()) {
    return bad_patch("a patch is an object, as in {\"gateway\": {\"retries\": 2}}");
  }
  TRY_ASSIGN(ConfigEdit edit, ConfigEdit::read(text, file));
  const std::string_view end = line_end(text);
  for (const Json::Member& kind : patch.as_object()) TRY(patch_kind(edit, file, kind, end));
  return edit.text();
}

Result<std::string> patched_object(std::string_view text, const std::string& file,
                                   const ConfigPlace& place, const Json& patch) {
  if (patch.is_null()) return bad_patch("null takes nothing away here: DELETE does");
  TRY_ASSIGN(ConfigEdit edit, ConfigEdit::read(text, file));
  TRY_ASSIGN(const std::optional<std::string> own, edit.find(place));
  // Says that it is not there.
  if (!own) TRY(edit.take_out(place));
  TRY(patch_object(edit, file, place, patch, line_end(text)));
  return edit.text();
}

}  // namespace pelton::gateway
