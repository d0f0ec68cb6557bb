// An answer is foreign bytes, cut anywhere: whatever comes, the record stays sensible.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "bench/answer_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  if (size < 2) return 0;
  report::RequestRecord record;
  bench::AnswerReader reader(record, {});
  net::HttpHeaders headers;
  if (data[0] % 4 != 0) headers.add("Content-Type", "text/event-stream");
  reader.head(data[0] % 8 == 7 ? 503 : 200, headers, 0);
  const size_t step = static_cast<size_t>(data[1]) + 1;
  std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  int64_t now = 0;
  int64_t tokens = 0;
  while (!text.empty()) {
    const size_t piece = std::min(step, text.size());
    tokens += reader.bytes(text.substr(0, piece), ++now);
    text.remove_prefix(piece);
  }
  reader.end({}, ++now);
  CHECK(tokens >= 0);
  CHECK(record.ok == record.error.empty());
  CHECK(record.end_ns == now);
  for (const report::Piece& one : record.pieces) CHECK(one.tokens > 0 && one.at_ns <= now);
  return 0;
}
