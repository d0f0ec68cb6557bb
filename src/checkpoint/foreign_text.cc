#include "checkpoint/foreign_text.h"

#include "base/json_writer.h"

namespace pelton::checkpoint {

std::string shown(std::string_view foreign) {
  constexpr size_t kBytesMax = 120;
  std::string out;
  base::append_json_string(out, foreign.substr(0, kBytesMax));
  if (foreign.size() > kBytesMax) out += "...";
  return out;
}

}  // namespace pelton::checkpoint
