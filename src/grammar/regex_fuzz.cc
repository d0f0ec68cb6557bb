// Any text is a regular expression that compiles within its limits, or an Error with words. The
// first byte chooses what is asked; an automaton is checked for what every automaton must hold.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/utf8.h"
#include "grammar/regex.h"

namespace pelton::grammar {
namespace {

// The first text that `dfa` accepts, going always to the smallest byte that gets nearer to an end.
std::string some_text(const ByteDfa& dfa) {
  std::string text;
  DfaState at = dfa.start();
  for (int steps = 0; steps < 64 && !dfa.accepts(at); ++steps) {
    for (int byte = 255; byte >= 0; --byte) {
      const DfaState to = dfa.next(at, static_cast<uint8_t>(byte));
      if (to == kDeadState || (to == at && byte > 0)) continue;
      text += static_cast<char>(byte);
      at = to;
      break;
    }
  }
  return dfa.accepts(at) ? text : std::string();
}

void check(uint8_t choice, std::string_view pattern) {
  RegexOptions options;
  if (choice & 1) options.match = RegexOptions::Match::kWhole;
  if (choice & 2) options.dialect = RegexDialect::kEngines;
  options.limits = {.states_max = 500, .cells_max = 12'000, .work_max = 100'000};
  const Result<ByteDfa> dfa = compile_regex(pattern, options);
  if (!dfa.ok()) {
    CHECK(!dfa.error().message.empty());
    return;
  }
  const std::string text = some_text(*dfa);
  CHECK(base::is_valid_utf8(text));
  // What matches whole is found.
  if (options.match == RegexOptions::Match::kWhole && dfa->accepts(text)) {
    options.match = RegexOptions::Match::kSearch;
    const Result<ByteDfa> search = compile_regex(pattern, options);
    CHECK(!search.ok() || search->accepts(text));
  }
}

}  // namespace
}  // namespace pelton::grammar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  pelton::grammar::check(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
