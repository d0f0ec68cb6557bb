#include "cuda/device/staging.h"

namespace pelton::cuda {
namespace {

constexpr int64_t kAlignment = 256;

}  // namespace

Staging::Staging() : stream_(make_stream()) {
  for (Buffer& buffer : buffers_) buffer.sent = make_mark();
}

Staging::~Staging() {
  wait_for(stream_);
  for (Buffer& buffer : buffers_) {
    if (buffer.memory != nullptr) release_pinned(buffer.memory);
    end_mark(buffer.sent);
  }
  end_stream(stream_);
}

void* Staging::room(int64_t bytes) {
  if (bytes < 0 || bytes > kStagedBytes) {
    note_failure("more than a staging buffer holds");
    return nullptr;
  }
  if (used_ + bytes > kStagedBytes && !turn_over()) return nullptr;
  Buffer& buffer = buffers_[current_];
  if (buffer.memory == nullptr) {
    buffer.memory = static_cast<uint8_t*>(allocate_pinned(kStagedBytes));
    if (buffer.memory == nullptr) return nullptr;
  }
  uint8_t* const out = buffer.memory + used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return out;
}

bool Staging::turn_over() {
  Buffer& full = buffers_[current_];
  set_mark(stream_, full.sent);
  full.is_under_way = true;
  current_ = (current_ + 1) % kBuffers;
  used_ = 0;
  Buffer& next = buffers_[current_];
  if (next.is_under_way && !wait_for_mark(next.sent)) return false;
  next.is_under_way = false;
  return true;
}

void Staging::send(void* to, const void* from, int64_t bytes) {
  copy_to_device_later(stream_, to, from, bytes);
}

}  // namespace pelton::cuda
