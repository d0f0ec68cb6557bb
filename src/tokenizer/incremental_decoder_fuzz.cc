// However bytes are cut into tokens, the pieces of text together are that of all bytes. A byte in
// front of each token says how long it is.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/incremental_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  pelton::tokenizer::IncrementalDecoder decoder;
  std::string whole;
  std::string out;
  while (!rest.empty()) {
    const std::string_view token = rest.substr(1, static_cast<uint8_t>(rest[0]) % 8);
    rest.remove_prefix(1 + token.size());
    whole += token;
    const size_t before = out.size();
    decoder.push(token, out);
    CHECK(pelton::base::is_valid_utf8(std::string_view(out).substr(before)));
  }
  decoder.finish(out);
  CHECK(decoder.empty());
  CHECK(out == pelton::base::replace_invalid_utf8(whole));
  return 0;
}
