// Any bytes behind the preface, cut at will: never a crash, never more held than the limits allow,
// every request answered or gone, and an end that is said.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "net/http2_session.h"

namespace {

using pelton::net::Http2Session;

void play(std::string_view text, size_t step, bool answers_at_once) {
  Http2Session::Limits limits;
  limits.http.body_bytes_max = 4096;
  limits.http.header_bytes_max = 2048;
  limits.streams_max = 8;
  limits.empty_frames_max = 100;
  limits.resets_in_advance = 20;
  Http2Session session(limits);
  bool goes_on = session.receive(Http2Session::kPreface);
  std::string out;
  for (size_t at = 0; at < text.size() && goes_on; at += step) {
    goes_on = session.receive(text.substr(at, step));
    for (const Http2Session::Event& event : session.take_events()) {
      CHECK(session.body_bytes(event.stream) <= limits.http.body_bytes_max);
      if (event.kind != Http2Session::Event::Kind::kRequest) continue;
      const auto taken = session.take(event.stream);
      if (!taken) continue;
      if (!taken->refusal) {
        const std::string& path = taken->request.path;
        CHECK(path.starts_with('/') || path == "*");
        CHECK(taken->request.headers.count("host") == 1);
      }
      session.answer(event.stream, taken->refusal ? taken->refusal->status : 200,
                     taken->request.headers, "now");
      session.write(event.stream, taken->request.body);
      if (answers_at_once) session.finish(event.stream);
    }
    CHECK(session.stream_count() <= 2 * limits.streams_max);
    while (session.produce(out, 1024) && session.has_more()) out.clear();
    out.clear();
  }
  session.tick(std::chrono::milliseconds(1000));
  session.go_away();
  while (session.produce(out, 1024)) out.clear();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t step = data[0] % 8 == 0 ? 1 + data[0] / 8 % 16 : 1 + size_t{data[0]};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  play(text, text.size() + 1, true);
  play(text, step, data[0] % 2 == 0);
  return 0;
}
