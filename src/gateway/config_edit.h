// Edits of a configuration file's text that leave all else in it as it stands, comments and blanks
// too: one object is put in another's place, put behind the last one, or taken out. An object is a
// table ("[etcd]") or one of several ("[[pool]]"), with the tables within it ("[pool.scale]") and
// the lines of comment right above it. Whether what comes of it is a configuration is not looked at
// here. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace pelton::gateway {

struct ConfigPart {
  std::string kind;  // "pool"; empty: what stands before the first object
  std::string name;  // as config_name() has it (gateway/config_changes.h); empty: it has none
  std::string_view text;
};
// All of `text`, in its order: one behind the other they are the text. Errors: kBadConfig with the
// line, it is no TOML, or not written a table behind the other ("pool = [{...}]").
Result<std::vector<ConfigPart>> config_parts(std::string_view text, const std::string& file);

// Of such a part's text, or any, what is the object: without what stands between it and the next.
std::string own_text(std::string_view object);
// What its first line ends with: "\n" or "\r\n".
std::string_view line_end(std::string_view text);

struct ConfigPlace {
  std::string kind;
  std::string name;  // empty: of a table that there is one of
};
// Edits of one text, which is read once however many they are: each sees those before it.
class ConfigEdit {
 public:
  // Errors: as config_parts().
  static Result<ConfigEdit> read(std::string_view text, std::string file);

  // The object's own text; none: it is not there. Error: kBadConfig, there are two of them.
  Result<std::optional<std::string>> find(const ConfigPlace& place) const;
  // Of those of a kind, in the text's order.
  std::vector<std::string> names(std::string_view kind) const;
  // In the place of the one that is there, or behind all. Errors: kInvalidArgument, `object` is not
  // that one; kBadConfig, there are two of them.
  Result<void> put(const ConfigPlace& place, std::string_view object);
  // Errors: kNotFound, it is not there; kBadConfig, as above.
  Result<void> take_out(const ConfigPlace& place);

  std::string text() const;

 private:
  struct Part {
    std::string kind;
    std::string name;
    std::string text;     // as it is now
    bool is_new = false;  // put behind all
    bool is_gone = false;
  };
  using Key = std::pair<std::string, std::string>;  // kind, name

  Result<std::optional<size_t>> place_of(const ConfigPlace& place) const;
  void add(Part part);

  std::string file_;
  std::string line_end_;
  std::vector<Part> parts_;
  std::map<Key, std::vector<size_t>> places_;  // in parts_, of what is not gone
};

// One of these by itself.
Result<std::string> with_object(std::string_view text, const std::string& file,
                                const ConfigPlace& place, std::string_view object);
Result<std::string> without_object(std::string_view text, const std::string& file,
                                   const ConfigPlace& place);

}  // namespace pelton::gateway
