// Which URL is answered by what. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/server.h"

namespace pelton::server {

struct Routes {
  using Function = void (Server::*)(Call call);

  enum class Guard { kApiKey, kOpen };  // probes of the platform carry no key

  struct Route {
    std::string_view method;
    std::string_view path;  // ending in '*': everything that begins so
    Guard guard;
    Function function;
    Dialect dialect = Dialect::kOpenAi;
  };

  struct Match {
    const Route* route = nullptr;  // null: nothing fits
    std::string allowed_methods;   // of the path, if it is the method that does not fit
  };

  static Match find(std::string_view method, std::string_view path);

  // "POST /v1/chat/completions", each on a line.
  static std::string listing();

 private:
  static std::span<const Route> all();
};

}  // namespace pelton::server
