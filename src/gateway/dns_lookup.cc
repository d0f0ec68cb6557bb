#include "gateway/dns_lookup.h"

#include <array>
#include <memory>

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>

namespace pelton::gateway {
namespace {

constexpr size_t kAnswerBytesMax = 65'535;
constexpr size_t kRecordsMax = 4096;
// Two tries of this: a name is asked for again in five seconds anyway.
constexpr int kTrySeconds = 2;
constexpr int kTries = 2;

Error no_answer() {
  return {ErrorCode::kIo, "a name server's answer is none", {}};
}

// Calls `take` with each record of the answer's first section that is of this type.
template <typename Take>
Result<void> each_record(std::string_view answer, ns_type type, const Take& take) {
  ns_msg message;
  const auto* bytes = reinterpret_cast<const unsigned char*>(answer.data());
  if (::ns_initparse(bytes, static_cast<int>(answer.size()), &message) != 0) return no_answer();
  const auto count = std::min<size_t>(ns_msg_count(message, ns_s_an), kRecordsMax);
  for (size_t i = 0; i < count; ++i) {
    ns_rr record;
    if (::ns_parserr(&message, ns_s_an, static_cast<int>(i), &record) != 0) return no_answer();
    if (ns_rr_type(record) == type) TRY(take(message, record));
  }
  return {};
}

int u16_at(const unsigned char* bytes) {
  return bytes[0] << 8 | bytes[1];
}

Result<void> add_addresses(std::string_view answer, ns_type type,
                           std::vector<std::string>& addresses) {
  const int family = type == ns_t_a ? AF_INET : AF_INET6;
  const size_t bytes = type == ns_t_a ? sizeof(in_addr) : sizeof(in6_addr);
  return each_record(answer, type, [&](ns_msg&, ns_rr& record) -> Result<void> {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const bool is_one =
        ns_rr_rdlen(record) == bytes &&
        ::inet_ntop(family, ns_rr_rdata(record), text.data(), text.size()) != nullptr;
    if (!is_one) return no_answer();
    addresses.emplace_back(text.data());
    return {};
  });
}

// One question, to one server or to the system's.
Result<std::string> ask(const std::string& name, ns_type type, const net::HostPort& server) {
  struct __res_state state {};
  const auto trouble = [&](const std::string& what) {
    return Error{ErrorCode::kUnavailable, fmt::format("{}: {}", name, what), {}};
  };
  if (::res_ninit(&state) != 0) return trouble("the system's resolver does not start");
  const std::unique_ptr<struct __res_state, void (*)(struct __res_state*)> owned(
      &state, [](struct __res_state* one) { ::res_nclose(one); });
  state.retrans = kTrySeconds;
  state.retry = kTries;
  if (server.port != 0) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server.port));
    if (::inet_pton(AF_INET, server.host.c_str(), &address.sin_addr) != 1) {
      return trouble(fmt::format("the name server {} is no IPv4 address", server.host));
    }
    state.nsaddr_list[0] = address;
    state.nscount = 1;
  }
  std::string answer(kAnswerBytesMax, '\0');
  const int size = ::res_nquery(&state, name.c_str(), ns_c_in, type,
                                reinterpret_cast<unsigned char*>(answer.data()),
                                static_cast<int>(answer.size()));
  if (size < 0) return trouble(::hstrerror(state.res_h_errno));
  answer.resize(std::min(static_cast<size_t>(size), answer.size()));
  return answer;
}

}  // namespace

Result<std::vector<SrvTarget>> parse_srv_answer(std::string_view answer) {
  constexpr int kFixedBytes = 6;  // priority, weight, port
  std::vector<SrvTarget> targets;
  TRY(each_record(answer, ns_t_srv, [&](ns_msg& message, ns_rr& record) -> Result<void> {
    const unsigned char* data = ns_rr_rdata(record);
    std::array<char, NS_MAXDNAME> host{};
    const bool is_one = ns_rr_rdlen(record) > kFixedBytes &&
                        ::ns_name_uncompress(ns_msg_base(message), ns_msg_end(message),
                                             data + kFixedBytes, host.data(), host.size()) > 0;
    if (!is_one) return no_answer();
    SrvTarget target{.host = host.data(), .port = u16_at(data + 4), .priority = u16_at(data)};
    // "." says that there is no such service here.
    if (target.port > 0 && !target.host.empty() && target.host != ".") {
      targets.push_back(std::move(target));
    }
    return {};
  }));
  return targets;
}

Result<std::vector<std::string>> parse_address_answer(std::string_view answer) {
  std::vector<std::string> addresses;
  TRY(add_addresses(answer, ns_t_a, addresses));
  TRY(add_addresses(answer, ns_t_aaaa, addresses));
  return addresses;
}

Result<std::vector<SrvTarget>> look_up_srv(const std::string& name, const net::HostPort& server) {
  TRY_ASSIGN(const std::string answer, ask(name, ns_t_srv, server));
  return parse_srv_answer(answer);
}

Result<std::vector<std::string>> look_up_addresses(const std::string& name,
                                                   const net::HostPort& server) {
  const Result<std::string> four = ask(name, ns_t_a, server);
  const Result<std::string> six = ask(name, ns_t_aaaa, server);
  if (!four.ok() && !six.ok()) return four.error();
  std::vector<std::string> addresses;
  for (const Result<std::string>* answer : {&four, &six}) {
    if (!answer->ok()) continue;
    TRY_ASSIGN(const std::vector<std::string> some, parse_address_answer(**answer));
    addresses.insert(addresses.end(), some.begin(), some.end());
  }
  return addresses;
}

}  // namespace pelton::gateway
