// Names the blocks of requests' prompts before they are routed: short ones at once, long ones on a
// thread of its own, so that no net thread is held up. Owned by the gateway. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/bounded_queue.h"
#include "gateway/block_view.h"
#include "gateway/prompt_tokens.h"
#include "kv/block_hash.h"
#include "net/http_server.h"

namespace pelton::gateway {

class PromptNamer {
 public:
  // `block_seed`: of the fleet's names; none: nothing has names.
  explicit PromptNamer(std::optional<uint64_t> block_seed);
  ~PromptNamer();
  PromptNamer(const PromptNamer&) = delete;
  PromptNamer& operator=(const PromptNamer&) = delete;

  struct Naming {
    std::shared_ptr<const ModelText> text;  // null: the pool's is not known
    int block_tokens = 0;                   // 0: not known
    std::string date;
    int64_t adapter = 0;  // of its answers; 0: the model itself
    // What its asker's blocks are salted with, by the request's own salt (empty: it has none);
    // null: not salted, and whose request has a salt has no names.
    std::function<std::string(std::string_view of_request)> salt_of = {};
  };
  RoutedPrompt name(const net::HttpRequest& request, const Naming& naming) const;

  // Calls `named` on the exchange's net thread, now if the request is short. `request` lives as
  // long as `named` does. Where too many wait, it has no names.
  using Named = std::function<void(RoutedPrompt prompt)>;
  void name_beside(const net::HttpRequest& request, Naming naming,
                   const std::shared_ptr<net::Exchange>& exchange, Named named);

 private:
  static RoutedPrompt unnamed(const net::HttpRequest& request);
  void run();

  const std::optional<kv::BlockHasher> hasher_;
  base::BoundedQueue<std::function<void()>> jobs_;
  std::thread thread_;
};

}  // namespace pelton::gateway
