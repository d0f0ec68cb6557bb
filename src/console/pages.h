// What /console answers: the bundled files, each with the headers that shut the page in (no other
// host, no inline script, no frame, no HTML made of text), and the configuration that the page
// reads first. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "net/http_message.h"

namespace pelton::console {

// What a listener's console has.
struct Config {
  std::string version;
  // Of "chat", "models", "chains", "live", "fleet", "scaling", "requests", "routing", "splits",
  // "health", "configuration", "capacity", "chain_figures", "server_health".
  std::vector<std::string_view> pages;
  // Where the chat is, if it is at another listener of the same host; 0: here, or nowhere.
  int chat_port = 0;
  bool chat_tls = false;
  bool has_what_if = false;  // the autoscaler's facts are recorded, to be played with other knobs
  bool has_sign_in = false;  // pages may command, for whoever signs in (console/sessions.h)
  bool asks_key = false;     // nothing is shown to whoever has neither signed in nor a key
};
std::string config_body(const Config& config);

// Whether the path is the console's: "/console", or below it.
bool is_console_path(std::string_view path);

// Whether the page that asks is this console's own. Browsers say whose it is; what is no browser is
// steered by nobody else's page.
bool is_own_page(const net::HttpRequest& request);

// The answer to a GET or HEAD of such a path; 404 for what is not there.
net::HttpResponse console_reply(const net::HttpRequest& request, const Config& config);

// 405, of any other method.
net::HttpResponse only_for_reading(const net::HttpRequest& request);

// The headers that all of these have.
void add_page_headers(net::HttpHeaders& headers);

}  // namespace pelton::console
