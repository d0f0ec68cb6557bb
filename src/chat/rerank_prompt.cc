#include "chat/rerank_prompt.h"

#include <fmt/format.h>

namespace pelton::chat {

std::string RerankPrompt::ahead(std::string_view task, std::string_view query) {
  return fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>:", task.empty() ? kTask : task,
                     query);
}

std::string RerankPrompt::between(std::string_view task, std::string_view query,
                                  std::string_view document) {
  return fmt::format("{} {}", ahead(task, query), document);
}

}  // namespace pelton::chat
