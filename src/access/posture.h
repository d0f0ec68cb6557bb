// What can be said of a process before it runs, by its settings alone: where it listens and whom it
// asks for what, what it sends over a network, what it keeps, and who may what; and whether that is
// enough for a named profile. Nothing here looks at a machine: whoever fills it in has. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::access {

struct Posture {
  struct Listener {
    std::string name;  // "clients", "admin"
    std::string address;
    bool is_local = true;  // only this machine's programs come in there
    bool asks = false;     // for a key, or a certificate
    bool has_tls = false;
  };
  struct Link {  // what this process asks over a network
    std::string name;
    bool is_encrypted = false;
  };
  struct Storage {
    std::string what;
    std::string place;
    bool has_text = false;  // of requests and answers, or what is computed of it
    bool is_encrypted = false;
  };
  struct Secret {
    std::string what;
    std::string file;         // empty: it stands in the command's words
    std::optional<int> mode;  // permission bits; none: there is no such file
  };
  struct Keys {  // by what they may
    int clients = 0;
    int viewers = 0;
    int operators = 0;
    int admins = 0;
  };

  std::vector<Listener> listeners;
  std::vector<Link> links;
  std::vector<Storage> storage;
  std::vector<Secret> secrets;
  Keys keys;
  bool keeps_audit = false;
  bool leaves_core_dumps = false;
  bool finds_workers = false;   // workers that no operator has named: a registry, an autoscaler
  bool bounds_workers = false;  // says where these may stand
};

enum class PostureProfile {
  kLocal,      // one person's machine
  kShared,     // several tenants, in a network of one's own
  kRegulated,  // what lies in a file or goes over a wire may be read by nobody else
};
inline constexpr std::string_view kPostureProfiles[] = {"local", "shared", "regulated"};
std::optional<PostureProfile> posture_profile_named(std::string_view name);

struct PostureFinding {
  std::string_view rule;  // "listeners_ask", as docs/compliance.md lists them
  std::string why;        // empty: it passes

  bool passes() const { return why.empty(); }
};
// Each rule of the profile, in the order of the docs; a profile has all those of the one before.
std::vector<PostureFinding> check_posture(const Posture& posture, PostureProfile profile);

}  // namespace pelton::access
