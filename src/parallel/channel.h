// Messages between two processes over a stream socket: four bytes of length, then as many. Owned by
// whoever talks; one thread sends and one receives, `shut` from any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace pelton::parallel {

class Channel {
 public:
  // A message: tokens and block tables of the largest step, or a job's description.
  static constexpr uint32_t kBytesMax = 256u << 20;

  // Both ends of a new one, closed on exec.
  static Result<std::pair<Channel, Channel>> make_pair();

  explicit Channel(int descriptor) : descriptor_(descriptor) {}
  Channel(Channel&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Channel& operator=(Channel&& other) noexcept;
  ~Channel();

  int descriptor() const { return descriptor_; }

  // Waits while the other side does not read. Error: kUnavailable where nobody is there any more.
  Result<void> send(std::string_view message);
  // Empty: the other side has closed. Errors: kDeadline after `timeout_ms` (negative: never);
  // kUnavailable where it went in the middle of a message; kInvalidArgument of one that is too
  // long.
  Result<std::optional<std::string>> receive(int64_t timeout_ms);
  // Nobody waits in it any more, on either side.
  void shut();

 private:
  // Bytes that came: fewer than `size` where the other side has closed.
  Result<size_t> read(char* to, size_t size, int64_t end_ms);

  int descriptor_ = -1;
};

}  // namespace pelton::parallel
