// --admin and --admin-key-file, of the verbs that ask a running gateway.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/command_line.h"
#include "net/http_client.h"

namespace pelton::apps {

cli::Flag admin_flag();
// Of a gateway that asks for operators' keys (gateway --admin-keys).
cli::Flag admin_key_flag();

// The key that --admin-key-file names: its first line; empty without the flag. Errors: kBadConfig.
Result<std::string> admin_key(const cli::Arguments& arguments);
// A call of that gateway's, with the key. `path`: and what is asked behind it.
Result<net::HttpCall> admin_call(const cli::Arguments& arguments, std::string method,
                                 const std::string& path);

// About its configuration.
struct ConfigCall {
  std::string method = "GET";
  std::string path = "/v1/config";
  std::string body = {};
  std::string etag = {};  // it is for this text only; empty: for any
  std::string why = {};   // one line that is kept with the change
};
// Half a minute at most: a gateway that takes another configuration reads tokenizers. Errors: what
// the gateway says, kBadConfig (400), kInvalidArgument (404) and kIo.
Result<net::HttpResponse> config_call(const cli::Arguments& arguments, ConfigCall asked);
// The same of the gateway at that admin listener's URL: in two steps, where it matters whether the
// gateway has refused it or its answer was lost.
Result<net::HttpResponse> config_answer_at(const std::string& url, const std::string& key,
                                           ConfigCall asked);
Error config_refused(const net::HttpResponse& response);
// In one.
Result<net::HttpResponse> config_call_at(const std::string& url, const std::string& key,
                                         ConfigCall asked);

}  // namespace pelton::apps
