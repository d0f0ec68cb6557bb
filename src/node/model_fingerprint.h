// What a model's answers depend on besides their requests, as one number that two workers can
// compare: its weights, its configuration, its tokenizer, its chat template and what was chosen of
// how it computes. Of the weights names, types, shapes and some bytes of each tensor are read, so
// it takes milliseconds: other weights of one architecture are found out, a few changed bytes are
// not
// (`pelton verify` reads them all). Where the files lie means nothing, nor when they were written.
// Value; the load's thread.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace pelton::node {

class ModelFingerprint {
 public:
  // Before the weights are packed: two workers that pack the same files have the same.
  explicit ModelFingerprint(const checkpoint::Checkpoint& checkpoint);

  struct Parts {
    const tokenizer::Tokenizer* tokenizer = nullptr;  // null: it has none
    std::string_view chat_format;                     // its name
    std::string_view chat_template;
    std::string settings;
  };
  // 32 hexadecimal digits.
  std::string of(const Parts& parts) const;
  // The same of a server that reads prompts or writes answers otherwise than it would by default.
  struct Wording {
    std::string_view reasoning_field;  // empty: the default one, as the next
    std::string_view current_date;
  };
  static std::string worded(const std::string& fingerprint, const Wording& wording);

 private:
  std::string files_;  // of weights and configuration
};

}  // namespace pelton::node
