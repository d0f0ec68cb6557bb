#include "rpc/grpc_frame.h"

#include <cstdint>
#include <cstring>

namespace pelton::rpc {
namespace {

constexpr size_t kHeadBytes = 1 + sizeof(uint32_t);  // its kind and its length

}  // namespace

void append_grpc_frame(const GrpcFrame& frame, std::string& out) {
  const auto size = static_cast<uint32_t>(frame.bytes.size());
  char head[kHeadBytes] = {static_cast<char>(frame.kind)};
  std::memcpy(head + 1, &size, sizeof size);
  out.append(head, sizeof head).append(frame.bytes);
}

Result<std::optional<GrpcFrame>> take_grpc_frame(std::string_view& frames) {
  if (frames.empty()) return std::optional<GrpcFrame>();
  const Error broken{ErrorCode::kInvalidArgument, "half a message of a gRPC answer", {}};
  if (frames.size() < kHeadBytes) return broken;
  const auto kind = static_cast<GrpcFrame::Kind>(frames.front());
  uint32_t size = 0;
  std::memcpy(&size, frames.data() + 1, sizeof size);
  const bool is_known = kind == GrpcFrame::Kind::kMessage || kind == GrpcFrame::Kind::kError;
  if (!is_known || frames.size() - kHeadBytes < size) return broken;
  const GrpcFrame frame{.kind = kind, .bytes = frames.substr(kHeadBytes, size)};
  frames.remove_prefix(kHeadBytes + size);
  return std::optional(frame);
}

}  // namespace pelton::rpc
