// One worker's answer as it comes, frame by frame, to what the gateway may do with it: only what is
// whole is handed out, so that a worker that dies in between has said all of an update or nothing.
// Pure but for the bytes it keeps. One thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cluster/envelope.h"
#include "cluster/frame.h"
#include "cluster/token_list.h"

namespace pelton::gateway {

// What takes effect together.
struct AnswerUpdate {
  std::optional<cluster::AnswerHead> head;
  std::string prompts;                                          // kPrompt frames, as they came
  std::string adapter;                                          // a digest; empty: not said
  std::vector<std::pair<uint16_t, cluster::TokenList>> tokens;  // by choice
  std::vector<std::pair<uint16_t, std::string>> found;          // a PromptFound, by choice
  std::vector<std::pair<uint16_t, std::string>> finished;       // a ChoiceEnd, by choice
  std::string bytes;                                            // for the client
  std::optional<cluster::AnswerError> error;
  bool last = false;
};

class AnswerReader {
 public:
  void push(std::string_view bytes) { reader_.push(bytes); }
  // The next whole update; nothing if more has to come. kInvalidArgument: no worker of ours says
  // that; nothing can follow.
  Result<std::optional<AnswerUpdate>> next();

 private:
  Result<void> add(const cluster::Frame& frame);

  cluster::FrameReader reader_;
  AnswerUpdate update_;
  bool headed_ = false;
  bool over_ = false;
};

}  // namespace pelton::gateway
