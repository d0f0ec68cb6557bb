// gRPC's bytes and ours. Pure.
#pragma once

#include <string>
#include <string_view>

#include <grpcpp/support/byte_buffer.h>

namespace pelton::rpc {

std::string bytes_of(const grpc::ByteBuffer& message);
grpc::ByteBuffer buffer_of(std::string_view bytes);

}  // namespace pelton::rpc
