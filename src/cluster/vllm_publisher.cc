#include "cluster/vllm_publisher.h"

#include <array>
#include <cerrno>

#include <fmt/format.h>
#include <zmq.h>

namespace pelton::cluster {
namespace {

constexpr int kQueueMax = 1000;  // batches, for each reader

}  // namespace

Result<std::unique_ptr<VllmPublisher>> VllmPublisher::bind(const std::string& endpoint) {
  void* const context = zmq_ctx_new();
  void* const socket = zmq_socket(context, ZMQ_PUB);
  const int none = 0;
  const bool is_set = socket != nullptr &&
                      zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none) == 0 &&
                      zmq_setsockopt(socket, ZMQ_SNDHWM, &kQueueMax, sizeof kQueueMax) == 0;
  if (!is_set || zmq_bind(socket, endpoint.c_str()) != 0) {
    const int why = errno;
    if (socket != nullptr) zmq_close(socket);
    zmq_ctx_term(context);
    const ErrorCode code =
        why == EADDRINUSE ? ErrorCode::kAddressInUse : ErrorCode::kInvalidArgument;
    return Error{
        code, fmt::format("{}: cannot publish there: {}", endpoint, zmq_strerror(why)), {}};
  }
  std::array<char, 256> found{};
  size_t size = found.size();
  const bool is_found = zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, found.data(), &size) == 0;
  return std::unique_ptr<VllmPublisher>(
      new VllmPublisher(context, socket, is_found ? std::string(found.data()) : endpoint));
}

VllmPublisher::~VllmPublisher() {
  zmq_close(socket_);
  zmq_ctx_term(context_);
}

void VllmPublisher::publish(const std::vector<VllmEvent>& events, VllmForm form, double unix_s) {
  const std::string batch = encode_vllm_batch(events, form, unix_s);
  const std::string number = big_endian(next_++);
  // Never waits: a reader without room is passed over.
  if (zmq_send(socket_, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) return;
  if (zmq_send(socket_, number.data(), number.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) return;
  (void)zmq_send(socket_, batch.data(), batch.size(), ZMQ_DONTWAIT);
}

}  // namespace pelton::cluster
