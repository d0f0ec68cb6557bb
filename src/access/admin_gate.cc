#include "access/admin_gate.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "access/access_control.h"

namespace pelton::access {
namespace {

// The key that it carries; empty: none, or not one that is clear.
std::string_view key_of(const net::HttpRequest& request) {
  constexpr std::string_view kBearer = "bearer ";
  const AccessControl::Credentials given = AccessControl::credentials_of(request.headers);
  if (given.repeated) return {};
  if (given.authorization.empty()) return given.api_key;
  const bool is_bearer =
      given.authorization.size() > kBearer.size() &&
      net::equals_without_case(given.authorization.substr(0, kBearer.size()), kBearer);
  if (!is_bearer) return {};
  const std::string_view key = given.authorization.substr(kBearer.size());
  return given.api_key.empty() || given.api_key == key ? key : std::string_view();
}

api::ApiError no_operator() {
  return {.status = 401,
          .message =
              "this listener asks for an operator's key: 'Authorization: Bearer KEY', of a "
              "key with role=view, role=operate or role=admin",
          .type = "invalid_request_error",
          .param = {},
          .code = "invalid_api_key"};
}

api::ApiError insufficient(OperatorRole role, OperatorRole needed) {
  return {.status = 403,
          .message = fmt::format("this key has role={}; this asks for role={}", role_name(role),
                                 role_name(needed)),
          .type = "invalid_request_error",
          .param = {},
          .code = "insufficient_scope"};
}

}  // namespace

void AdminGate::set_keys(OperatorKeys keys) {
  operators_.store(std::make_shared<const OperatorKeys>(std::move(keys)));
}

OperatorRole AdminGate::role_of(std::string_view key) const {
  const std::shared_ptr<const OperatorKeys> keys = operators_.load();
  const OperatorKeys::Operator* who = keys->operator_of(key);
  return who == nullptr ? OperatorRole::kNone : who->role;
}

std::variant<std::string, api::ApiError> AdminGate::admit(const net::HttpRequest& request,
                                                          OperatorRole needed) const {
  const std::shared_ptr<const OperatorKeys> keys = operators_.load();
  const std::string_view key = key_of(request);
  const OperatorKeys::Operator* who = key.empty() ? nullptr : keys->operator_of(key);
  if (who == nullptr) {
    if (asks() && needed != OperatorRole::kNone) return no_operator();
    return std::string("an operator");
  }
  if (who->role < needed) return insufficient(who->role, needed);
  return who->name;
}

}  // namespace pelton::access
