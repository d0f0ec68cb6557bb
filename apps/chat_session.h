// A conversation with a loaded model in the terminal: what was said, and one answer at a time. Main
// thread.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "chat/conversation.h"
#include "chat/format.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "node/loaded_model.h"
#include "request/generation_request.h"
#include "tokenizer/tokenizer.h"

namespace pelton::apps {

class ChatSession {
 public:
  struct Options {
    chat::ReasoningEffort effort = chat::ReasoningEffort::kMedium;
    std::string instructions;  // a developer message; may be empty
    std::string current_date;
    request::SamplingParams sampling;
    int tokens_max = 0;  // of one answer
  };

  // `model` and `interrupt` outlive it. Errors: the model has no tokenizer or no chat format.
  static Result<ChatSession> make(node::LoadedModel& model, const Options& options,
                                  const cli::Interrupt& interrupt);

  // Asks, and prints the answer on stdout while it comes. Ctrl-C ends the answer, not the
  // conversation. An error leaves the conversation as it was before.
  struct Answer {
    int tokens = 0;
    double seconds = 0;
    bool interrupted = false;
    bool cut = false;  // ran into tokens_max or the context's end
  };
  Result<Answer> ask(const std::string& text, const cli::Terminal& terminal);

  void clear();
  void set_effort(chat::ReasoningEffort effort);

 private:
  ChatSession(node::LoadedModel& model, std::shared_ptr<const chat::ChatFormat> format,
              const Options& options, const cli::Interrupt& interrupt);

  Result<request::GenerationRequest> request_for(const chat::Conversation& conversation);
  Result<Answer> stream(request::GenerationRequest request, const cli::Terminal& terminal,
                        chat::Conversation& conversation);

  node::LoadedModel& model_;
  const std::shared_ptr<const chat::ChatFormat> format_;
  std::vector<TokenId> opening_;  // what the last prompt has written of the turn
  Options options_;
  const cli::Interrupt& interrupt_;
  chat::Conversation conversation_;
  int turn_ = 0;  // answers so far: each samples from a seed of its own
};

}  // namespace pelton::apps
