// Weights on their way to a device: pinned buffers that the host fills one after the other, and
// copies that run beside it on a stream of their own. A buffer is filled again only when all copies
// out of it have arrived. One thread at a time; owned by the session.
#pragma once

#include <cstdint>

#include "cuda/device/runtime.h"
#include "cuda/device_abi.h"

namespace pelton::cuda {

class Staging {
 public:
  Staging();
  ~Staging();  // Waits until everything sent has arrived.
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Room for up to kStagedBytes, to be filled and sent before the next is asked for. Null with a
  // failure noted: too much, or no memory.
  void* room(int64_t bytes);
  // Starts copying what lies in the room handed out last.
  void send(void* to, const void* from, int64_t bytes);

 private:
  static constexpr int kBuffers = 3;  // one is filled while two are on their way

  struct Buffer {
    uint8_t* memory = nullptr;
    Mark sent = nullptr;
    bool is_under_way = false;
  };

  // The next buffer, free again; false with a failure noted.
  bool turn_over();

  const Stream stream_;
  Buffer buffers_[kBuffers];
  int current_ = 0;
  int64_t used_ = 0;
};

}  // namespace pelton::cuda
