// Any bytes as a schema; what compiles is walked through by drawn bytes, which must never get stuck
// in a way that the matcher does not tell, crash, or disagree with itself.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "grammar/json_schema.h"
#include "grammar/test_vocabulary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  using namespace pelton::grammar;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Json> schema = Json::parse(text);
  if (!schema.ok()) return 0;
  SchemaOptions options;
  options.time_us_max = 10'000;
  const auto grammar = compile_json_schema(*schema, options);
  if (!grammar.ok()) return 0;
  Matcher matcher = matcher_of(*grammar);
  std::vector<uint64_t> mask(matcher.grammar().trie().mask_words());
  uint64_t random = size * 0x9e3779b97f4a7c15 + 1;
  for (int step = 0; step < 24; ++step) {
    matcher.fill_mask(mask);
    std::vector<TokenId> allowed;
    for (int token = 0; token < matcher.grammar().trie().vocab_size(); ++token) {
      const bool bit = (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
      if (bit) allowed.push_back(token);
    }
    if (allowed.empty()) break;
    random = random * 6364136223846793005 + 1442695040888963407;
    const TokenId drawn = static_cast<TokenId>(
        (random >> 33) % static_cast<uint64_t>(matcher.grammar().trie().vocab_size()));
    const bool bit = (mask[static_cast<size_t>(drawn) / 64] >> (drawn % 64) & 1) != 0;
    if (bit != matcher.allows(drawn)) std::abort();
    if (!matcher.accept(allowed[(random >> 17) % allowed.size()])) std::abort();
  }
  return 0;
}
