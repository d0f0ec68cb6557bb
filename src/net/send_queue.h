// Bytes on their way to a socket: small pieces are joined, so that many events of one turn leave in
// one send; large ones are kept as they are. Bounded by whoever fills it. Internal to this room;
// one connection's, on its thread.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::net {

class SendQueue {
 public:
  static constexpr size_t kPiecesMax = 16;  // of one gathering write

  void push(std::string_view bytes) { push(bytes, 0); }
  // `following`: bytes that will be pushed right after these.
  void push(std::string_view bytes, size_t following);
  void push(std::string&& bytes);

  size_t bytes() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }

  // The pieces at the front, for one gathering write. They stay where they are until pop(): what is
  // pushed meanwhile goes elsewhere.
  std::vector<std::string_view> front();
  void pop(size_t bytes);
  void clear();

 private:
  std::deque<std::string> pieces_;
  size_t first_offset_ = 0;  // of pieces_[0], already sent
  size_t in_flight_ = 0;     // pieces handed out by front()
  size_t bytes_ = 0;
};

}  // namespace pelton::net
