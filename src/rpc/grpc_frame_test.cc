#include "rpc/grpc_frame.h"

#include <string>

#include <gtest/gtest.h>

namespace pelton::rpc {
namespace {

TEST(GrpcFrame, FramesAreTakenOffInTheirOrder) {
  std::string bytes;
  append_grpc_frame({.bytes = "one"}, bytes);
  append_grpc_frame({.bytes = ""}, bytes);
  append_grpc_frame({.kind = GrpcFrame::Kind::kError, .bytes = "503 {}"}, bytes);
  std::string_view rest = bytes;
  EXPECT_EQ((*take_grpc_frame(rest))->bytes, "one");
  EXPECT_EQ((*take_grpc_frame(rest))->bytes, "");
  const auto last = *take_grpc_frame(rest);
  EXPECT_EQ(last->kind, GrpcFrame::Kind::kError);
  EXPECT_EQ(last->bytes, "503 {}");
  EXPECT_FALSE(take_grpc_frame(rest)->has_value());
}

// What a worker sends is not trusted to be whole.
TEST(GrpcFrame, HalfAFrameIsNone) {
  std::string bytes;
  append_grpc_frame({.bytes = "message"}, bytes);
  for (size_t size = 1; size < bytes.size(); ++size) {
    std::string_view half = std::string_view(bytes).substr(0, size);
    EXPECT_EQ(take_grpc_frame(half).error().code, ErrorCode::kInvalidArgument) << size;
  }
  bytes.front() = 'x';
  std::string_view unknown = bytes;
  EXPECT_FALSE(take_grpc_frame(unknown).ok());
}

}  // namespace
}  // namespace pelton::rpc
