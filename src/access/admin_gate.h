// Who may ask what of an admin listener, by the role of the key that a request carries. Where keys
// are asked for, a request without an operator's is refused (401). Where none is, anybody who
// reaches the listener may everything, but a key with a role is held to that role there too: a
// viewer's changes nothing at such a listener. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "access/operator_keys.h"
#include "api/error.h"
#include "net/http_message.h"

namespace pelton::access {

class AdminGate {
 public:
  enum class Keys { kNotAsked, kAsked };
  explicit AdminGate(Keys keys) : keys_(keys) {}

  bool asks() const { return keys_ == Keys::kAsked; }
  void set_keys(OperatorKeys keys);

  // Of a key alone; kNone: it is no operator's.
  OperatorRole role_of(std::string_view key) const;

  // Who asks, as the audit log has it; or why not: 401, or 403 insufficient_scope. `needed`: kNone,
  // where anybody may.
  std::variant<std::string, api::ApiError> admit(const net::HttpRequest& request,
                                                 OperatorRole needed) const;

 private:
  const Keys keys_;
  std::atomic<std::shared_ptr<const OperatorKeys>> operators_{
      std::make_shared<const OperatorKeys>()};
};

}  // namespace pelton::access
