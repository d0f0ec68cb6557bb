#include "grammar/free_text.h"

#include "grammar/byte_nfa.h"

namespace pelton::grammar {
namespace {

// Byte strings with one of `marks` in them, at the end or, with `goes_on`, before at least one
// byte.
enum class After { kNothing, kAnything, kSomething };
Result<ByteDfa> with_mark(std::span<const std::string> marks, After after,
                          const DfaLimits& limits) {
  ByteNfa nfa;
  const ByteNfa::State start = nfa.add_state();
  const ByteNfa::State found = nfa.add_state();
  ByteNfa::State end = found;
  nfa.add_range(start, 0, 255, start);
  for (const std::string& mark : marks) nfa.add_text(start, mark, found);
  if (after == After::kSomething) {
    end = nfa.add_state();
    nfa.add_range(found, 0, 255, end);
  }
  if (after != After::kNothing) nfa.add_range(end, 0, 255, end);
  return nfa.determinised(start, end, limits);
}

}  // namespace

Result<ByteDfa> text_without(std::span<const std::string> marks, const DfaLimits& limits) {
  if (marks.empty()) return ByteDfa::any_utf8();
  TRY_ASSIGN(const ByteDfa with, with_mark(marks, After::kAnything, limits));
  return difference(ByteDfa::any_utf8(), with, limits);
}

// What ends with an end, less what goes on behind a mark, less what must never occur. With the end
// and mark aa: baa is such a text; baaa ends with aa, too, but one has ended before it.
Result<ByteDfa> text_until(const TextUntil& until, const DfaLimits& limits) {
  TRY_ASSIGN(const ByteDfa ending, with_mark(until.ends, After::kNothing, limits));
  TRY_ASSIGN(const ByteDfa past, with_mark(until.marks, After::kSomething, limits));
  TRY_ASSIGN(const ByteDfa first, difference(ending, past, limits));
  TRY_ASSIGN(const ByteDfa allowed, text_without(until.never, limits));
  return intersection(allowed, first, limits);
}

}  // namespace pelton::grammar
