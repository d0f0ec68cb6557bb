// What a worker has answered to a request of the gateway's own, as its frames come. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/envelope.h"
#include "cluster/frame.h"

namespace pelton::gateway {

struct Probe {
  cluster::FrameReader reader;
  std::string body;
  int status = 0;
  std::optional<int64_t> cached_tokens;  // of its prompt, as its end says
  bool whole = false;
  bool broken = false;

  void push(std::string_view bytes) {
    reader.push(bytes);
    while (!broken) {
      const Result<std::optional<cluster::Frame>> frame = reader.next();
      if (!frame.ok()) broken = true;
      if (!frame.ok() || !*frame) return;
      take(**frame);
    }
  }
  bool is_whole() const { return whole && !broken; }

 private:
  void take(const cluster::Frame& frame) {
    using cluster::FrameType;
    if (frame.type == FrameType::kHead) {
      const Result<cluster::AnswerHead> head = cluster::decode_answer_head(frame.payload);
      status = head.ok() ? head->status : 0;
    } else if (frame.type == FrameType::kFinished) {
      const Result<cluster::ChoiceEnd> end = cluster::decode_choice_end(frame.payload);
      if (end.ok()) cached_tokens = end->cached_tokens;
    } else if (frame.type == FrameType::kBytes) {
      body += frame.payload;
      whole = frame.has(cluster::Frame::kLast);
    }
  }
};

}  // namespace pelton::gateway
