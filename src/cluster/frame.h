// Frames: the unit of what gateways and workers say to each other. A value format, pure functions.
//
//   u32 length of the payload, u8 type, u8 flags, u16 choice, payload        (little-endian)
//
// Frames that carry kMore take effect together with the next one that does not: a reader that loses
// its peer in between has seen none of them. Example: tokens of choice 0 (kMore), tokens of choice
// 1 (kMore), the client's bytes of both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::cluster {

enum class FrameType : uint8_t {
  // Gateway to worker, in this order: one kRun, what was said before (kPrompt, kTokens, kFinished),
  // a kBody.
  kRun = 1,   // RunEnvelope
  kBody = 2,  // the client's body as it came
  // Then, of a WebSocket: SaidEnvelope, and a kBody for each of the client's messages.
  kSaid = 3,
  // Either way.
  kPrompt = 15,    // a prompt's ids, by its number, where not every worker would write the same
  kTokens = 16,    // sampled by one choice: a token list
  kFinished = 17,  // one choice is over: ChoiceEnd
  kAdapter = 18,   // the digest of the LoRA adapter that the answer is computed with
  kFound = 19,     // PromptFound of one choice: before its first token
  // Worker to gateway.
  kHead = 32,   // AnswerHead; once, first
  kBytes = 33,  // for the client, ready to be sent on; with kLast all of the answer has been said
  kError = 34,  // AnswerError: this worker cannot go on; nothing follows
  kBeat = 35,   // nothing to say for a while; optional, no payload
  // On a watch.
  kRecord = 48,  // WorkerRecord; first
  kLoad = 49,    // WorkerLoad, every interval: also the sign of life
  kBlocks = 50,  // BlockEvents: what its prefix cache has stored and let go
};

struct Frame {
  static constexpr uint8_t kMore = 1;      // takes effect with the next one
  static constexpr uint8_t kLast = 2;      // of a kBytes
  static constexpr uint8_t kOptional = 4;  // a reader that does not know the type skips it

  FrameType type{};
  uint8_t flags = 0;
  uint16_t choice = 0;
  std::string_view payload;

  bool has(uint8_t flag) const { return (flags & flag) != 0; }
};

inline constexpr size_t kFrameHeaderBytes = 8;
// A client's body is at most 32 MiB; answers come in pieces.
inline constexpr size_t kFramePayloadMax = size_t{64} << 20;

void append_frame(std::string& out, const Frame& frame);

// Bytes that come piece by piece, to frames. One thread.
class FrameReader {
 public:
  explicit FrameReader(size_t payload_max = kFramePayloadMax) : payload_max_(payload_max) {}

  void push(std::string_view bytes);
  // The next whole frame, whose payload lives until the next push(); nothing if more has to come.
  // kInvalidArgument: what came is none, and nothing can follow. Unknown optional ones are skipped.
  Result<std::optional<Frame>> next();
  // So many bytes have come that are no whole frame yet.
  size_t left() const { return bytes_.size() - at_; }

 private:
  size_t payload_max_;
  std::string bytes_;
  size_t at_ = 0;
};

}  // namespace pelton::cluster
