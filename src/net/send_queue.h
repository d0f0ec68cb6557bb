// Bytes on their way to a socket: small pieces are joined, so that many events of one turn leave in
// one send; large ones are kept as they are. What the kernel takes at once never lies here: it is
// put together in a buffer of the thread's, so that a connection whose client keeps up holds no
// memory. Bounded by whoever fills it. Internal to this room; one connection's, on its thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::net {

class SendQueue {
 public:
  static constexpr size_t kPiecesMax = 16;  // of one gathering write

  // Until give_back(), what comes while the queue is empty goes into `buffer`, which is empty.
  void borrow(std::string& buffer);
  // What is still there moves into the queue's own memory.
  void give_back();

  void push(std::string_view bytes);
  void push(std::string&& bytes);
  // All three, one after the other.
  void push_framed(std::string_view before, std::string_view bytes, std::string_view after);

  size_t bytes() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }

  // The pieces at the front, for one gathering write: how many of `views` were set. They stand
  // until the next call of anything.
  size_t front(std::span<std::string_view, kPiecesMax> views) const;
  // If there is but one piece, that; empty: there are more, or none. Stands as long as those.
  std::string_view only_piece() const;
  void pop(size_t bytes);
  void clear();

 private:
  bool is_borrowing() const { return borrowed_ != nullptr && !borrowed_->empty(); }
  void drop_first_piece();

  std::string* borrowed_ = nullptr;  // stands before the pieces
  std::vector<std::string> pieces_;
  size_t first_ = 0;         // of the pieces; those before it have left
  size_t first_offset_ = 0;  // of what stands first, already sent
  size_t bytes_ = 0;
};

}  // namespace pelton::net
