// What travels on a connection between two ranks: a handshake in which both show that they know the
// group's token without sending it, then frames, one for each part. Plain values, any thread.
//
// The one that accepts sends a nonce; the one that connected answers with a hello (who it is, its
// own nonce, a proof over both); the first sends its proof back. A proof is an HMAC under the
// token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::parallel {

inline constexpr size_t kNonceBytes = 16;
inline constexpr size_t kProofBytes = 64;
inline constexpr size_t kHelloBytes = 24 + kNonceBytes + kProofBytes;
inline constexpr size_t kFrameHeadBytes = 8;

struct RankHello {
  uint32_t ranks = 0;
  uint32_t rank = 0;
  uint64_t part_bytes = 0;
  std::string nonce = {};  // kNonceBytes
};

// Error: kIo.
Result<std::string> random_nonce();

std::string write_hello(const RankHello& hello, std::string_view token, std::string_view nonce);
// Error: kBadConfig: no hello at all, another protocol, another token.
Result<RankHello> read_hello(std::string_view bytes, std::string_view token,
                             std::string_view nonce);

// What the accepting side answers to a hello, so that the other knows it, too.
std::string acceptance(std::string_view token, std::string_view nonce);
// In a time that does not depend on where they differ.
bool same_proof(std::string_view one, std::string_view other);

struct FrameHead {
  uint32_t round = 0;
  uint32_t bytes = 0;
};

void write_frame_head(const FrameHead& head, char* to);
// Error: kBadConfig: of another round than this one, longer than `most`.
Result<FrameHead> read_frame_head(std::string_view bytes, uint32_t round, size_t most);

}  // namespace pelton::parallel
