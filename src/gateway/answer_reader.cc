#include "gateway/answer_reader.h"

namespace pelton::gateway {
namespace {

using cluster::Frame;
using cluster::FrameType;

constexpr uint16_t kChoicesMax = 4096;
constexpr size_t kDigestMax = 128;
constexpr size_t kFoundMax = 256;

Error broken(std::string_view what) {
  return Error{ErrorCode::kInvalidArgument, "the worker sent " + std::string(what)};
}

}  // namespace

Result<std::optional<AnswerUpdate>> AnswerReader::next() {
  for (;;) {
    TRY_ASSIGN(const std::optional<Frame> frame, reader_.next());
    if (!frame) return std::optional<AnswerUpdate>();
    if (over_) return broken("something behind the end of its answer");
    TRY(add(*frame));
    if (frame->has(Frame::kMore)) continue;
    over_ = update_.last || update_.error.has_value();
    return std::optional(std::exchange(update_, {}));
  }
}

Result<void> AnswerReader::add(const Frame& frame) {
  if (frame.choice >= kChoicesMax) return broken("a choice that nobody asked for");
  switch (frame.type) {
    case FrameType::kHead: {
      if (headed_) return broken("two heads of one answer");
      TRY_ASSIGN(update_.head, cluster::decode_answer_head(frame.payload));
      headed_ = true;
      return {};
    }
    case FrameType::kPrompt:
      TRY(cluster::decode_token_list(frame.payload));
      cluster::append_frame(update_.prompts, frame);
      return {};
    case FrameType::kAdapter:
      if (frame.payload.size() > kDigestMax) return broken("a digest that is none");
      update_.adapter = frame.payload;
      return {};
    case FrameType::kFound:
      if (frame.payload.size() > kFoundMax) return broken("more of what was found than there is");
      TRY(cluster::decode_prompt_found(frame.payload));
      update_.found.emplace_back(frame.choice, std::string(frame.payload));
      return {};
    case FrameType::kTokens: {
      TRY_ASSIGN(cluster::TokenList list, cluster::decode_token_list(frame.payload));
      update_.tokens.emplace_back(frame.choice, std::move(list));
      return {};
    }
    case FrameType::kFinished: {
      TRY(cluster::decode_choice_end(frame.payload));
      update_.finished.emplace_back(frame.choice, std::string(frame.payload));
      return {};
    }
    case FrameType::kBytes:
      if (!headed_ && !frame.payload.empty()) return broken("bytes before the head of its answer");
      update_.bytes += frame.payload;
      update_.last = frame.has(Frame::kLast);
      return {};
    case FrameType::kError: {
      TRY_ASSIGN(update_.error, cluster::decode_answer_error(frame.payload));
      return {};
    }
    case FrameType::kBeat:
      return {};
    default:
      return broken("a frame that is none of an answer");
  }
}

}  // namespace pelton::gateway
