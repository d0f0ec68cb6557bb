// JSON Schema's `format` as automata over UTF-8: the text must be an instance of the format, by the
// format's own RFC. Where that is not regular or too large, a part of it: what is accepted is
// valid; formats.cc says where what is valid is not accepted. Made once for the process. Any
// thread.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "grammar/byte_dfa.h"

namespace pelton::grammar {

// None: no format of JSON Schema's, so it says nothing. Error, kUnsupported: a format that we
// cannot promise (idn-hostname: IDNA's tables).
std::optional<Result<std::shared_ptr<const ByteDfa>>> language_of_format(std::string_view format);

}  // namespace pelton::grammar
