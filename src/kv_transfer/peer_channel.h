// One connection between two workers of a fleet, over TCP: records, each sealed under keys that
// both sides make of the fleet's key and of what each has drawn for this connection. Who does not
// have the fleet's key can neither read nor say anything, and a record that was changed, left out,
// said again or moved does not open: then the connection is over.
//
//   u32 length, sealed bytes              (AES-256-GCM; the context is direction and number)
//
// Before that each side says 24 bytes in the clear, in every version: magic, two digits of the
// version, 16 drawn bytes.
//
// Blocking, with limits; one thread at a time, but for shut_down().
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/authenticated_cipher.h"
#include "base/result.h"

namespace pelton::kv_transfer {

class PeerChannel {
 public:
  using Clock = std::chrono::steady_clock;
  using Deadline = Clock::time_point;

  // Of a record besides what was to be said.
  static constexpr size_t kRecordBytes = 4 + base::AuthenticatedCipher::kSealBytes;
  // Of a record before both sides know each other's blocks.
  static constexpr size_t kFirstRecordMax = size_t{64} << 10;

  struct Address {
    std::string host;
    int port = 0;
  };
  // Both take over and close `socket`. `keys`: of the fleet's, the first of them makes. Errors:
  // kIo: not reached, no such peer, or too late; kUnsupported: another version.
  static Result<std::unique_ptr<PeerChannel>> connect(const Address& address,
                                                      const std::string& key, Deadline until);
  // The other side's key is known once its first record has come.
  static Result<std::unique_ptr<PeerChannel>> accept(int socket,
                                                     const std::vector<std::string>& keys,
                                                     Deadline until);
  ~PeerChannel();
  PeerChannel(const PeerChannel&) = delete;
  PeerChannel& operator=(const PeerChannel&) = delete;

  void set_record_max(size_t bytes) { record_max_ = bytes; }

  // kIo: the peer has gone, or does not read. Nothing can follow.
  Result<void> send(std::string_view message, Deadline until);
  // The same of a message of so many bytes that is written here first: a block is sealed and sent
  // from where it was gathered. What one channel has sent and received lies in buffers that it
  // keeps: memory that is given back and taken again for each block costs more than all the rest.
  std::span<char> compose(size_t bytes);
  Result<void> send_composed(Deadline until);
  // None: nothing whole has come by then. kIo: the peer has gone; kInvalidArgument: what came is
  // not what it has said. Nothing can follow either. Valid until the next call.
  Result<std::optional<std::string_view>> receive(Deadline until);
  // A whole record has come, or something that was not read yet; or the peer has gone.
  bool is_readable() const;
  // Between transfers: the buffers go.
  void release_buffers();

  // Whoever waits here returns. Any thread.
  void shut_down();

 private:
  enum class Side { kClient, kServer };

  PeerChannel(int socket, Side side) : socket_(socket), side_(side) {}
  Result<std::string> exchange_greetings(Deadline until);
  Result<void> write_all(std::string_view bytes, Deadline until);
  // Into a buffer that has room for so many bytes. False: too late.
  Result<bool> read_more(size_t room, Deadline until);
  void drop(size_t bytes);     // of those that have come, the first
  uint32_t next_size() const;  // of the record that bytes_ begin with
  bool open(std::string_view sealed);

  const int socket_;
  const Side side_;
  size_t record_max_ = kFirstRecordMax;
  // One, once it is known which; before that whichever the peer may have.
  struct Keys {
    base::AuthenticatedCipher mine;
    base::AuthenticatedCipher theirs;
  };
  std::vector<Keys> keys_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  std::string bytes_;  // what has come, up to filled_; it grows, and does not shrink
  size_t filled_ = 0;
  std::string opened_;   // the message that came last; longer where a longer one came before
  std::string record_;   // the record that is sent next, likewise
  size_t composed_ = 0;  // bytes of its message
};

}  // namespace pelton::kv_transfer
