#include "server/grpc_frames.h"

#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace pelton::server {
namespace {

constexpr size_t kHeadBytes = 1 + sizeof(uint32_t);  // its kind and its length

}  // namespace

void append_frame(const GrpcFrame& frame, std::string& out) {
  const auto size = static_cast<uint32_t>(frame.bytes.size());
  char head[kHeadBytes] = {static_cast<char>(frame.kind)};
  std::memcpy(head + 1, &size, sizeof size);
  out.append(head, sizeof head).append(frame.bytes);
}

std::optional<GrpcFrame> take_frame(std::string_view& frames) {
  if (frames.empty()) return std::nullopt;
  CHECK(frames.size() >= kHeadBytes);
  uint32_t size = 0;
  std::memcpy(&size, frames.data() + 1, sizeof size);
  CHECK(frames.size() - kHeadBytes >= size);
  const GrpcFrame frame{.kind = static_cast<GrpcFrame::Kind>(frames.front()),
                        .bytes = frames.substr(kHeadBytes, size)};
  frames.remove_prefix(kHeadBytes + size);
  return frame;
}

}  // namespace pelton::server
