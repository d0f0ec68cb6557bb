#include "parallel/tcp_frames.h"

#include <cstring>

#include <fmt/format.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/digest.h"

namespace pelton::parallel {
namespace {

constexpr uint32_t kMagic = 0x4B4E5250;  // "PRNK"
constexpr uint32_t kProtocol = 1;
constexpr size_t kFactsBytes = kHelloBytes - kProofBytes;

template <typename Number>
void append(std::string& to, Number number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <typename Number>
Number number_at(std::string_view bytes, size_t offset) {
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

std::string proof_of(std::string_view facts, std::string_view token, std::string_view nonce) {
  return base::hmac_sha256(token, std::string("hello") + std::string(facts) + std::string(nonce));
}

Error bad(std::string what) {
  return Error{ErrorCode::kBadConfig, std::move(what)};
}

}  // namespace

Result<std::string> random_nonce() {
  std::string nonce(kNonceBytes, '\0');
  if (::getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size())) {
    return nonce;
  }
  return Error{ErrorCode::kIo, "getrandom gave no bytes"};
}

std::string write_hello(const RankHello& hello, std::string_view token, std::string_view nonce) {
  CHECK(hello.nonce.size() == kNonceBytes);
  std::string bytes;
  append(bytes, kMagic);
  append(bytes, kProtocol);
  append(bytes, hello.ranks);
  append(bytes, hello.rank);
  append(bytes, hello.part_bytes);
  bytes += hello.nonce;
  return bytes + proof_of(bytes, token, nonce);
}

Result<RankHello> read_hello(std::string_view bytes, std::string_view token,
                             std::string_view nonce) {
  if (bytes.size() != kHelloBytes || number_at<uint32_t>(bytes, 0) != kMagic) {
    return bad("what came is no rank's hello");
  }
  const auto protocol = number_at<uint32_t>(bytes, 4);
  if (protocol != kProtocol) {
    return bad(fmt::format("exchange protocol {}, {} here", protocol, kProtocol));
  }
  const std::string_view facts = bytes.substr(0, kFactsBytes);
  if (!same_proof(bytes.substr(kFactsBytes), proof_of(facts, token, nonce))) {
    return bad("another token");
  }
  return RankHello{.ranks = number_at<uint32_t>(bytes, 8),
                   .rank = number_at<uint32_t>(bytes, 12),
                   .part_bytes = number_at<uint64_t>(bytes, 16),
                   .nonce = std::string(bytes.substr(24, kNonceBytes))};
}

std::string acceptance(std::string_view token, std::string_view nonce) {
  return base::hmac_sha256(token, std::string("accepted") + std::string(nonce));
}

bool same_proof(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  unsigned char differing = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    differing |= static_cast<unsigned char>(one[i] ^ other[i]);
  }
  return differing == 0;
}

void write_frame_head(const FrameHead& head, char* to) {
  std::memcpy(to, &head.round, sizeof head.round);
  std::memcpy(to + sizeof head.round, &head.bytes, sizeof head.bytes);
}

Result<FrameHead> read_frame_head(std::string_view bytes, uint32_t round, size_t most) {
  CHECK(bytes.size() == kFrameHeadBytes);
  const FrameHead head{.round = number_at<uint32_t>(bytes, 0),
                       .bytes = number_at<uint32_t>(bytes, 4)};
  if (head.round != round) {
    return bad(fmt::format("a part of round {}, {} is this one", head.round, round));
  }
  if (head.bytes > most) {
    return bad(fmt::format("a part of {} bytes, {} at most", head.bytes, most));
  }
  return head;
}

}  // namespace pelton::parallel
