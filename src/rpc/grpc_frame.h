// What an answer to a gRPC Generate is while it is bytes, between the answer that writes it, at a
// worker, and the call that sends it, there or at a gateway: frames, each a message of the stream
// (v1::GenerateChunk) or the error that ends it ("STATUS OBJECT": the error object as JSON). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::rpc {

struct GrpcFrame {
  enum class Kind : char { kMessage = 'm', kError = 'e' };
  Kind kind = Kind::kMessage;
  std::string_view bytes;
};

void append_grpc_frame(const GrpcFrame& frame, std::string& out);

// Takes the first frame off; nothing: there is none. kInvalidArgument: that is no whole frame.
Result<std::optional<GrpcFrame>> take_grpc_frame(std::string_view& frames);

// Methods of pelton.v1.Inference, as paths of requests that a gateway forwards.
inline constexpr std::string_view kGrpcGenerate = "/pelton.v1.Inference/Generate";
inline constexpr std::string_view kGrpcSession = "/pelton.v1.Inference/Session";  // never forwarded
inline constexpr std::string_view kGrpcTokenize = "/pelton.v1.Inference/Tokenize";
inline constexpr std::string_view kGrpcEmbed = "/pelton.v1.Inference/Embed";
constexpr bool is_grpc_method(std::string_view path) {
  return path.starts_with("/pelton.v1.Inference/");
}

}  // namespace pelton::rpc
