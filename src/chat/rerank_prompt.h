// What a model is asked that ranks documents by its answer, yes or no: Qwen3-Reranker's prompt, as
// its model card has it. Constants; any thread.
#pragma once

#include <string>
#include <string_view>

namespace pelton::chat {

struct RerankPrompt {
  static constexpr std::string_view kTask =
      "Given a web search query, retrieve relevant passages that answer the query";
  // Around instruction, query and document; with control tokens.
  static constexpr std::string_view kBefore =
      "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
      "and "
      "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
      "<|im_start|>user\n";
  static constexpr std::string_view kBehind =
      "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

  // Between the two: what is ahead of the document, and with it; plain text. An empty task: kTask.
  static std::string ahead(std::string_view task, std::string_view query);
  static std::string between(std::string_view task, std::string_view query,
                             std::string_view document);
};

}  // namespace pelton::chat
