// What an answer to a gRPC Generate is while it is bytes, between the answer that writes it and the
// call that sends it: frames, each a message of the stream (v1::GenerateChunk) or the error that
// ends it (the error object as JSON). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pelton::server {

struct GrpcFrame {
  enum class Kind : char { kMessage = 'm', kError = 'e' };
  Kind kind = Kind::kMessage;
  std::string_view bytes;
};

void append_frame(const GrpcFrame& frame, std::string& out);

// Takes the first frame off; nothing: there is none.
std::optional<GrpcFrame> take_frame(std::string_view& frames);

}  // namespace pelton::server
