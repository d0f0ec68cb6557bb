#include "console/sessions.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/authenticated_cipher.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "console/pages.h"
#include "net/json_response.h"
#include "net/url.h"

namespace pelton::console {
namespace {

constexpr size_t kBodyMax = 4096;
constexpr size_t kCookiesMax = 8192;  // bytes of the header that are looked at
constexpr double kPerSecond = 1.0 / Sessions::kAttemptSeconds;
constexpr double kPerSecondOfAll = 1;
constexpr std::string_view kTokenHeader = "X-Pelton-Token";

net::HttpResponse refusal(int status, std::string code, std::string message) {
  net::HttpResponse response = net::error_response(
      {.status = status, .code = std::move(code), .message = std::move(message)});
  response.headers.add("Cache-Control", "no-store");
  return response;
}

// "10.0.0.7:51234" without the port.
std::string address_of(const net::HttpRequest& request) {
  return request.remote.substr(0, request.remote.rfind(':'));
}

// Cookies belong to a host, whatever the port: another console there has one of another name, as
// has another gateway behind the same proxy.
std::string cookie_name(const net::HttpRequest& request, std::string_view tag) {
  const std::string_view host = request.headers.get("Host");
  const size_t colon = host.rfind(':');
  const std::string_view port = colon == std::string_view::npos ? "" : host.substr(colon + 1);
  const bool is_port = !port.empty() && port.find_first_not_of("0123456789") == std::string::npos;
  return fmt::format("pelton_console{}{}_{}", is_port ? "_" : "", is_port ? port : "", tag);
}

std::string_view cookie_of(const net::HttpRequest& request, std::string_view tag) {
  const std::string name = cookie_name(request, tag) + "=";
  std::string_view all = request.headers.get("Cookie").substr(0, kCookiesMax);
  while (!all.empty()) {
    std::string_view one = all.substr(0, all.find(';'));
    all.remove_prefix(std::min(one.size() + 1, all.size()));
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    if (one.starts_with(name)) return one.substr(name.size());
  }
  return {};
}

net::HttpResponse other_page() {
  return refusal(403, "forbidden_origin", "this is for the console's own page");
}

net::HttpResponse signed_out() {
  return refusal(401, "not_signed_in", "nobody has signed in here, or not lately");
}

struct Cookie {
  std::string name;
  std::string_view value;
  int64_t seconds = 0;
};

// Pages ask /v1 and /metrics too, and behind a proxy all of these are below a prefix that nobody
// here knows: so the whole host's. Behind a proxy that speaks TLS the page's origin says so.
std::string set_cookie(const net::HttpRequest& request, const Cookie& cookie) {
  const bool tls = request.tls || request.headers.get("Origin").starts_with("https://");
  return fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{}", cookie.name,
                     cookie.value, cookie.seconds, tls ? "; Secure" : "");
}

}  // namespace

Sessions::Sessions(Parts parts) : parts_(std::move(parts)), tag_(base::random_hex(4)) {}

net::HttpResponse Sessions::answer(const net::HttpRequest& request) {
  if (!is_own_page(request)) return other_page();
  if (request.method == "POST") return sign_in(request);
  if (request.method == "DELETE") return sign_out(request);
  if (request.method != "GET" && request.method != "HEAD") {
    net::HttpResponse response =
        refusal(405, "method_not_allowed", request.path + " is for GET, POST and DELETE");
    response.headers.add("Allow", "GET, HEAD, POST, DELETE");
    return response;
  }
  std::lock_guard lock(mutex_);
  const auto found = find(request);
  if (found == sessions_.end()) {  // no error: each page asks when it is opened
    net::HttpResponse nobody = net::json_response("null");
    nobody.headers.add("Cache-Control", "no-store");
    return nobody;
  }
  const Session& session = found->second;
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("name").string(session.account.name).key("token").string(session.token);
  const int64_t passed_s = (parts_.clock.now_ns() - session.begun_ns) / 1'000'000'000;
  w.key("seconds").integer(kSeconds - passed_s).end_object();
  net::HttpResponse response = net::json_response(std::move(body));
  response.headers.add("Cache-Control", "no-store");
  return response;
}

void Sessions::end_all() {
  std::lock_guard lock(mutex_);
  sessions_.clear();
}

std::optional<Sessions::Account> Sessions::whose(const net::HttpRequest& request) {
  std::lock_guard lock(mutex_);
  const auto found = find(request);
  if (found == sessions_.end()) return std::nullopt;
  return found->second.account;
}

std::variant<Sessions::Account, net::HttpResponse> Sessions::admit(
    const net::HttpRequest& request) {
  if (!is_own_page(request)) return other_page();
  std::lock_guard lock(mutex_);
  const auto found = find(request);
  if (found == sessions_.end()) return signed_out();
  // Digests: how long a comparison takes says nothing of the token.
  const std::string_view token = request.headers.get(kTokenHeader);
  if (base::sha256(token) == base::sha256(found->second.token)) return found->second.account;
  return refusal(403, "bad_token",
                 fmt::format("a change brings the session's token along ({})", kTokenHeader));
}

net::HttpResponse Sessions::sign_in(const net::HttpRequest& request) {
  const std::string address = address_of(request);
  if (request.body.size() > kBodyMax) {
    return refusal(413, "body_too_large", fmt::format("at most {} bytes", kBodyMax));
  }
  const Result<Json> body = Json::parse(request.body);
  const std::string key = body.ok() ? body->string("key").value_or("") : "";
  if (key.empty()) return refusal(400, "bad_request", "a JSON object with \"key\" is wanted");
  std::optional<Account> account;
  {
    std::lock_guard lock(mutex_);
    if (is_throttled(address)) {
      net::HttpResponse response =
          refusal(429, "too_many_attempts", "too many wrong keys came from there: try again later");
      response.headers.add("Retry-After", std::to_string(kAttemptSeconds));
      return response;
    }
    account = parts_.account_of(key);
    if (!account && !parts_.is_lesser(key)) note_wrong(address);
  }
  if (!account) return refused_key(key, address);
  Session session{.account = *account,
                  .token = replaced_token(request, *account).value_or(base::random_hex(32)),
                  .address = address,
                  .begun_ns = parts_.clock.now_ns()};
  std::string text;
  base::JsonWriter w(text);
  w.begin_object().key("name").string(account->name).key("token").string(session.token);
  w.key("seconds").integer(kSeconds).end_object();
  net::HttpResponse response = net::json_response(std::move(text));
  response.headers.add("Cache-Control", "no-store");
  const std::string cookie = begin(std::move(session));
  response.headers.add("Set-Cookie", set_cookie(request, {.name = cookie_name(request, tag_),
                                                          .value = cookie,
                                                          .seconds = kSeconds}));
  parts_.on_event("signed in", *account, address);
  return response;
}

net::HttpResponse Sessions::refused_key(const std::string& key, const std::string& address) const {
  if (parts_.is_lesser(key)) {
    parts_.on_event("a key without role=admin", {}, address);
    return refusal(403, "insufficient_scope", "only a key with role=admin signs in here");
  }
  parts_.on_event("wrong key", {}, address);
  return refusal(401, "wrong_key", "this is no operator's key");
}

// The browser forgets the cookie that it has. Its other tabs go on with their token, if it is the
// same account's that signs in.
std::optional<std::string> Sessions::replaced_token(const net::HttpRequest& request,
                                                    const Account& account) {
  std::lock_guard lock(mutex_);
  const auto found = find(request);
  if (found == sessions_.end()) return std::nullopt;
  Session before = std::move(sessions_.extract(found).mapped());
  if (before.account.id != account.id) return std::nullopt;
  return std::move(before.token);
}

std::string Sessions::begin(Session session) {
  std::string cookie = base::random_hex(32);
  std::lock_guard lock(mutex_);
  if (sessions_.size() >= kSessionsMax) {
    sessions_.erase(std::ranges::min_element(sessions_, {},
                                             [](const auto& one) { return one.second.begun_ns; }));
  }
  sessions_.emplace(base::sha256(cookie), std::move(session));
  return cookie;
}

net::HttpResponse Sessions::sign_out(const net::HttpRequest& request) {
  std::variant<Account, net::HttpResponse> who = admit(request);
  if (auto* refused = std::get_if<net::HttpResponse>(&who)) return std::move(*refused);
  const Account& account = std::get<Account>(who);
  const bool everywhere = net::query_value(request.query, "all") == "true";
  {
    std::lock_guard lock(mutex_);
    if (everywhere) {
      std::erase_if(sessions_,
                    [&](const auto& one) { return one.second.account.id == account.id; });
    } else {
      sessions_.erase(base::sha256(cookie_of(request, tag_)));
    }
  }
  parts_.on_event(everywhere ? "signed out everywhere" : "signed out", account,
                  address_of(request));
  net::HttpResponse response = net::json_response("{}");
  response.headers.add(
      "Set-Cookie",
      set_cookie(request, {.name = cookie_name(request, tag_), .value = {}, .seconds = 0}));
  return response;
}

Sessions::ByCookie::iterator Sessions::find(const net::HttpRequest& request) {
  const int64_t oldest_ns = parts_.clock.now_ns() - kSeconds * 1'000'000'000;
  std::erase_if(sessions_, [&](const auto& one) {
    return one.second.begun_ns <= oldest_ns || !parts_.is_valid(one.second.account.id);
  });
  const std::string_view cookie = cookie_of(request, tag_);
  if (cookie.empty()) return sessions_.end();
  const auto found = sessions_.find(base::sha256(cookie));
  if (found == sessions_.end() || found->second.address != address_of(request)) {
    return sessions_.end();
  }
  return found;
}

double Sessions::left(const Attempts& attempts, double most, double per_second) const {
  const double passed_s = static_cast<double>(parts_.clock.now_ns() - attempts.at_ns) * 1e-9;
  return std::min(most, attempts.left + passed_s * per_second);
}

bool Sessions::is_throttled(const std::string& address) {
  if (left(of_all_, kAttemptsOfAll, kPerSecondOfAll) < 1) return true;
  const auto found = attempts_.find(address);
  return found != attempts_.end() && left(found->second, kAttempts, kPerSecond) < 1;
}

void Sessions::note_wrong(const std::string& address) {
  const int64_t now_ns = parts_.clock.now_ns();
  of_all_ = {.left = left(of_all_, kAttemptsOfAll, kPerSecondOfAll) - 1, .at_ns = now_ns};
  Attempts& attempts = attempts_of(address);
  attempts = {.left = left(attempts, kAttempts, kPerSecond) - 1, .at_ns = now_ns};
}

// Who has all attempts again is not kept; of too many the one that waits for the fewest goes.
Sessions::Attempts& Sessions::attempts_of(const std::string& address) {
  const auto left_to = [this](const auto& one) { return left(one.second, kAttempts, kPerSecond); };
  if (attempts_.size() >= kAddressesMax && !attempts_.contains(address)) {
    std::erase_if(attempts_, [&](const auto& one) { return left_to(one) >= kAttempts; });
    if (attempts_.size() >= kAddressesMax) {
      attempts_.erase(std::ranges::max_element(attempts_, {}, left_to));
    }
  }
  return attempts_.try_emplace(address, Attempts{.left = kAttempts, .at_ns = parts_.clock.now_ns()})
      .first->second;
}

}  // namespace pelton::console
