#include "cluster/frame.h"

#include <fmt/format.h>

#include "base/check.h"
#include "cluster/wire_numbers.h"

namespace pelton::cluster {
namespace {

bool is_known(uint8_t type) {
  switch (static_cast<FrameType>(type)) {
    case FrameType::kRun:
    case FrameType::kBody:
    case FrameType::kSaid:
    case FrameType::kPrompt:
    case FrameType::kTokens:
    case FrameType::kFinished:
    case FrameType::kAdapter:
    case FrameType::kFound:
    case FrameType::kHead:
    case FrameType::kBytes:
    case FrameType::kError:
    case FrameType::kBeat:
    case FrameType::kRecord:
    case FrameType::kLoad:
    case FrameType::kBlocks:
      return true;
  }
  return false;
}

}  // namespace

void append_frame(std::string& out, const Frame& frame) {
  CHECK(frame.payload.size() <= kFramePayloadMax, "a frame that no reader would take");
  append_u32(out, static_cast<uint32_t>(frame.payload.size()));
  out += static_cast<char>(frame.type);
  out += static_cast<char>(frame.flags);
  append_u16(out, frame.choice);
  out += frame.payload;
}

void FrameReader::push(std::string_view bytes) {
  bytes_.erase(0, at_);
  at_ = 0;
  bytes_ += bytes;
}

Result<std::optional<Frame>> FrameReader::next() {
  for (;;) {
    WireReader header(std::string_view(bytes_).substr(at_));
    if (header.left() < kFrameHeaderBytes) return std::optional<Frame>();
    const size_t length = header.u32();
    const uint8_t type = header.u8();
    Frame frame{.flags = header.u8(), .choice = header.u16(), .payload = {}};
    if (length > payload_max_) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("a frame of {} bytes; at most {} are read", length, payload_max_)};
    }
    if (!is_known(type) && !frame.has(Frame::kOptional)) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("a frame of the unknown type {}: the peer speaks another version", type)};
    }
    if (header.left() < length) return std::optional<Frame>();
    frame.type = static_cast<FrameType>(type);
    frame.payload = std::string_view(bytes_).substr(at_ + kFrameHeaderBytes, length);
    at_ += kFrameHeaderBytes + length;
    if (is_known(type)) return std::optional(frame);
  }
}

}  // namespace pelton::cluster
