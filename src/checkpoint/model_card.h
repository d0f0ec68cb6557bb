// What a model's folder says of the model in words: its licence and its card, as the hub lays them
// out (README.md with YAML between two lines of "---" at its head, LICENSE), or a GGUF file's
// metadata. Shown to who asks; nothing depends on it. Pure functions, any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"

namespace pelton::checkpoint {

inline constexpr size_t kModelCardBytesMax = size_t{256} << 10;  // of each file

// Empty is what is not said.
struct ModelCard {
  std::string license;  // "apache-2.0", or "other"
  std::string license_name;
  std::string license_link;
  std::string license_text;  // of the folder's LICENSE
  std::string text;          // the card behind its head, Markdown
};

// A README.md's head and text. Of the head only plain "name: value" lines at its margin are read;
// of "---\nlicense: apache-2.0\ntags:\n- x\n---\n# A model" the licence and "# A model".
ModelCard parse_model_card(std::string_view readme);

// Files that are missing, too large or no UTF-8 text are passed over: a card is no reason not to
// serve a model.
ModelCard read_model_card(const Checkpoint& checkpoint);
// Of one folder, and of its files those that may be read.
ModelCard read_model_card(const std::string& folder,
                          const std::function<bool(const std::string& file)>& may_read);

}  // namespace pelton::checkpoint
