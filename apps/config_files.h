// GET /v1/config/capacity and /v1/config/chain[/NAME] of a gateway: the files that it is given
// beside its configuration, as they lie there now, or as JSON (?form=json). They are read here, and
// changed where they lie: docs/decisions/0180. Any thread; reads the disk.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "api/error.h"
#include "net/http_message.h"

namespace pelton::apps {

class ConfigFiles {
 public:
  struct Parts {
    std::string capacity_file;  // empty: nobody has said which machines there are
    std::string chains_folder;  // empty: there are no chains
  };
  explicit ConfigFiles(Parts parts) : parts_(std::move(parts)) {}

  // Whether such a path is one of these.
  static bool is_one(std::string_view path);
  net::HttpResponse answer(const net::HttpRequest& request) const;

 private:
  net::HttpResponse capacity(bool as_json) const;
  net::HttpResponse chains(std::string_view name, bool as_json) const;

  const Parts parts_;
};

}  // namespace pelton::apps
