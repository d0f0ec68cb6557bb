// GET /console: the pages that need no more than the API that everybody has. Chains where some are
// served.
#include "console/pages.h"
#include "server/endpoints.h"

namespace pelton::server {

void console_page(Call call, Services& services) {
  if (!services.options.console) {
    return call.send(api::not_found(call.request.method, call.request.path));
  }
  console::Config config{.version = services.options.version, .pages = {"chat", "models"}};
  if (services.chains != nullptr) config.pages.emplace_back("chains");
  call.send(console::console_reply(call.request, config));
}

}  // namespace pelton::server
