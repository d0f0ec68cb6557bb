#include "gateway/prompt_namer.h"

#include <algorithm>
#include <utility>

#include <pthread.h>

namespace pelton::gateway {
namespace {

// Text is read at some ten megabytes a second: so much takes a millisecond or two.
constexpr size_t kShortBytes = size_t{16} << 10;
constexpr size_t kJobsMax = 256;
constexpr int64_t kBytesPerToken = 4;  // a guess, where nothing is counted

}  // namespace

PromptNamer::PromptNamer(std::optional<uint64_t> block_seed)
    : hasher_(block_seed ? std::optional<kv::BlockHasher>(*block_seed) : std::nullopt),
      jobs_(kJobsMax),
      thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), "pelton-names");
}

PromptNamer::~PromptNamer() {
  jobs_.close();
  thread_.join();
}

void PromptNamer::run() {
  while (std::optional<std::function<void()>> job = jobs_.pop()) (*job)();
}

RoutedPrompt PromptNamer::unnamed(const net::HttpRequest& request) {
  return {.tokens = static_cast<int64_t>(request.body.size()) / kBytesPerToken};
}

RoutedPrompt PromptNamer::name(const net::HttpRequest& request, const Naming& naming) const {
  if (naming.text == nullptr) return unnamed(request);
  const std::optional<PromptTokens> known = prompt_tokens(
      *naming.text, {.path = request.path, .body = request.body, .date = naming.date});
  if (!known) return unnamed(request);
  RoutedPrompt prompt{.tokens = std::ssize(known->tokens),
                      .output_max = std::max<int64_t>(known->output_max.value_or(0), 0),
                      .is_counted = true};
  const bool has_salt = naming.salt_of || known->cache_salt.empty();
  if (!hasher_ || naming.block_tokens == 0 || !has_salt) return prompt;
  const std::string salt = naming.salt_of ? naming.salt_of(known->cache_salt) : std::string();
  prompt.names = block_names(*hasher_, {.salt = salt, .adapter = naming.adapter}, known->tokens,
                             naming.block_tokens);
  prompt.block_tokens = naming.block_tokens;
  prompt.is_splittable = known->answers == 1 && known->output_max.value_or(2) > 1 &&
                         known->may_move && !prompt.names.empty();
  return prompt;
}

void PromptNamer::name_beside(const net::HttpRequest& request, Naming naming,
                              const std::shared_ptr<net::Exchange>& exchange, Named named) {
  if (naming.text == nullptr || request.body.size() <= kShortBytes) {
    return named(name(request, naming));
  }
  const auto kept = std::make_shared<Named>(std::move(named));
  std::function<void()> job = [this, &request, naming = std::move(naming), exchange, kept] {
    auto prompt = std::make_shared<RoutedPrompt>(name(request, naming));
    exchange->post([kept, prompt] { (*kept)(std::move(*prompt)); });
  };
  if (!jobs_.try_push(std::move(job))) (*kept)(unnamed(request));
}

}  // namespace pelton::gateway
