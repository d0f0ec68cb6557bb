#include "gateway/config_edit.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/toml_tree.h"
#include "gateway/config_changes.h"

namespace pelton::gateway {
namespace {

using cli::TomlNode;

std::string_view without_blanks(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : line.substr(first);
}

// "pool" of "[[pool]]" and of "[pool.scale]".
struct Header {
  std::string_view kind;
  bool is_list = false;
  bool is_within = false;
};
std::optional<Header> header_of(std::string_view line) {
  line = without_blanks(line);
  if (!line.starts_with('[')) return std::nullopt;
  Header header{.is_list = line.starts_with("[[")};
  line = without_blanks(line.substr(header.is_list ? 2 : 1));
  const size_t end =
      line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
  if (end == 0 || end == std::string_view::npos) return std::nullopt;
  header.kind = line.substr(0, end);
  header.is_within = without_blanks(line.substr(end)).starts_with('.');
  return header;
}

struct Slice {
  std::string_view kind;
  size_t begin = 0;
  int line = 1;
};

// Where lines begin objects, as far as lines show: whether it is so is seen by reading each.
std::vector<Slice> slices_of(std::string_view text) {
  std::vector<Slice> slices = {{}};
  Slice comment;  // the first line of the comment above
  bool has_comment = false;
  int line_number = 1;
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // of UTF-8, before the first line
  for (size_t at = text.starts_with(kMark) ? kMark.size() : 0; at < text.size(); ++line_number) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string_view line = text.substr(at, end - at);
    const std::optional<Header> header = header_of(line);
    const bool is_comment = without_blanks(line).starts_with('#');
    if (is_comment && !has_comment) comment = {.begin = at, .line = line_number};
    const bool begins =
        header && (header->kind != slices.back().kind || (header->is_list && !header->is_within));
    if (begins) {
      Slice slice = has_comment ? comment : Slice{.begin = at, .line = line_number};
      slice.kind = header->kind;
      slices.push_back(slice);
    }
    has_comment = is_comment;
    at = end;
  }
  return slices;
}

// One object of that kind, and nothing else.
Result<std::string> name_of(std::string_view text, std::string_view kind, const std::string& file,
                            int line) {
  const auto refused = [&](std::string_view what) {
    return cli::bad_toml(file, line, fmt::format("'{}' {}", kind, what));
  };
  const Result<TomlNode> tree = cli::parse_toml(text, file);
  if (!tree.ok()) {
    return refused("cannot be distinguished from what stands beside it: edit the file as a whole");
  }
  if (tree->members.size() != 1 || tree->members.front().name != kind) {
    return refused("is not by itself: edit the file as a whole");
  }
  const TomlNode& value = tree->members.front().value;
  if (!is_config_list(kind)) {
    if (value.kind == TomlNode::Kind::kTable) return std::string();
    return refused("is no table");
  }
  const bool is_one = value.kind == TomlNode::Kind::kList && value.items.size() == 1 &&
                      value.items.front().kind == TomlNode::Kind::kTable;
  if (!is_one) return refused(fmt::format("is written [[{}]], each by itself", kind));
  return config_name(kind, value.items.front());
}

// But for those that it begins with.
std::string_view without_blank_lines(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  const size_t feed = text.rfind('\n', first);
  return text.substr(feed == std::string_view::npos ? 0 : feed + 1);
}

// Where an object's last line ends, without its line feed. Lines of comment behind a blank one are
// about what comes next.
size_t end_of(std::string_view text) {
  size_t last = 0;
  bool is_near = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = without_blanks(text.substr(at, end - at));
    const bool is_blank = line.empty() || line == "\r";
    if (!is_blank && (is_near || !line.starts_with('#'))) {
      last = end;
      is_near = true;
    }
    if (is_blank) is_near = false;
    at = end + 1;
  }
  return last;
}

}  // namespace

Result<std::vector<ConfigPart>> config_parts(std::string_view text, const std::string& file) {
  TRY_ASSIGN(const TomlNode tree, cli::parse_toml(text, file));
  const std::vector<Slice> slices = slices_of(text);
  std::vector<ConfigPart> parts;
  for (size_t i = 0; i < slices.size(); ++i) {
    const size_t end = i + 1 < slices.size() ? slices[i + 1].begin : text.size();
    ConfigPart part{.kind = std::string(slices[i].kind),
                    .text = text.substr(slices[i].begin, end - slices[i].begin)};
    if (part.text.empty()) continue;
    if (part.kind.empty()) {
      const Result<TomlNode> before = cli::parse_toml(part.text, file);
      if (before.ok() && before->members.empty()) {
        parts.push_back(std::move(part));
        continue;
      }
      return cli::bad_toml(file, 1, "what stands before the first table is no comment");
    }
    TRY_ASSIGN(part.name, name_of(part.text, part.kind, file, slices[i].line));
    parts.push_back(std::move(part));
  }
  return parts;
}

Result<ConfigEdit> ConfigEdit::read(std::string_view text, std::string file) {
  TRY_ASSIGN(std::vector<ConfigPart> parts, config_parts(text, file));
  ConfigEdit edit;
  edit.file_ = std::move(file);
  edit.line_end_ = gateway::line_end(text);
  for (ConfigPart& part : parts) {
    edit.add({.kind = std::move(part.kind),
              .name = std::move(part.name),
              .text = std::string(part.text)});
  }
  return edit;
}

void ConfigEdit::add(Part part) {
  places_[{part.kind, part.name}].push_back(parts_.size());
  parts_.push_back(std::move(part));
}

// None: there is none. An error: there are two.
Result<std::optional<size_t>> ConfigEdit::place_of(const ConfigPlace& place) const {
  const auto found = places_.find({place.kind, place.name});
  if (found == places_.end()) return std::optional<size_t>();
  if (found->second.size() == 1) return std::optional<size_t>(found->second.front());
  return cli::bad_toml(file_, 1, fmt::format("there are two of {} '{}'", place.kind, place.name));
}

Result<std::optional<std::string>> ConfigEdit::find(const ConfigPlace& place) const {
  TRY_ASSIGN(const std::optional<size_t> at, place_of(place));
  if (!at) return std::optional<std::string>();
  return std::optional<std::string>(own_text(parts_[*at].text));
}

std::vector<std::string> ConfigEdit::names(std::string_view kind) const {
  std::vector<std::string> names;
  for (const Part& part : parts_) {
    if (!part.is_gone && part.kind == kind) names.push_back(part.name);
  }
  return names;
}

Result<void> ConfigEdit::put(const ConfigPlace& place, std::string_view object) {
  const Result<std::string> name = name_of(object, place.kind, place.kind, 1);
  if (!name.ok()) return Error{ErrorCode::kInvalidArgument, name.error().message, "body"};
  if (*name != place.name) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("this is {} '{}', not '{}'", place.kind, *name, place.name), "body"};
  }
  TRY_ASSIGN(const std::optional<size_t> at, place_of(place));
  std::string own = own_text(without_blank_lines(object));
  if (own.ends_with('\r')) own.pop_back();
  if (!at) {
    add({.kind = place.kind, .name = place.name, .text = own + line_end_, .is_new = true});
    return {};
  }
  // What stands between it and the next one stays.
  std::string& text = parts_[*at].text;
  size_t end = end_of(text);
  if (end > 0 && text[end - 1] == '\r') --end;
  text.replace(0, end, own);
  return {};
}

Result<void> ConfigEdit::take_out(const ConfigPlace& place) {
  TRY_ASSIGN(const std::optional<size_t> at, place_of(place));
  if (!at) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("the file has no {}{}{}", place.kind, place.name.empty() ? "" : " ",
                             place.name),
                 "name"};
  }
  Part& part = parts_[*at];
  const size_t comment = part.text.find('#', end_of(part.text));
  part.text.erase(0, std::min(comment, part.text.size()));
  part.is_gone = true;
  places_.erase({place.kind, place.name});
  return {};
}

std::string ConfigEdit::text() const {
  std::string whole;
  for (const Part& part : parts_) {
    if (part.is_new && !part.is_gone && !whole.empty()) {
      whole += whole.ends_with('\n') ? line_end_ : line_end_ + line_end_;
    }
    whole += part.text;
  }
  return whole;
}

Result<std::string> with_object(std::string_view text, const std::string& file,
                                const ConfigPlace& place, std::string_view object) {
  TRY_ASSIGN(ConfigEdit edit, ConfigEdit::read(text, file));
  TRY(edit.put(place, object));
  return edit.text();
}

Result<std::string> without_object(std::string_view text, const std::string& file,
                                   const ConfigPlace& place) {
  TRY_ASSIGN(ConfigEdit edit, ConfigEdit::read(text, file));
  TRY(edit.take_out(place));
  return edit.text();
}

std::string_view line_end(std::string_view text) {
  const size_t feed = text.find('\n');
  const bool is_two = feed != std::string_view::npos && feed > 0 && text[feed - 1] == '\r';
  return is_two ? "\r\n" : "\n";
}

std::string own_text(std::string_view object) {
  return std::string(object.substr(0, end_of(object)));
}

}  // namespace pelton::gateway
